"""`Driver.wait`: blocked on the wake marker of each queue, on connections of its own."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Generator, Sequence
from datetime import timedelta
from typing import cast

import redis
from redis.exceptions import NoScriptError

from jobcontract.errors import StoreError
from jobcontract_redis.access import Wire
from jobcontract_redis.link import words_of
from jobcontract_redis.namespace import Namespace
from jobcontract_redis.pool import Command, Reply, read_reply
from jobcontract_redis.scripts import DUE

_LONGEST_BLOCK = 2.0
"""Seconds after which the server has to answer at the latest: so soon a dead connection is noticed."""
_MARGIN = 1.0
"""Seconds that an answer may take."""
_AGAIN = 0.5
"""Seconds until a server that failed is asked again."""


class _Unanswered(Exception):
    """No answer came: in time, or before the driver was closed."""


class _Line:
    """A connection for the queues whose keys one command on it may name."""

    def __init__(self, wire: Wire, queues: Sequence[str]) -> None:
        self.wire = wire
        self.queues = queues
        self.owes = 0
        """How many answers are still to come."""
        self.usable = True
        """Whether it can be used again: not while it owes answers, nor when the server refused a command."""

    def send(self, commands: Sequence[Command]) -> None:
        self.owes = len(commands)
        self.usable = False
        self.wire.send_packed_command(self.wire.pack_commands(commands))

    def read(self) -> list[Reply]:
        """The answers, which have begun to arrive. Raises the one that is a refusal, unless it says that the
        server does not know the script.
        """
        replies = [read_reply(self.wire) for _ in range(self.owes)]
        self.owes = 0
        for reply in replies:
            if isinstance(reply, redis.ResponseError) and not isinstance(reply, NoScriptError):
                raise reply
        self.usable = True
        return replies


class Waiter:
    """Waits for work in queues. Safe in threads: each wait under way has connections of its own."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._idle: dict[tuple[str, ...], list[Wire]] = {}
        self._bells: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """See `Driver.wait`. What is wrong with a server is not told here: the next claim tells it."""
        end = time.monotonic() + timeout.total_seconds()
        with self._bell() as bell:
            while True:
                pause = 0.0
                try:
                    if self._is_due(queues, end, bell):
                        return True
                except (StoreError, redis.RedisError, OSError, _Unanswered):
                    self._namespace.link.look_again()
                    pause = max(0.0, min(_AGAIN, end - time.monotonic()))
                if _readable([bell], pause) or time.monotonic() >= end:
                    return False

    def close(self) -> None:
        """Wake the waits under way, and close the idle connections."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
            for bell in self._bells:
                bell.send(b"!")
        for wires in idle.values():
            for wire in wires:
                wire.disconnect()

    @contextlib.contextmanager
    def _bell(self) -> Generator[socket.socket]:
        """A socket that becomes readable when the waiter is closed."""
        heard, rung = socket.socketpair()
        with heard, rung:
            with self._lock:
                if self._closed:
                    rung.send(b"!")
                self._bells.add(rung)
            try:
                yield heard
            finally:
                with self._lock:
                    self._bells.discard(rung)

    def _is_due(self, queues: Sequence[str], end: float, bell: socket.socket) -> bool:
        """Whether a job is due. If none is, block once and look again: when woken, or after a while."""
        self._namespace.contact()
        # In a cluster one command can't name the keys of two slots.
        groups = [(queue,) for queue in queues] if self._namespace.link.several_slots else [tuple(queues)]
        lines: list[_Line] = []
        try:
            for group in groups:
                lines.append(_Line(self._take(group, end), group))
            next_due = self._look(lines, bell)
            now = time.monotonic()
            if next_due == 0 or now >= end:
                return next_due == 0
            return self._block(lines, min(end - now, _LONGEST_BLOCK, next_due or _LONGEST_BLOCK), bell)
        finally:
            for line in lines:
                self._give_back(line)

    def _look(self, lines: Sequence[_Line], bell: socket.socket) -> float | None:
        """In how many seconds the next job is due: 0 when one is, None when none is known."""
        until = time.monotonic() + _MARGIN
        soonest: float | None = None
        for line in lines:
            calls = [self._namespace.call(queue, DUE, 1) for queue in line.queues]
            for by_source in (False, True):
                line.send([words_of(call, by_source=by_source) for call in calls])
                _await_one([line], until, bell)
                answers = line.read()
                if not any(isinstance(answer, NoScriptError) for answer in answers):
                    break
            for answer in answers:
                if _due(answer):
                    return 0.0
                later = cast("list[int]", answer)[0]
                if later >= 0:
                    seconds = max(later, 1) / 1000
                    soonest = seconds if soonest is None else min(soonest, seconds)
        return soonest

    def _block(self, lines: Sequence[_Line], seconds: float, bell: socket.socket) -> bool:
        """Return when a marker was popped, or after `seconds`. Whether a job is due then: that question is
        sent along, and the server answers it in the same breath.
        """
        until = time.monotonic() + seconds + _MARGIN
        for line in lines:
            markers = [self._namespace.key(queue, "wake") for queue in line.queues]
            looks = [words_of(self._namespace.call(queue, DUE, 1), by_source=False) for queue in line.queues]
            line.send([("BZPOPMIN", *markers, f"{max(seconds, 0.001):.3f}"), *looks])
        while waiting := [line for line in lines if line.owes]:
            for line in _await_one(waiting, until, bell):
                popped, *answers = line.read()
                if popped is not None:  # a marker may stand for a job that is due later
                    return any(_due(answer) for answer in answers)
        return False

    def _take(self, group: tuple[str, ...], end: float) -> Wire:
        with self._lock:
            idle = self._idle.get(group)
            wire = idle.pop() if idle else None
        if wire is not None:
            with contextlib.suppress(redis.RedisError, OSError):
                if not wire.can_read():
                    return wire
            wire.disconnect()
        key = self._namespace.key(group[0], "wake")
        return self._namespace.link.connect(key, within=max(_MARGIN, end - time.monotonic()))

    def _give_back(self, line: _Line) -> None:
        if line.usable:
            with self._lock:
                if not self._closed:
                    self._idle.setdefault(tuple(line.queues), []).append(line.wire)
                    return
        line.wire.disconnect()


def _due(answer: Reply) -> bool:
    """Whether what `DUE` gave holds a job's score behind the time until the next."""
    return isinstance(answer, list) and len(cast("list[int]", answer)) > 1


def _await_one(lines: Sequence[_Line], until: float, bell: socket.socket) -> list[_Line]:
    """Those of `lines` on which an answer has come, as soon as there is one. Raises `_Unanswered`."""
    readable = _readable([*(line.wire for line in lines), bell], until - time.monotonic())
    if not readable or bell in readable:
        raise _Unanswered
    return [line for line in lines if line.wire in readable]


def _readable(sources: Sequence[Wire | socket.socket], seconds: float) -> list[object]:
    """Those of `sources` that have something to read, as soon as one has; none when the time is over."""
    with selectors.PollSelector() as selector:  # select() can't take descriptors beyond 1023
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(max(0.0, seconds))]

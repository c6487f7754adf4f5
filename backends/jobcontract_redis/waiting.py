"""`Driver.wait`: blocked on the wake marker of each queue, on connections of its own."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import redis

from jobcontract.errors import StoreError
from jobcontract_redis.access import Wire
from jobcontract_redis.namespace import Namespace
from jobcontract_redis.scripts import DUE

_LONGEST_BLOCK = 2.0
"""Seconds after which the server must have answered at the latest: a half-open connection is noticed then."""
_MARGIN = 1.0
"""Seconds for that answer to arrive."""


class Waiter:
    """Waits for work in queues. Safe in threads: each wait under way has connections of its own."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._idle: dict[str, list[Wire]] = {}
        self._lock = threading.Lock()
        self._closed = False
        # Readable at both ends once it is closed: what wakes every select under way.
        self._bell, self._clapper = socket.socketpair()

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """See `Driver.wait`."""
        end = time.monotonic() + timeout.total_seconds()
        try:
            while not self._closed:
                next_due = self._next_due(queues)
                if next_due == 0:
                    return True
                left = end - time.monotonic()
                if left <= 0:
                    return False
                block = min(left, _LONGEST_BLOCK, next_due if next_due is not None else left)
                # Somebody popped a marker for us: look again, for it may be a job whose time has yet to come.
                self._block(queues, block, min(left, block + _MARGIN))
        except (StoreError, redis.RedisError, OSError):
            return False  # the next claim tells the caller what is wrong
        return False

    def close(self) -> None:
        """Wake the waits under way, and close the idle connections."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        self._clapper.close()
        for wires in idle.values():
            for wire in wires:
                wire.disconnect()

    def _next_due(self, queues: Sequence[str]) -> float | None:
        """In how many seconds the next job is due; 0 when one is, None when none is known."""
        calls = [self._namespace.call(queue, DUE, 1) for queue in queues]
        soonest: float | None = None
        for answer in self._namespace.contact().run(calls):
            later, *due = cast("list[int]", answer)
            if due:
                return 0
            if later >= 0:
                soonest = min(max(later, 1) / 1000, soonest if soonest is not None else later / 1000)
        return soonest

    def _block(self, queues: Sequence[str], seconds: float, deadline: float) -> None:
        """Return when a marker was popped, the time is over, or the driver is closed. Raises when a
        connection broke.
        """
        markers = [self._namespace.key(queue, "wake") for queue in queues]
        # In a cluster one command can't name the keys of two slots.
        groups = [[marker] for marker in markers] if self._namespace.link.several_slots else [markers]
        waiting: dict[Wire, str] = {}
        answered: list[Wire] = []
        try:
            for group in groups:
                wire = self._take(group[0])
                waiting[wire] = group[0]
                wire.send_packed_command(wire.pack_commands([("BZPOPMIN", *group, f"{seconds:.3f}")]))
            end = time.monotonic() + deadline
            while len(answered) < len(waiting):
                silent = [wire for wire in waiting if wire not in answered]
                watched: list[Wire | socket.socket] = [*silent, self._bell]
                readable = select.select(watched, [], [], max(0.0, end - time.monotonic()))[0]
                if not readable or self._bell in readable:
                    return
                for wire in cast("list[Wire]", readable):
                    found = wire.read_response()
                    answered.append(wire)
                    if found is not None:
                        return
        finally:
            for wire, marker in waiting.items():
                self._give_back(wire, marker, answered=wire in answered)

    def _take(self, marker: str) -> Wire:
        with self._lock:
            idle = self._idle.get(marker)
            wire = idle.pop() if idle else None
        if wire is not None:
            try:
                if not wire.can_read():
                    return wire
            except (redis.RedisError, OSError):
                pass
            wire.disconnect()
        return self._namespace.link.connect(marker)

    def _give_back(self, wire: Wire, marker: str, *, answered: bool) -> None:
        """Keep the connection, unless it still owes an answer: that would pop a marker while nobody waits."""
        if answered:
            with self._lock:
                if not self._closed:
                    self._idle.setdefault(marker, []).append(wire)
                    return
        wire.disconnect()

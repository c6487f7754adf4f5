"""Waiting for work: one thread and one connection per process, for however many threads wait.

The connection LISTENs, and while somebody waits for a queue it holds that queue's advisory lock, in shared
mode. A session that makes work due tries the lock, and sends NOTIFY only when it is held (``sql/wake.sql``).
For NOTIFY takes a lock of the whole cluster until its transaction is committed: with 16 writers that notify,
each commit waits for the one before it, and they got 0.3 to 0.4 of their rate; with the lock in front, and
nobody waiting, 0.7 to 0.9.

A transaction may have tried the lock just before it was taken, and commit after the waiter has looked for
work. So the waiter looks again, some times, in the next one and a half seconds. What commits later than that
is found when the wait times out, as everything is: `wait` is a hint.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import psycopg

from jobcontract.errors import StoreError
from jobcontract_postgres.arrays import texts
from jobcontract_postgres.capabilities import PRIORITIES
from jobcontract_postgres.connection import Connection
from jobcontract_postgres.low_water import LowWater, ranges
from jobcontract_postgres.statements import Statements, query, quote

_LOOKS = (0.1, 0.4, 1.0)
"""After how many seconds a waiter whose lock was just taken looks again, and again, and again."""
_POLL = 2.0
"""Seconds between two looks where LISTEN can't be relied on."""
_HEARTBEAT = 15.0
"""Seconds of silence after which a connection on which somebody waits is asked whether it still stands."""


class _Waiter:
    """One call of `wait`. The instants are those of `time.monotonic`."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.queues = frozenset(queues)
        self.due_at = math.inf
        """When there may be work, as far as is known."""
        self.look_at = -math.inf
        """When to ask the store."""
        self.looks: list[float] = []
        """The pauses before the looks after that one, the last first."""


class Listener:
    """Wakes waiting threads. Starts its thread, and connects, when the first one waits."""

    def __init__(
        self,
        connect: Callable[[float], Connection],
        may_listen: Callable[[Connection], bool],
        statements: Statements,
        low_water: LowWater,
        timeout: float,
    ) -> None:
        """`connect` makes a connection within some seconds; `may_listen` tells whether LISTEN works on it."""
        self._connect = connect
        self._may_listen = may_listen
        self._statements = statements
        self._low_water = low_water
        self._timeout = timeout
        self._changed = threading.Condition()
        self._waiting: set[_Waiter] = set()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._ours, self._theirs = socket.socketpair()
        for end in (self._ours, self._theirs):
            end.setblocking(False)
        # What follows belongs to the thread.
        self._connection: Connection | None = None
        self._listens = False
        self._watched: set[str] = set()
        self._heard: list[str] = []
        self._reported: dict[frozenset[str], tuple[str, datetime]] = {}
        self._in_vain: set[frozenset[str]] = set()

    def claimed_nothing(self, queues: Sequence[str]) -> None:
        """A claim of `queues` came back empty: see `_due_in`. Does not block."""
        self._in_vain.add(frozenset(queues))

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """See `Driver.wait`."""
        deadline = time.monotonic() + timeout.total_seconds()
        waiter = _Waiter(queues)
        with self._changed:
            if self._closed:
                return True
            self._waiting.add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jobcontract-listen", daemon=True)
                self._thread.start()
            self._rouse()
            try:
                while True:
                    now = time.monotonic()
                    if waiter.due_at <= now:
                        return True
                    if deadline <= now:
                        return False
                    self._changed.wait(min(deadline, waiter.due_at) - now)
            finally:
                self._waiting.discard(waiter)

    def close(self) -> None:
        """Wake everybody, and let the thread end. Does not wait for it: it may be in a statement."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            if self._thread is None:
                self._close_sockets()
                return
            self._rouse()
        self._wake(self._waiting)

    def _wake(self, waiters: Iterable[_Waiter]) -> None:
        with self._changed:
            for waiter in list(waiters):
                waiter.due_at = -math.inf
            self._changed.notify_all()

    def _rouse(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: the thread has reason enough to look
            self._ours.send(b"!")

    # ------------------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._closed:
            now = time.monotonic()
            with self._changed:
                looking = [waiter for waiter in self._waiting if waiter.look_at <= now]
                next_look = min((waiter.look_at for waiter in self._waiting), default=math.inf)
                for waiter in looking:
                    waiter.look_at = now + waiter.looks.pop() if waiter.looks else math.inf
            try:
                if looking:
                    self._look(looking)
                else:
                    self._sleep(next_look - now)
                while self._heard:
                    self._pass_on(self._heard.pop())
            except (psycopg.Error, StoreError):
                self._disconnect()
        self._disconnect()
        self._close_sockets()

    def _look(self, waiters: Sequence[_Waiter]) -> None:
        """Whether there is work for `waiters`, once they can't miss what comes later."""
        connection = self._connection or self._open()
        connection.expire_in(self._timeout)
        unwatched = {queue for waiter in waiters for queue in waiter.queues} - self._watched
        if not self._listens:
            for waiter in waiters:
                waiter.look_at = time.monotonic() + _POLL
        elif unwatched:
            connection.execute(query(self._statements.watch), (texts(sorted(unwatched)),), prepare=True)
            self._watched |= unwatched
            with self._changed:
                for waiter in waiters:
                    *waiter.looks, pause = reversed(_LOOKS)
                    waiter.look_at = time.monotonic() + pause
        for queues in {waiter.queues for waiter in waiters}:
            due_in = self._due_in(connection, queues)
            due_at = time.monotonic() + due_in  # not the other way round: better late than in vain
            with self._changed:
                for waiter in waiters:
                    if waiter.queues == queues:
                        waiter.due_at = min(waiter.due_at, due_at)
                self._changed.notify_all()

    def _due_in(self, connection: Connection, queues: frozenset[str]) -> float:
        """In how many seconds a job of `queues` is due; not positive is now, infinity is never.

        A job that was reported as due, and is still the first after a claim in vain, is one that claims pass
        over: somebody has locked its row. It is not reported again, or its caller would never pause.
        """
        names = sorted(queues)
        if self._low_water.may_survey(names):
            probes = self._low_water.survey(names, PRIORITIES)
        else:
            probes = self._low_water.from_marks(names, PRIORITIES)
        rows = connection.execute(
            query(self._statements.next_due), ranges(probes), prepare=True, binary=True
        ).fetchall()
        if not rows:
            return math.inf
        ((due_in, job_id, run_at),) = rows
        if due_in > 0:
            return float(due_in)
        if self._reported.get(queues) == (job_id, run_at) and queues in self._in_vain:
            return math.inf
        self._reported[queues] = (job_id, run_at)
        self._in_vain.discard(queues)
        return 0.0

    def _sleep(self, longest: float) -> None:
        """Until a waiter comes, a notification does, `longest` is over, or the connection was silent for too
        long.
        """
        connection = self._connection
        poll = select.poll()
        poll.register(self._theirs, select.POLLIN)
        if connection is not None:
            poll.register(connection.pgconn.socket, select.POLLIN)
        beat = _HEARTBEAT if self._waiting else math.inf
        seconds = min(longest, beat)
        ready = {
            descriptor for descriptor, _ in poll.poll(None if math.isinf(seconds) else max(0, seconds) * 1000)
        }
        if self._theirs.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                while self._theirs.recv(4096):
                    pass
        if connection is None:
            return
        if connection.pgconn.socket in ready:
            connection.pgconn.consume_input()
            while notification := connection.pgconn.notifies():
                self._heard.append(notification.extra.decode())
        elif not ready and beat < longest:
            connection.expire_in(self._timeout)
            connection.execute("SELECT 1")

    def _pass_on(self, queue: str) -> None:
        """A notification: there is work in `queue`."""
        with self._changed:
            self._wake(waiter for waiter in self._waiting if queue in waiter.queues)
        # Nobody waits for this queue now. While its workers are busy, nobody shall notify.
        if queue in self._watched and self._connection is not None:
            self._watched.discard(queue)
            self._connection.expire_in(self._timeout)
            self._connection.execute(query(self._statements.unwatch), (texts([queue]),), prepare=True)

    def _open(self) -> Connection:
        connection = self._connect(self._timeout)
        connection.expire_in(self._timeout)
        self._connection = connection
        self._watched.clear()
        self._listens = self._may_listen(connection)
        if self._listens:
            # For notifications that come along with the answer to a statement.
            connection.add_notify_handler(lambda notify: self._heard.append(notify.payload))
            connection.execute(query(f"LISTEN {quote(self._statements.channel)}"))
        return connection

    def _disconnect(self) -> None:
        """Drop the connection. If there was one, those who wait look for themselves: that is how they learn
        of a restart.
        """
        if self._connection is None:
            return
        self._connection.abandon()
        self._connection = None
        self._heard.clear()
        self._wake(self._waiting)

    def _close_sockets(self) -> None:
        self._ours.close()
        self._theirs.close()

"""Connections: how one is made, the deadline it keeps, and the pool.

Why not psycopg_pool: it answers a wrong password, a full server and a missing host alike, with a timeout
after the whole wait; it hands out connections that a restart has broken, or pays a round trip for each to
find out; and it brings four threads, which a fork does not keep. What is needed here is small.
"""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from jobcontract.errors import StoreUnavailable
from jobcontract_postgres.failures import DeadlineExceeded

Result = TypeVar("Result")


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose every operation ends by `deadline`, also when the server is stopped or the network
    is silent.

    A server-side timeout can't do that: it fires in the very process that does not answer.
    """

    deadline: float = math.inf
    """By `time.monotonic`."""
    timeout: float = math.inf
    """What the deadline was made from, in seconds; for the error's sentence."""
    born: float = 0.0
    """When it was made, by `time.monotonic`."""
    is_set_up: bool = False
    """Whether its session was made ready for use."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # Any: psycopg's own
        super().__init__(*arguments, **options)
        self._kept: dict[bytes, psycopg.Cursor[tuple[Any, ...]]] = {}

    def kept_cursor(self, statement: bytes) -> psycopg.Cursor[tuple[Any, ...]]:
        """A cursor that only ever runs `statement`, always the same object.

        It remembers how the parameters are written, which is a fifth of psycopg's time for a small statement.
        It also keeps the rows of its last run: not for a statement that may have many.
        """
        cursor = self._kept.get(statement)
        if cursor is None:
            cursor = self._kept[statement] = self.cursor(binary=True)
        return cursor

    def expire_in(self, seconds: float) -> None:
        """Set the deadline that holds from now on."""
        self.timeout = seconds
        self.deadline = time.monotonic() + seconds

    def wait(self, gen: PQGen[Result], *arguments: Any, **options: Any) -> Result:
        """psycopg's one place that blocks on the socket of an open connection."""
        return super().wait(self._until_deadline(gen), *arguments, **options)

    def _until_deadline(self, gen: PQGen[Result]) -> PQGen[Result]:
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted  # psycopg sends "nothing" each tenth of a second
                if not ready and time.monotonic() >= self.deadline:
                    raise DeadlineExceeded(f"did not answer within {self.timeout:.3g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: Result = end.value
            return result

    def is_at_rest(self) -> bool:
        """Whether it is open, and neither in a transaction nor in the middle of a statement."""
        return not self.closed and self.pgconn.transaction_status == TransactionStatus.IDLE

    def is_quiet(self) -> bool:
        """Whether the server has kept the connection open, without a round trip.

        Nothing is expected on an idle connection, so a readable socket is the server's farewell.
        """
        poll = select.poll()
        try:
            poll.register(self.pgconn.socket, select.POLLIN)
        except psycopg.Error:  # closed: it has no socket
            return False
        return not poll.poll(0)

    def abandon(self) -> None:
        """Close without waiting for the server; ask it, behind the caller's back, to stop what it is still
        doing.

        Otherwise each repeated call would leave one more server process behind that waits for the same lock.
        """
        if self.closed:
            return
        if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            threading.Thread(target=self._cancel_and_close, name="jobcontract-cancel", daemon=True).start()
        else:
            self.close()

    def _cancel_and_close(self) -> None:
        try:
            self.cancel_safe(timeout=5.0)
        except psycopg.Error:
            pass  # best effort: the server may be the very thing that does not answer
        finally:
            self.close()


def within(seconds: float, make: Callable[[], Connection]) -> Connection:
    """`make()`, or `DeadlineExceeded` after `seconds`.

    In a thread of its own, for libpq bounds each address by itself (and the look-up of a name not at all), so
    that a name with three silent addresses would take three times as long.
    """
    future: Future[Connection] = Future()

    def run() -> None:
        try:
            connection = make()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(connection)

    threading.Thread(target=run, name="jobcontract-connect", daemon=True).start()
    try:
        return future.result(timeout=seconds)
    except TimeoutError:
        future.add_done_callback(_close_late)
        raise DeadlineExceeded(f"did not answer within {seconds:.3g} s") from None


def _close_late(future: Future[Connection]) -> None:
    if future.exception() is None:
        future.result().close()


class Pool:
    """At most `size` connections, made on demand by the thread that needs one, the warmest lent first.

    Safe in threads. Not used across a fork: `Backend` opens a driver of its own in each process.
    """

    def __init__(self, connect: Callable[[float], Connection], *, size: int, max_lifetime: float) -> None:
        self._connect = connect
        self._size = size
        self._max_lifetime = max_lifetime
        self._closed = False
        self._free = threading.BoundedSemaphore(size)
        self._idle: list[Connection] = []  # append and pop of a list are atomic

    def take(self, seconds: float) -> Connection:
        """A connection whose deadline is `seconds` from now, to be handed to `give_back`.

        Raises `StoreUnavailable` when none comes free in time, and whatever connecting raises.
        """
        deadline = time.monotonic() + seconds
        if not self._free.acquire(timeout=seconds):
            raise StoreUnavailable(
                f"all {self._size} connections stayed in use for {seconds:g} s; "
                "raise pool_size or lower the concurrency",
                nothing_written=True,
            )
        try:
            connection = self._idle_one() or self._connect(max(0.001, deadline - time.monotonic()))
        except BaseException:
            self._free.release()
            raise
        connection.timeout, connection.deadline = seconds, deadline
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep `connection` for the next, unless something befell it."""
        if connection.is_at_rest() and not self._closed:
            self._idle.append(connection)
        else:
            lost = connection.broken or connection.pgconn.transaction_status == TransactionStatus.ACTIVE
            connection.abandon()
            if lost:  # what befell this one has befallen the idle ones, which may not know it yet
                self._drop_idle()
        self._free.release()

    def _idle_one(self) -> Connection | None:
        if self._closed:
            raise StoreUnavailable("this backend is closed")
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.is_quiet() and time.monotonic() - connection.born < self._max_lifetime:
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close the idle connections; those that are lent close when they come back."""
        self._closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                break

"""The verbs of the contract, each one transaction on SQLite. The statements are in sql/."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

from jobcontract.contract import (
    LOST,
    Capabilities,
    ClaimedRecord,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    State,
    Verdict,
)
from jobcontract.errors import StoreClosed, StoreError
from jobcontract.side_doors import Steps
from jobcontract_sqlite import statements
from jobcontract_sqlite.capabilities import capabilities_of
from jobcontract_sqlite.connections import Connections
from jobcontract_sqlite.doors import OperatorDoors, bury, forget
from jobcontract_sqlite.instants import from_microseconds, to_length
from jobcontract_sqlite.moving import MovingDoors, gate_of
from jobcontract_sqlite.options import SQLiteOptions
from jobcontract_sqlite.registering import register_steps
from jobcontract_sqlite.rows import (
    Row,
    claimed_records,
    leases_json,
    only_column,
    verdicts_of,
)

Result = TypeVar("Result")

_RETAINED = (State.DONE, State.CANCELLED)
_WATCH_INTERVAL = timedelta(milliseconds=50)


class SQLiteDriver(OperatorDoors, MovingDoors):
    """The verbs and the operators' doors: a store in memory, or the base of the one in a file.

    Every call is bounded by the busy timeout, which begins when it asks for the write lock.
    """

    def __init__(self, connections: Connections, options: SQLiteOptions) -> None:
        super().__init__(connections)
        self._options = options
        self._capabilities: Capabilities | None = None
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """As `Driver.capabilities`."""
        if self._capabilities is None:
            self._capabilities = capabilities_of(self, self.connections, self._options)
        return self._capabilities

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        """As `Driver.register`."""
        with self.connections.write() as connection:
            registrations = _drive(connection, register_steps(records))
        self.wake_waiters()
        return registrations

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        """As `Driver.claim`."""
        parameters = {"queues": json.dumps(queues), "limit": limit, "lease": to_length(lease)}
        with self.connections.write() as connection:
            rows = connection.execute(statements.CLAIM, parameters).fetchall()
            if not rows and not gate_of(connection).claims:
                raise StoreClosed(
                    "the jobs of this store are moving to another one, and can't be claimed here now; "
                    "try again"
                )
        return claimed_records(rows)

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        """As `Driver.complete`."""
        with self.connections.write() as connection:
            done = only_column(connection.execute(statements.COMPLETE, {"leases": leases_json(leases)}))
            connection.execute(statements.LEAVE, {"ids": json.dumps(done)})
        applied = set(done)
        return [Verdict(True, State.DONE) if lease.job_id in applied else LOST for lease in leases]

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        """As `Driver.fail`."""
        with self.connections.write() as connection:
            verdicts = [_fail(connection, failure) for failure in failures]
            dead = [
                failure.lease.job_id
                for failure, verdict in zip(failures, verdicts, strict=True)
                if verdict.state is State.DEAD
            ]
            if dead:
                connection.execute(statements.LEAVE, {"ids": json.dumps(dead)})
        self.wake_waiters()
        return verdicts

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        """As `Driver.extend`."""
        parameters = {"leases": leases_json(leases), "lease": to_length(lease)}
        with self.connections.write() as connection:
            rows = connection.execute(statements.EXTEND, parameters).fetchall()
        return verdicts_of(leases, State.RUNNING, rows)

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        """As `Driver.release`."""
        parameters = {"leases": leases_json(leases), "delay": to_length(delay)}
        with self.connections.write() as connection:
            rows = connection.execute(statements.RELEASE, parameters).fetchall()
        self.wake_waiters()
        return verdicts_of(leases, State.READY, rows)

    def rescue(self, limit: int) -> Rescued:
        """As `Driver.rescue`. Also forgets, at most `limit` a time, the done and cancelled jobs that are past
        the retention.
        """
        with self.connections.write() as connection:
            rows = connection.execute(statements.RESCUE, {"limit": limit}).fetchall()
            spent = [job_id for job_id, is_spent in rows if is_spent]
            dead = bury(connection, spent, State.DEAD) if spent else 0
            if self._options.retention:
                forget(connection, self._options.retention, _RETAINED, limit)
        if rows:
            self.wake_waiters()
        return Rescued(ready=len(rows) - dead, dead=dead)

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """As `Driver.wait`. Looks for due jobs once, and again when the store has changed or the next job
        falls due.

        SQLite tells no other process of a commit. Whether there was one is asked of the file 20 times a
        second, without reading a table.
        """
        names = json.dumps(queues)
        deadline = time.monotonic() + timeout.total_seconds()
        seen: tuple[int, tuple[int, int]] | None = None
        due_at = float("inf")
        while not self._closed:
            now = time.monotonic()
            wakes = self._wakes
            try:
                version = wakes, self.connections.version()
                if version != seen or now >= due_at:
                    due_at = now + self._due_in(names, deadline - now)
                    if due_at <= now:
                        return True
                    seen = version
            except StoreError:
                # The caller's next claim meets it too, and is free to raise. Here: look again soon.
                seen, due_at = None, float("inf")
            if now >= deadline:
                return False
            pause = min(now + _WATCH_INTERVAL.total_seconds(), deadline, due_at) - now
            self._sleep(pause, wakes)
        return False

    def close(self) -> None:
        """As `Driver.close`."""
        with self._woken:
            self._closed = True
            self._woken.notify_all()
        self.connections.close()

    def _sleep(self, seconds: float, wakes: int) -> None:
        """For `seconds`, or until the driver was woken more often than `wakes` times."""
        with self._woken:
            self._woken.wait_for(lambda: self._closed or self._wakes != wakes, seconds)

    def _due_in(self, queues: str, patience: float) -> float:
        """In how many seconds the next job of `queues` is due; not positive is now, infinity is never."""
        with self.connections.read(timedelta(seconds=max(patience, 0))) as connection:
            (microseconds,) = connection.execute(statements.NEXT_DUE, {"queues": queues}).fetchone()
        return float("inf") if microseconds is None else microseconds / 1_000_000


def _fail(connection: sqlite3.Connection, failure: Failure) -> Verdict:
    """One failure. When the job is dead by it, it is still in the live table too."""
    parameters = {
        "id": failure.lease.job_id,
        "token": failure.lease.token,
        "error": failure.error,
        "retry_in": to_length(failure.retry_in),
        "permanent": failure.permanent,
    }
    if not failure.permanent:
        retried = connection.execute(statements.FAIL_RETRY, parameters).fetchone()
        if retried is not None:
            return Verdict(True, State.READY, from_microseconds(retried[0]))
    if connection.execute(statements.FAIL_DEAD, parameters).fetchone() is not None:
        return Verdict(True, State.DEAD)
    return LOST


def _drive(connection: sqlite3.Connection, steps: Steps[Result]) -> Result:
    """Run `steps` on a connection of ours."""
    try:
        statement = next(steps)
        while True:
            rows: list[Row] = connection.execute(statement.sql, tuple(statement.parameters)).fetchall()
            statement = steps.send(rows)
    except StopIteration as stop:
        result: Result = stop.value
        return result

"""The verbs of the contract, each one transaction on SQLite. The statements are in sql/."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from jobcontract.contract import (
    LOST,
    ClaimedRecord,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    State,
    Steps,
    Verdict,
)
from jobcontract.contract import Capabilities
from jobcontract.errors import StoreError
from jobcontract_sqlite import statements
from jobcontract_sqlite.capabilities import capabilities_of
from jobcontract_sqlite.connections import Connections
from jobcontract_sqlite.instants import from_microseconds, length
from jobcontract_sqlite.options import SQLiteOptions
from jobcontract_sqlite.registering import register_steps

Result = TypeVar("Result")
Row = tuple[Any, ...]  # Any: SQLite's columns; STRICT tables hold their types

_WATCH_INTERVAL = timedelta(milliseconds=50)


class SQLiteDriver:
    """The verbs and side doors, over `connections`: a store in memory, or the base of the one in a file."""

    def __init__(self, connections: Connections, options: SQLiteOptions) -> None:
        self._connections = connections
        self._options = options
        self._capabilities: Capabilities | None = None
        # Wakes the `wait`s of this driver object at once; those of other processes see the file change.
        self._woken = threading.Condition()
        self._wakes = 0
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """As `Driver.capabilities`."""
        if self._capabilities is None:
            self._capabilities = capabilities_of(self, self._connections, self._options)
        return self._capabilities

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        """As `Driver.register`."""
        with self._connections.write() as connection:
            registrations = _drive(connection, register_steps(records))
        self._wake()
        return registrations

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        """As `Driver.claim`."""
        parameters = {
            "queues": json.dumps(queues),
            "limit": limit,
            "lease": length(lease),
            "nonce": secrets.token_hex(8),
        }
        with self._connections.write() as connection:
            rows = connection.execute(statements.CLAIM, parameters).fetchall()
        # RETURNING promises no order.
        rows.sort(key=lambda row: (-row[6], row[7], row[0]))
        return [_claimed(row) for row in rows]

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        """As `Driver.complete`."""
        with self._connections.write() as connection:
            done = _column(connection.execute(statements.COMPLETE, {"leases": _leases(leases)}))
            connection.execute(statements.LEAVE, {"ids": json.dumps(done)})
        applied = set(done)
        return [Verdict(True, State.DONE) if lease.job_id in applied else LOST for lease in leases]

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        """As `Driver.fail`."""
        document = json.dumps(
            [
                (
                    *failure.lease[:1],
                    failure.lease.token,
                    failure.error,
                    length(failure.retry_in),
                    failure.permanent,
                )
                for failure in failures
            ]
        )
        with self._connections.write() as connection:
            dead = _column(connection.execute(statements.FAIL_DEAD, {"failures": document}))
            connection.execute(statements.LEAVE, {"ids": json.dumps(dead)})
            retried = connection.execute(statements.FAIL_RETRY, {"failures": document}).fetchall()
        self._wake()
        verdicts = {job_id: Verdict(True, State.DEAD) for job_id in dead}
        verdicts |= {
            job_id: Verdict(True, State.READY, from_microseconds(run_at)) for job_id, run_at in retried
        }
        return [verdicts.get(failure.lease.job_id, LOST) for failure in failures]

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        """As `Driver.extend`."""
        with self._connections.write() as connection:
            rows = connection.execute(
                statements.EXTEND, {"leases": _leases(leases), "lease": length(lease)}
            ).fetchall()
        return _verdicts(leases, State.RUNNING, rows)

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        """As `Driver.release`."""
        with self._connections.write() as connection:
            rows = connection.execute(
                statements.RELEASE, {"leases": _leases(leases), "delay": length(delay)}
            ).fetchall()
        self._wake()
        return _verdicts(leases, State.READY, rows)

    def rescue(self, limit: int) -> Rescued:
        """As `Driver.rescue`."""
        with self._connections.write() as connection:
            rows = connection.execute(statements.RESCUE, {"limit": limit}).fetchall()
            dead = _bury(connection, [job_id for job_id, spent in rows if spent], State.DEAD) if rows else []
        self._wake()
        return Rescued(ready=len(rows) - len(dead), dead=len(dead))

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """As `Driver.wait`: looks for due jobs once, and again whenever the file has changed or the next job falls due."""
        names = json.dumps(queues)
        deadline = time.monotonic() + timeout.total_seconds()
        seen: tuple[int, tuple[int, int]] | None = None
        due_at: float | None = None
        while not self._closed:
            try:
                version = self._wakes, self._connections.version()
                if version != seen or (due_at is not None and time.monotonic() >= due_at):
                    seen, due_in = version, self._due_in(names)
                    if due_in is not None and due_in <= 0:
                        return True
                    due_at = None if due_in is None else time.monotonic() + due_in
            except StoreError:
                pass  # the caller's next claim meets it, and may raise it
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            pause = min(left, _WATCH_INTERVAL.total_seconds())
            if due_at is not None:
                pause = min(pause, max(due_at - time.monotonic(), 0.001))
            with self._woken:
                self._woken.wait_for(
                    lambda: self._closed or (seen is not None and self._wakes != seen[0]), pause
                )
        return False

    def close(self) -> None:
        """As `Driver.close`."""
        with self._woken:
            self._closed = True
            self._woken.notify_all()
        self._connections.close()

    def _due_in(self, queues: str) -> float | None:
        with self._connections.read() as connection:
            (microseconds,) = connection.execute(statements.NEXT_DUE, {"queues": queues}).fetchone()
        return None if microseconds is None else microseconds / 1_000_000

    def _wake(self) -> None:
        with self._woken:
            self._wakes += 1
            self._woken.notify_all()


def _drive(connection: sqlite3.Connection, steps: Steps[Result]) -> Result:
    rows: list[Row] = []
    try:
        statement = next(steps)
        while True:
            rows = connection.execute(statement.sql, tuple(statement.parameters)).fetchall()
            statement = steps.send(rows)
    except StopIteration as stop:
        result: Result = stop.value
        return result


def _bury(connection: sqlite3.Connection, job_ids: Sequence[str], state: State) -> list[str]:
    """Ready jobs of `job_ids` to the dead table, as `state`. Which they were."""
    buried = _column(connection.execute(statements.BURY, {"ids": json.dumps(job_ids), "state": state}))
    connection.execute(statements.LEAVE, {"ids": json.dumps(buried)})
    return buried


def _claimed(row: Row) -> ClaimedRecord:
    (
        job_id,
        queue,
        token,
        attempt,
        expires_at,
        kind,
        priority,
        run_at,
        max_attempts,
        key,
        input_ref,
        headers,
    ) = row
    return ClaimedRecord(
        Lease(job_id, queue, token, attempt, from_microseconds(expires_at)),
        JobRecord(
            job_id,
            kind,
            queue,
            priority,
            from_microseconds(run_at),
            max_attempts,
            key,
            None,
            input_ref,
            headers,
        ),
    )


def _leases(leases: Iterable[Lease]) -> str:
    return json.dumps([(lease.job_id, lease.token) for lease in leases])


def _verdicts(leases: Iterable[Lease], state: State, rows: Iterable[Row]) -> list[Verdict]:
    instants = {job_id: Verdict(True, state, from_microseconds(at)) for job_id, at in rows}
    return [instants.get(lease.job_id, LOST) for lease in leases]


def _column(cursor: sqlite3.Cursor) -> list[str]:
    return [value for (value,) in cursor.fetchall()]

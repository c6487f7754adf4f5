"""The side door `Movable`: jobs that leave for another store, and jobs that come from one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

from jobcontract.contract import JobRecord, Registration, State
from jobcontract.errors import StoreError
from jobcontract.side_doors import Arrival, Gate, MovedJob, Statement
from jobcontract_sqlite import statements
from jobcontract_sqlite.connections import Connections
from jobcontract_sqlite.instants import from_microseconds, to_microseconds
from jobcontract_sqlite.registering import known_steps
from jobcontract_sqlite.rows import Row, only_column

_HIDDEN = "WHERE job.state = 'moving' AND job.was <> 'moving' ORDER BY job.id LIMIT :limit"
_BURIED = "WHERE job.state = 'moved' AND job.id < :below ORDER BY job.id DESC LIMIT :limit"
_THESE = "WHERE job.id IN (SELECT value FROM json_each(:ids))"


class MovingDoors:
    """`Gated`, `MovesOut` and `MovesIn`. Every registration holds SQLite's one write lock, so that none is
    under way once the gate is set.
    """

    connections: Connections
    wake_waiters: Callable[[], None]

    # -- Gated -----------------------------------------------------------------------------------------

    def gate(self) -> Gate:
        """As `Gated.gate`."""
        with self.connections.read() as connection:
            return gate_of(connection)

    def set_gate(self, gate: Gate) -> Gate:
        """As `Gated.set_gate`."""
        with self.connections.write() as connection:
            connection.execute(statements.GATE_SET, gate._asdict())
            found = gate_of(connection)
        self.wake_waiters()
        return found

    def open_registrations(self) -> frozenset[str]:
        """As `Gated.open_registrations`: none."""
        return frozenset()

    # -- MovesOut --------------------------------------------------------------------------------------

    def hide(self, epoch: int, limit: int) -> list[MovedJob]:
        """As `MovesOut.hide`."""
        with self._step(epoch) as connection:
            ids = only_column(connection.execute(statements.HIDE, {"limit": limit}))
            connection.execute(statements.LEAVE, {"ids": json.dumps(ids)})
            if len(ids) < limit:
                dead = only_column(connection.execute(statements.HIDE_DEAD, {"limit": limit - len(ids)}))
                connection.execute(statements.REQUEUE_LEAVE, {"ids": json.dumps(dead)})
                ids += dead
            return _moved_jobs(connection, _THESE, {"ids": json.dumps(ids)})

    def hidden(self, limit: int) -> list[MovedJob]:
        """As `MovesOut.hidden`."""
        with self.connections.read() as connection:
            return _moved_jobs(connection, _HIDDEN, {"limit": limit})

    def reveal(self, epoch: int, limit: int) -> int:
        """As `MovesOut.reveal`."""
        with self._step(epoch) as connection:
            ids = only_column(connection.execute(statements.REVEAL_READY, {"limit": limit}))
            if len(ids) < limit:
                ids += only_column(connection.execute(statements.REVEAL_DEAD, {"limit": limit - len(ids)}))
            connection.execute(statements.MOVING_LEAVE, {"ids": json.dumps(ids)})
        self.wake_waiters()
        return len(ids)

    def bury(self, epoch: int, job_ids: Sequence[str]) -> int:
        """As `MovesOut.bury`."""
        with self._step(epoch) as connection:
            return connection.execute(statements.MOVE_BURY, {"ids": json.dumps(job_ids)}).rowcount

    def buried(self, below: str, limit: int) -> list[MovedJob]:
        """As `MovesOut.buried`."""
        with self.connections.read() as connection:
            return _moved_jobs(connection, _BURIED, {"below": below, "limit": limit})

    def keyed(self, after: str, limit: int) -> list[MovedJob]:
        """As `MovesOut.keyed`."""
        with self.connections.read() as connection:
            while True:
                page = connection.execute(statements.KEYED, {"after": after, "limit": limit}).fetchall()
                if not page:
                    return []
                ids = json.dumps([job_id for job_id, _ in page])
                rows = connection.execute(statements.KEYED_JOBS, {"ids": ids}).fetchall()
                if rows:
                    fingerprints = dict(page)
                    return [_moved_job((*row[:7], fingerprints[row[0]], *row[7:])) for row in rows]
                after = page[-1][0]  # nothing but keys of tombstones

    def recall(self, records: Sequence[JobRecord]) -> list[Registration | None]:
        """As `MovesOut.recall`."""
        with self.connections.read() as connection:
            statement, answer = known_steps(records)
            return answer(_run(connection, statement))

    def forget_buried(self, epoch: int, limit: int) -> int:
        """As `MovesOut.forget_buried`."""
        with self._step(epoch) as connection:
            gone: list[Row] = connection.execute(statements.FORGET_BURIED, {"limit": limit}).fetchall()
            connection.execute(statements.PRUNE_KEYS, {"forgotten": json.dumps(gone)})
        return len(gone)

    # -- MovesIn ---------------------------------------------------------------------------------------

    def admit(self, epoch: int, jobs: Sequence[MovedJob]) -> list[Arrival]:
        """As `MovesIn.admit`."""
        with self._step(epoch) as connection:
            known = set(only_column(connection.execute(statements.ADMIT_KNOWN, {"jobs": _document(jobs)})))
            fresh = [job for job in jobs if job.record.id not in known]
            document = {"jobs": _document(fresh)}
            arrived = [job.record.id for job in fresh if job.state is not State.MOVING]
            connection.execute(statements.MOVING_LEAVE, {"ids": json.dumps(arrived)})
            for statement in (
                statements.ADMIT_KEYS,
                statements.ADMIT_READY,
                statements.ADMIT_DEAD,
                statements.ADMIT_DONE,
                statements.ADMIT_MOVING,
            ):
                connection.execute(statement, document)
            holders = dict(connection.execute(statements.ADMIT_HOLDERS, {"jobs": _document(jobs)}).fetchall())
        self.wake_waiters()
        return [Arrival(job.record.id not in known, holders.get(job.record.id)) for job in jobs]

    @contextmanager
    def _step(self, epoch: int) -> Generator[sqlite3.Connection]:
        """A write transaction of the step `epoch`."""
        with self.connections.write() as connection:
            now = gate_of(connection).epoch
            if now != epoch:
                raise StoreError(
                    f"step {epoch} of the migration is over: this store is at step {now}, "
                    "and nothing was changed"
                )
            yield connection


def gate_of(connection: sqlite3.Connection) -> Gate:
    """The gate, as `connection` sees it."""
    epoch, intake, claims = connection.execute(statements.GATE).fetchone()
    return Gate(epoch, intake=bool(intake), claims=bool(claims))


def _run(connection: sqlite3.Connection, statement: Statement) -> list[Row]:
    return connection.execute(statement.sql, tuple(statement.parameters)).fetchall()


def _moved_jobs(connection: sqlite3.Connection, which: str, parameters: dict[str, object]) -> list[MovedJob]:
    rows = connection.execute(statements.JOBS_LEAVING + which, parameters).fetchall()
    return [_moved_job(row) for row in rows]


def _moved_job(row: Row) -> MovedJob:
    (job_id, kind, queue, priority, run_at, max_attempts, key, fingerprint, input_ref, headers, *rest) = row
    state, attempt, refunded, created_at, finished_at, last_error = rest
    return MovedJob(
        record=JobRecord(
            job_id,
            kind,
            queue,
            priority,
            from_microseconds(run_at),
            max_attempts,
            key,
            None if fingerprint is None else bytes.fromhex(fingerprint),
            input_ref,
            headers,
        ),
        state=State(state),
        attempt=attempt,
        refunded=refunded,
        created_at=from_microseconds(created_at),
        finished_at=None if finished_at is None else from_microseconds(finished_at),
        last_error=last_error,
    )


def _document(jobs: Iterable[MovedJob]) -> str:
    return json.dumps([_to_json(job) for job in jobs], ensure_ascii=False)


def _to_json(job: MovedJob) -> dict[str, object]:
    record = job.record
    assert record.run_at is not None  # a store always knows it
    return {
        **record._asdict(),
        "run_at": to_microseconds(record.run_at),
        "fingerprint": None if record.fingerprint is None else record.fingerprint.hex(),
        "state": job.state.value,
        "attempt": job.attempt,
        "refunded": job.refunded,
        "created_at": to_microseconds(job.created_at),
        "finished_at": None if job.finished_at is None else to_microseconds(job.finished_at),
        "last_error": job.last_error,
    }

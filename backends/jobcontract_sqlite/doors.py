"""The side doors: look, count, cancel, requeue, prune, pause, leave notes."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Sequence
from datetime import timedelta

from jobcontract.contract import State
from jobcontract.side_doors import COUNTED_UP_TO, NotesRead, Page, QueueStats, StoredJob
from jobcontract_sqlite import statements
from jobcontract_sqlite.connections import Connections
from jobcontract_sqlite.instants import from_microseconds, to_length
from jobcontract_sqlite.lookup import select_job, select_page
from jobcontract_sqlite.rows import LATELY, only_column, queue_stats, states_of, stored_job


class OperatorDoors:
    """`Lookup`, `Statistics`, `Cancellation`, `Requeue`, `Pruning`, `Pausing`, `Notes`, on `connections`."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        # Wakes the `wait`s of this driver object at once; those of other processes see the file change.
        self._woken = threading.Condition()
        self._wakes = 0

    def get(self, job_id: str) -> StoredJob | None:
        """As `Lookup.get`."""
        with self.connections.read() as connection:
            row = connection.execute(select_job(), {"id": job_id}).fetchone()
        return None if row is None else stored_job(row)

    def jobs(self, page: Page) -> list[StoredJob]:
        """As `Lookup.jobs`."""
        sql, parameters = select_page(page)
        with self.connections.read() as connection:
            rows = connection.execute(sql, parameters).fetchall()
        return [stored_job(row) for row in rows]

    def stats(self) -> list[QueueStats]:
        """As `Statistics.stats`. Counts by reading ranges of indexes, to `COUNTED_UP_TO`."""
        counted = {"most": COUNTED_UP_TO + 1, "lately": LATELY // timedelta(microseconds=1)}
        with self.connections.read() as connection:
            rows = connection.execute(statements.STATS, counted).fetchall()
        return [queue_stats(row) for row in rows]

    def cancel(self, job_ids: Sequence[str]) -> list[State | None]:
        """As `Cancellation.cancel`."""
        with self.connections.write() as connection:
            bury(connection, job_ids, State.CANCELLED)
            return _states(connection, job_ids)

    def requeue(self, job_ids: Sequence[str]) -> list[State | None]:
        """As `Requeue.requeue`."""
        ids = json.dumps(job_ids)
        with self.connections.write() as connection:
            connection.execute(statements.REQUEUE_READY, {"ids": ids})
            back = only_column(connection.execute(statements.REQUEUE, {"ids": ids}))
            connection.execute(statements.REQUEUE_LEAVE, {"ids": json.dumps(back)})
            states = _states(connection, job_ids)
        self.wake_waiters()
        return states

    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int:
        """As `Pruning.prune`."""
        with self.connections.write() as connection:
            return forget(connection, older_than, states, limit)

    def pause(self, queue: str) -> None:
        """As `Pausing.pause`."""
        with self.connections.write() as connection:
            connection.execute(statements.PAUSE, {"queue": queue})

    def resume(self, queue: str) -> None:
        """As `Pausing.resume`."""
        with self.connections.write() as connection:
            connection.execute(statements.RESUME, {"queue": queue})
        self.wake_waiters()

    def read_notes(self, names: Sequence[str]) -> NotesRead:
        """As `Notes.read_notes`."""
        with self.connections.read() as connection:
            rows = connection.execute(statements.READ_NOTES, {"names": json.dumps(names)}).fetchall()
        return NotesRead(
            from_microseconds(rows[0][2]), {name: note for name, note, _ in rows if note is not None}
        )

    def write_note(self, name: str, text: str, expected: str | None) -> bool:
        """As `Notes.write_note`."""
        statement = statements.WRITE_NOTE if expected is None else statements.CHANGE_NOTE
        parameters = {"name": name, "text": text, "expected": expected}
        with self.connections.write() as connection:
            return connection.execute(statement, parameters).fetchone() is not None

    def wake_waiters(self) -> None:
        """Have the `wait`s of this driver object look again."""
        with self._woken:
            self._wakes += 1
            self._woken.notify_all()


def bury(connection: sqlite3.Connection, job_ids: Sequence[str], state: State) -> int:
    """Those of `job_ids` that are ready go to the table of the dead, as `state`. How many they were."""
    buried = only_column(connection.execute(statements.BURY, {"ids": json.dumps(job_ids), "state": state}))
    connection.execute(statements.LEAVE, {"ids": json.dumps(buried)})
    return len(buried)


def forget(
    connection: sqlite3.Connection, older_than: timedelta, states: Collection[State], limit: int
) -> int:
    """Delete at most `limit` finished jobs of `states`, and free their keys. How many they were."""
    parameters = {"older_than": to_length(older_than), "limit": limit}
    forgotten: list[tuple[str, str, str | None]] = []
    if State.DONE in states:
        forgotten += connection.execute(statements.PRUNE_DONE, parameters).fetchall()
    for state in sorted({State.DEAD, State.CANCELLED}.intersection(states)):
        left = {**parameters, "limit": limit - len(forgotten), "state": state}
        forgotten += connection.execute(statements.PRUNE_DEAD, left).fetchall()
    keyed = [row for row in forgotten if row[2] is not None]
    if keyed:
        connection.execute(statements.PRUNE_KEYS, {"forgotten": json.dumps(keyed)})
    return len(forgotten)


def _states(connection: sqlite3.Connection, job_ids: Sequence[str]) -> list[State | None]:
    return states_of(job_ids, connection.execute(statements.STATES, {"ids": json.dumps(job_ids)}).fetchall())

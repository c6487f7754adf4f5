"""The side doors: look, count, cancel, requeue, prune, pause, leave notes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from jobcontract.contract import JobRecord, State
from jobcontract.errors import InvalidJob
from jobcontract.side_doors import NotesRead, Page, QueueStats, Row, StoredJob
from jobcontract_postgres.arrays import plain, texts
from jobcontract_postgres.results import as_uuid
from jobcontract_postgres.sessions import Sessions
from jobcontract_postgres.statements import Statements

_READS_FROM_A_PAGE = 140000
"""The first version that can begin to read a table at one of its pages."""
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class OperatorDoors:
    """`Lookup`, `Statistics`, `Cancellation`, `Requeue`, `Pruning`, `Pausing` and `Notes`."""

    def __init__(self, sessions: Sessions, statements: Statements) -> None:
        self.sessions = sessions
        """Its connections; public for those who look inside: doctor, benchmarks, tests."""
        self.statements = statements
        """Its SQL; public likewise."""

    def get(self, job_id: str) -> StoredJob | None:
        """As `Lookup.get`."""
        if as_uuid(job_id) is None:
            return None
        rows = self.sessions.run(self.statements.get, (job_id,))
        return _stored_job(rows[0]) if rows else None

    def jobs(self, page: Page) -> list[StoredJob]:
        """As `Lookup.jobs`. A filter by queue or kind looks at no more than the newest 100,000 ended jobs."""
        cursor = as_uuid(page.cursor or _LAST_ID)
        if cursor is None:
            raise InvalidJob("cursor", "is not the cursor of a job")
        states = plain([page.state] if page.state else State)
        queue, kind = (page.queue, page.queue), (page.kind, page.kind)
        parameters: tuple[object, ...]
        if page.idempotency_key is not None:
            statement = self.statements.get_by_key
            parameters = (page.idempotency_key, *queue, cursor, *kind, states, page.limit)
        else:
            statement = self.statements.page
            parameters = (*(cursor, *queue, *kind, states, page.limit) * 4, page.limit)
        return [_stored_job(row) for row in self.sessions.run(statement, parameters)]

    def stats(self) -> list[QueueStats]:
        """As `Statistics.stats`. Bounded work; of the history, only the last pages are read."""
        queues = [_queue_stats(row) for row in self.sessions.run(self.statements.stats, ())]
        if self.sessions.facts.version_number < _READS_FROM_A_PAGE:
            return queues
        ((page,),) = self.sessions.run(self.statements.history_end, ())
        rows = self.sessions.run(self.statements.done_rate, (f"({page},0)",))
        rates: dict[str, float] = {row[0]: row[1] for row in rows}
        idle = [_idle(name) for name in rates.keys() - {each.queue for each in queues}]
        found = [each._replace(done_per_second=rates.get(each.queue, 0.0)) for each in (*queues, *idle)]
        return sorted(found, key=lambda each: each.queue.encode())

    def cancel(self, job_ids: Sequence[str]) -> list[State | None]:
        """As `Cancellation.cancel`."""
        ids = _sorted_ids(job_ids)
        self.sessions.run(self.statements.cancel, (ids,))
        return self._states(job_ids)

    def requeue(self, job_ids: Sequence[str]) -> list[State | None]:
        """As `Requeue.requeue`."""
        ids = _sorted_ids(job_ids)
        self.sessions.run(self.statements.requeue, (ids, ids))
        return self._states(job_ids)

    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int:
        """As `Pruning.prune`."""
        bounds = (older_than, plain(states), limit)
        ((count,),) = self.sessions.run(self.statements.prune, (*bounds, *bounds))
        return int(count)

    def pause(self, queue: str) -> None:
        """As `Pausing.pause`."""
        self.sessions.run(self.statements.pause, (queue,))

    def resume(self, queue: str) -> None:
        """As `Pausing.resume`."""
        self.sessions.run(self.statements.resume, (queue,))

    def read_notes(self, names: Sequence[str]) -> NotesRead:
        """As `Notes.read_notes`."""
        rows = self.sessions.run(self.statements.read_notes, (texts(names),))
        return NotesRead(rows[0][2], {name: note for name, note, _ in rows if note is not None})

    def write_note(self, name: str, text: str, expected: str | None) -> bool:
        """As `Notes.write_note`."""
        parameters = (text, name, expected, name, text, expected)
        return bool(self.sessions.run(self.statements.write_note, parameters))

    def _states(self, job_ids: Sequence[str]) -> list[State | None]:
        rows = self.sessions.run(self.statements.states, (_sorted_ids(job_ids),))
        found = {job_id: State(state) for job_id, state in rows}
        return [found.get(str(as_uuid(job_id))) for job_id in job_ids]


def _sorted_ids(job_ids: Sequence[str]) -> str:
    return plain(sorted({str(uuid) for job_id in job_ids if (uuid := as_uuid(job_id))}))


def _queue_stats(row: Row) -> QueueStats:
    queue, ready, scheduled, running, expired, dead, cancelled, oldest_ready, paused = row
    return QueueStats(
        queue=queue,
        ready=ready,
        scheduled=scheduled,
        running=running,
        expired=expired,
        dead=dead,
        done=None,
        cancelled=cancelled,
        oldest_ready=None if oldest_ready is None else timedelta(seconds=oldest_ready),
        paused=paused,
    )


def _idle(queue: str) -> QueueStats:
    """A queue all of whose jobs are done."""
    return QueueStats(queue, 0, 0, 0, 0, 0, None, 0, None, paused=False)


def _stored_job(row: Row) -> StoredJob:
    (job_id, kind, queue, priority, run_at, max_attempts, key, input_ref, headers, *rest) = row
    state, attempt, created_at, finished_at, lease_until, last_error, refunded = rest
    return StoredJob(
        record=JobRecord(job_id, kind, queue, priority, run_at, max_attempts, key, None, input_ref, headers),
        state=State(state),
        attempt=attempt,
        created_at=created_at,
        finished_at=finished_at,
        lease_expires_at=lease_until,
        last_error=last_error,
        cursor=job_id,
        refunded=refunded,
    )

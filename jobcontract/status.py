"""A job as it stands in its store: what `Backend.get` and `Backend.jobs` answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from jobcontract.contract import Job, State
from jobcontract.records import Undecodable, decode
from jobcontract.side_doors import StoredJob


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job and where it is in its life. All instants are UTC, by the store's clock."""

    id: UUID
    kind: str
    queue: str
    state: State
    attempt: int
    """How often it was claimed."""
    spent: int
    """How many of its attempts count against max_attempts: what was released, and what came before a requeue,
    does not. Of a done job a store may have forgotten the difference.
    """
    created_at: datetime
    finished_at: datetime | None
    """When it became done, dead or cancelled."""
    lease_expires_at: datetime | None
    """While it is running."""
    last_error: str | None
    job: Job | None
    """The job itself; None when what is stored is not a valid job, and `problem` says why."""
    problem: str | None
    cursor: str
    """Give the last one of a page to `Backend.jobs(cursor=...)` for the next page."""

    @classmethod
    def of(cls, stored: StoredJob) -> JobStatus:
        """`stored`, with its record decoded as far as it can be."""
        job: Job | None = None
        problem: str | None = None
        try:
            job = decode(stored.record)
        except Undecodable as error:
            problem = str(error)
        return cls(
            id=UUID(stored.record.id),
            kind=stored.record.kind,
            queue=stored.record.queue,
            state=stored.state,
            attempt=stored.attempt,
            spent=stored.attempt - stored.refunded,
            created_at=stored.created_at,
            finished_at=stored.finished_at,
            lease_expires_at=stored.lease_expires_at,
            last_error=stored.last_error,
            job=job,
            problem=problem,
            cursor=stored.cursor,
        )

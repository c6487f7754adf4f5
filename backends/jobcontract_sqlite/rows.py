"""Rows of the tables as the contract's tuples, and the contract's arguments as the JSON that the statements
take.

What a row holds is untrusted: a file can be edited by hand. Nothing here raises on a value, and nothing
interprets one; the jobs are decoded above the door, one by one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from jobcontract.contract import LOST, ClaimedRecord, JobRecord, Lease, State, Verdict
from jobcontract.side_doors import QueueStats, StoredJob
from jobcontract_sqlite.instants import from_microseconds, to_duration

Row: TypeAlias = tuple[Any, ...]  # Any: SQLite's columns; the tables are STRICT, which keeps their types


def leases_json(leases: Iterable[Lease]) -> str:
    """What the statements need of `leases`: ``[[id, token], ...]``."""
    return json.dumps([(lease.job_id, lease.token) for lease in leases])


def only_column(cursor: sqlite3.Cursor) -> list[str]:
    """The values of a result with one column."""
    return [value for (value,) in cursor.fetchall()]


def claimed_records(rows: list[Row]) -> list[ClaimedRecord]:
    """Rows of claim.sql, in the order of the contract: RETURNING promises none."""
    claimed = [_claimed_record(row) for row in rows]
    return [each for _, each in sorted(claimed, key=lambda pair: pair[0])]


def _claimed_record(row: Row) -> tuple[tuple[int, int, str], ClaimedRecord]:
    (
        job_id,
        queue,
        token,
        attempt,
        expires_at,
        refunded,
        kind,
        priority,
        run_at,
        max_attempts,
        key,
        input_ref,
        headers,
    ) = row
    lease = Lease(job_id, queue, token, attempt, from_microseconds(expires_at), refunded)
    record = JobRecord(
        job_id, kind, queue, priority, from_microseconds(run_at), max_attempts, key, None, input_ref, headers
    )
    return (-priority, run_at, job_id), ClaimedRecord(lease, record)


def verdicts_of(leases: Iterable[Lease], state: State, rows: Iterable[Row]) -> list[Verdict]:
    """Rows (id, instant) of those leases that held, as a verdict for each lease: the job is `state` now."""
    applied = {job_id: Verdict(True, state, from_microseconds(at)) for job_id, at in rows}
    return [applied.get(lease.job_id, LOST) for lease in leases]


def stored_job(row: Row) -> StoredJob:
    """A row of jobs_live.sql, jobs_done.sql or jobs_dead.sql."""
    *record, state, attempt, created_at, finished_at, lease_expires_at, last_error, refunded = row
    job_id, kind, queue, priority, run_at, max_attempts, key, input_ref, headers = record
    return StoredJob(
        record=JobRecord(
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
        state=State(state),
        attempt=attempt,
        created_at=from_microseconds(created_at),
        finished_at=None if finished_at is None else from_microseconds(finished_at),
        lease_expires_at=None if lease_expires_at is None else from_microseconds(lease_expires_at),
        last_error=last_error,
        cursor=job_id,
        refunded=refunded,
    )


LATELY = timedelta(seconds=10)
"""Over how long the rate of completions is taken."""


def queue_stats(row: Row) -> QueueStats:
    """A row of stats.sql."""
    queue, ready, scheduled, running, expired, dead, done, cancelled, oldest_ready, paused, lately = row
    return QueueStats(
        queue=queue,
        ready=ready,
        scheduled=scheduled,
        running=running,
        expired=expired,
        dead=dead,
        done=done,
        cancelled=cancelled,
        oldest_ready=None if oldest_ready is None else to_duration(oldest_ready),
        paused=bool(paused),
        done_per_second=lately / LATELY.total_seconds(),
    )


def states_of(job_ids: Sequence[str], rows: Iterable[Row]) -> list[State | None]:
    """Rows (id, state) of states.sql, as the state of each of `job_ids`."""
    found = {job_id: None if state is None else State(state) for job_id, state in rows}
    return [found.get(job_id) for job_id in job_ids]

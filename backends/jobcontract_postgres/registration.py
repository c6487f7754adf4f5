"""`register` as steps: the same statements for a connection of our own and for one that belongs to the
caller.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from jobcontract.contract import EARLIEST_RUN_AT, JobRecord, Registration, State, Statement, Steps
from jobcontract.errors import StoreClosed, StoreUnavailable
from jobcontract_postgres.arrays import blobs, instants, plain, texts
from jobcontract_postgres.statements import Statements

_ROUNDS = 3
# How far a producer's clock may be ahead of the server's before the repeated registration of a job that is
# done goes unseen.
_CLOCK_MARGIN = timedelta(days=1)


def register_steps(statements: Statements, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
    """See `JoinsTransactions.register_steps`."""
    found: dict[str, Registration] = {}
    left = list(records)
    # In one order, so that two batches with the same keys can't deadlock. The sort is stable: the first of a
    # key stays the first.
    left.sort(key=_queue_and_key)
    for _round in range(_ROUNDS):
        rows = yield _create(statements, left)
        shut = any(job_id is None for job_id, _ in rows)
        found.update((job_id, Registration(UUID(job_id), created=True)) for job_id, _ in rows if job_id)
        if len(found) < len(records):
            left = [record for record in left if record.id not in found]
            for position, holder, state, conflict in (yield _look_up(statements, left)):
                if holder is not None:  # else it has gone meanwhile
                    known = Registration(UUID(holder), created=False, state=State(state), conflict=conflict)
                    found[left[int(position) - 1].id] = known
            left = [record for record in left if record.id not in found]
        if len(found) == len(records):
            return [found[record.id] for record in records]
        if shut:
            raise StoreClosed(
                "the jobs of this store are moving to another one, and it takes no new ones now; try again"
            )
    raise StoreUnavailable(
        f"the idempotency keys of {len(left)} jobs were given up and taken again all the while; try again"
    )


def _create(statements: Statements, records: Sequence[JobRecord]) -> Statement:
    return Statement(
        statements.register,
        (
            plain(record.id for record in records),
            texts(record.kind for record in records),
            texts(record.queue for record in records),
            plain(record.priority for record in records),
            instants(record.run_at for record in records),
            plain(record.max_attempts for record in records),
            texts(record.idempotency_key for record in records),
            blobs(record.fingerprint for record in records),
            texts(record.input_ref for record in records),
            texts(record.headers for record in records),
            _earliest_end(records),
        ),
    )


def _look_up(statements: Statements, records: Sequence[JobRecord]) -> Statement:
    return Statement(
        statements.register_lookup,
        (
            plain(record.id for record in records),
            texts(record.queue for record in records),
            texts(record.idempotency_key for record in records),
            blobs(record.fingerprint for record in records),
        ),
    )


def _queue_and_key(record: JobRecord) -> tuple[str, str]:
    return record.queue, record.idempotency_key or record.id


def _earliest_end(records: Sequence[JobRecord]) -> datetime:
    """Before this none of the jobs can have ended, for a job ends after its id was made.

    An id that is no UUIDv7 says nothing about its time, nor does one from the future: an application may use
    ids of its own, and every sixteenth hash looks like a UUIDv7.
    """
    if any(record.id[14] != "7" for record in records):
        return EARLIEST_RUN_AT
    ids = [record.id for record in records]
    if _milliseconds_of(max(ids)) > (time.time() + _CLOCK_MARGIN.total_seconds()) * 1000:
        return EARLIEST_RUN_AT
    earliest = datetime.fromtimestamp(_milliseconds_of(min(ids)) / 1000, UTC)
    return max(EARLIEST_RUN_AT, earliest - _CLOCK_MARGIN)


def _milliseconds_of(job_id: str) -> int:
    """The time in a UUIDv7, since 1970."""
    return int(job_id[:8] + job_id[9:13], 16)

"""`register` as steps: the same statements for a connection of our own and for one that belongs to the
caller.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID

from jobcontract.contract import EARLIEST_RUN_AT, JobRecord, Registration, State
from jobcontract.errors import StoreClosed, StoreUnavailable
from jobcontract.identifiers import read_job_id
from jobcontract.side_doors import Statement, Steps
from jobcontract_postgres.arrays import blobs, plain, record_columns, texts
from jobcontract_postgres.statements import Statements

_ROUNDS = 3
_DAY = 24 * 60 * 60
# In days: how far a producer's clock may be ahead of the server's before the repeated registration of a job
# that is done goes unseen.
_CLOCK_MARGIN = 1
_EVER = EARLIEST_RUN_AT.isoformat()


CHEAPER_SINCE = 5
"""The schema with which a registration need not call a function to know whether its job has ended."""


def register_steps(
    statements: Statements, records: Sequence[JobRecord], schema_version: int
) -> Steps[list[Registration]]:
    """See `JoinsTransactions.register_steps`."""
    found: dict[str, Registration] = {}
    left = list(records)
    # In one order, so that two batches with the same keys can't deadlock. The sort is stable: the first of a
    # key stays the first.
    left.sort(key=_queue_and_key)
    for _round in range(_ROUNDS):
        rows = yield _create(statements, left, schema_version)
        if len(rows) == len(records) == 1 and rows[0][0]:  # the usual end of a job that came alone
            return [Registration(read_job_id(records[0].id), created=True)]
        created = {job_id for job_id, _ in rows}
        shut = None in created
        found.update(
            (record.id, Registration(read_job_id(record.id), created=True))
            for record in left
            if record.id in created
        )
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


def _create(statements: Statements, records: Sequence[JobRecord], schema_version: int) -> Statement:
    cheaper = schema_version >= CHEAPER_SINCE
    if len(records) == 1 and cheaper:
        return Statement(statements.register_one, (*records[0], _earliest_end(records)))
    return Statement(
        statements.register if cheaper else statements.register_on_old_schema,
        (*record_columns(records), _earliest_end(records)),
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


def _earliest_end(records: Sequence[JobRecord]) -> str:
    """An instant before which none of the jobs can have ended, for a job ends after its id was made.

    An id that is no UUIDv7 says nothing about its time, nor does one from the future: an application may use
    ids of its own, and every sixteenth hash looks like a UUIDv7.
    """
    ids = [record.id for record in records]
    for job_id in ids:
        if job_id[14] != "7":
            return _EVER
    days = [_day_of(job_id) for job_id in ids]
    if max(days) > time.time() // _DAY + _CLOCK_MARGIN:
        return _EVER
    return _begin_of(min(days) - _CLOCK_MARGIN)


def _day_of(job_id: str) -> int:
    """The day in a UUIDv7, since 1970."""
    return int(job_id[:8] + job_id[9:13], 16) // (_DAY * 1000)


@lru_cache(maxsize=64)
def _begin_of(day: int) -> str:
    return datetime.fromtimestamp(max(day, 0) * _DAY, UTC).isoformat()

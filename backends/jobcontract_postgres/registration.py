"""`register` as steps: the same statements for a connection of our own and for one that belongs to the caller."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from jobcontract.contract import EARLIEST_RUN_AT, JobRecord, Registration, Row, State, Statement, Steps
from jobcontract.errors import StoreUnavailable
from jobcontract_postgres.statements import Statements

_ROUNDS = 3
# How far a producer's clock may be ahead of the server's before the repeated registration of a job that is done goes unseen.
_CLOCK_MARGIN = timedelta(days=1)


class Registering:
    """One call of `register`: what to send, and what is known so far."""

    def __init__(self, statements: Statements, records: Sequence[JobRecord]) -> None:
        self._statements = statements
        self._records = records
        self._results: dict[str, Registration] = {}
        self.open: list[JobRecord] = list(records)
        """Those without a result yet."""

    def insertion(self) -> tuple[Statement, Statement]:
        """Create what is free, then take back what turns out to have ended: in this order, in one transaction."""
        records = self.open
        ids = [record.id for record in records]
        create = Statement(
            self._statements.register,
            (
                ids,
                [record.kind for record in records],
                [record.queue for record in records],
                [record.priority for record in records],
                [record.run_at for record in records],
                [record.max_attempts for record in records],
                [record.idempotency_key for record in records],
                [record.fingerprint for record in records],
                [record.input_ref for record in records],
                [record.headers for record in records],
            ),
        )
        return create, Statement(self._statements.register_withdraw, (ids, _earliest_end(ids), ids))

    def inserted(self, created: Sequence[Row], withdrawn: Sequence[Row]) -> None:
        """Take in what the statements of `insertion` returned."""
        new = {row[0] for row in created} - {row[0] for row in withdrawn}
        for record in self.open:
            if record.id in new:
                self._results[record.id] = Registration(UUID(record.id), created=True)
        self.open = [record for record in self.open if record.id not in new]

    def lookup(self) -> Statement:
        """Who stands in the way of those that were not created."""
        return Statement(
            self._statements.register_lookup,
            (
                [record.id for record in self.open],
                [record.queue for record in self.open],
                [record.idempotency_key for record in self.open],
                [record.fingerprint for record in self.open],
            ),
        )

    def looked_up(self, rows: Sequence[Row]) -> None:
        """Take in what `lookup` returned. Jobs whose holder has gone meanwhile stay open."""
        for position, job_id, state, conflict in rows:
            if job_id is not None:
                found = Registration(UUID(job_id), created=False, state=State(state), conflict=conflict)
                self._results[self.open[position - 1].id] = found
        self.open = [record for record in self.open if record.id not in self._results]

    def results(self) -> list[Registration]:
        """The registrations, in the order of the records. Raises `StoreUnavailable` when some are still open."""
        if self.open:
            raise StoreUnavailable(
                f"the idempotency keys of {len(self.open)} jobs were taken and given up again and again meanwhile; try again"
            )
        return [self._results[record.id] for record in self._records]


def register_steps(statements: Statements, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
    """See `JoinsTransactions.register_steps`."""
    registering = Registering(statements, records)
    for _ in range(_ROUNDS):
        create, withdraw = registering.insertion()
        registering.inserted((yield create), (yield withdraw))
        if registering.open:
            registering.looked_up((yield registering.lookup()))
        if not registering.open:
            break
    return registering.results()


def _earliest_end(ids: Sequence[str]) -> datetime:
    """Before this none of `ids` can have ended, for a job ends after its id was made; so older partitions need not be read.

    An id that is no UUIDv7 says nothing about its time.
    """
    earliest = min(UUID(each).int for each in ids)
    if any(each[14] != "7" for each in ids):
        return EARLIEST_RUN_AT
    made = datetime.fromtimestamp((earliest >> 80) / 1000, UTC)
    return max(EARLIEST_RUN_AT, made - _CLOCK_MARGIN)

"""The driver: each verb is one statement, and what is left of it here is the mapping of rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from jobcontract.config import StoreSettings
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
from jobcontract.errors import StoreClosed
from jobcontract.side_doors import Ailment, Expectations, Row, Step, Steps
from jobcontract_postgres.arrays import lengths, plain, texts
from jobcontract_postgres.callers import Callers
from jobcontract_postgres.capabilities import PRIORITIES, capabilities_from
from jobcontract_postgres.diagnosis import Diagnosing
from jobcontract_postgres.doors import OperatorDoors
from jobcontract_postgres.failures import find_client_error, from_statement
from jobcontract_postgres.housekeeping import Housekeeping
from jobcontract_postgres.listen import Listener
from jobcontract_postgres.low_water import FIRST_ID, LowWater, Mark, Probes, ranges
from jobcontract_postgres.moving import MovingDoors
from jobcontract_postgres.options import PostgresOptions
from jobcontract_postgres.registration import register_steps
from jobcontract_postgres.schema import Schema
from jobcontract_postgres.server import Server
from jobcontract_postgres.sessions import Sessions
from jobcontract_postgres.statements import Statements
from jobcontract_postgres.tables import HostedTables

_INSTALL_DEADLINE = 300.0
_DONE = Verdict(True, State.DONE)
_job_id: Callable[[Lease], str] = attrgetter("job_id")


class PostgresDriver(OperatorDoors, HostedTables, MovingDoors):
    """One installation: a schema of a database. Making the object contacts nothing."""

    def __init__(self, settings: StoreSettings) -> None:
        options = settings.read_options(PostgresOptions)
        statements = Statements(options.schema_name)
        self._server = Server(settings, options)
        self._schema = Schema(statements)
        super().__init__(Sessions(self._server, self._schema, options), statements)
        self._callers = Callers(
            self._server, statements, lambda statement: self.sessions.run(statement, (), checked=False)
        )
        self.low_water = LowWater()
        """Where its claims begin to read; public for those who look inside."""
        self._listener = Listener(
            self._server.connect, self.sessions.may_listen, statements, self.low_water, self.sessions.timeout
        )
        self._options = options
        self._housekeeping = Housekeeping(statements, self._schema, options.retention)
        self._keeping_house = threading.Lock()
        self._diagnosing = Diagnosing(self.sessions, statements, self._schema, options)
        self._capabilities: Capabilities | None = None

    @property
    def capabilities(self) -> Capabilities:
        """As `Driver.capabilities`."""
        if self._capabilities is None:
            self._capabilities = capabilities_from(self.sessions.facts, self, listen=self._options.listen)
        return self._capabilities

    @property
    def location(self) -> str:
        """As `Located.location`."""
        return self._server.location

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        """As `Driver.register`. One statement, and a second one when some jobs were known already."""
        alone = len(records) == 1
        with self.sessions.session() as connection:
            steps = register_steps(self.statements, records, self.sessions.schema_version)
            try:
                statement = next(steps)
                while True:
                    statement = steps.send(self.sessions.send(connection, statement, small=alone))
            except StopIteration as end:
                registrations: list[Registration] = end.value
                return registrations

    def joining_steps(self, client: object) -> Steps[None]:
        """As `MeetsCallers.joining_steps`: see callers.py."""
        return self._callers.steps(client)

    def register_steps(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        """As `JoinsTransactions.register_steps`. What the caller's client raises becomes a `StoreError`."""
        try:
            return (yield from register_steps(self.statements, records, self.sessions.schema_version))
        except Exception as error:
            client_error = find_client_error(error)
            if client_error is None:
                raise
            raise from_statement(client_error, "PostgreSQL on the caller's connection") from None

    def registration_sql(self, record: JobRecord) -> str:
        """As `RegistersByStatement.registration_sql`."""
        parameters = (record.queue, record.idempotency_key, record.fingerprint)
        rest = (record.max_attempts, record.priority, record.kind, record.headers, record.input_ref)
        return self.statements.register_by_itself((*parameters, *rest))

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        """As `Driver.claim`. An empty answer is verified by a survey, where that is not too dear."""
        probes = self.low_water.probes(queues, PRIORITIES)
        claimed = self._claim(probes, limit, lease)
        if not claimed and not probes.is_survey and self.low_water.may_survey(queues):
            claimed = self._claim(self.low_water.survey(queues, PRIORITIES), limit, lease)
        if not claimed:
            self._listener.claimed_nothing(queues)
        return claimed

    def _claim(self, probes: Probes, limit: int, lease: timedelta) -> list[ClaimedRecord]:
        rows = self.sessions.run(
            self.statements.claim, (*ranges(probes), limit, limit, lease, probes.is_survey)
        )
        claimed: list[ClaimedRecord] = []
        marks: list[Mark] = []
        for row in rows:
            if row[1] is not None:
                claimed.append(_claimed_record(row))
            elif row[2] is not None:
                marks.append(_mark(row))
            else:
                raise StoreClosed(
                    "the jobs of this store are moving to another one, and can't be claimed here now; "
                    "try again"
                )
        claimed.sort(key=_claim_order)  # RETURNING promises no order
        self.low_water.note(probes, marks, [record for _, record in claimed])
        return claimed

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        """As `Driver.complete`."""
        rows = self.sessions.run(self.statements.complete, _ids_and_tokens(leases))
        if len(rows) == len(leases):  # each of them moves one row at most
            return [_DONE] * len(leases)
        return _verdicts(leases, ((job_id, _DONE) for (job_id,) in rows))

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        """As `Driver.fail`."""
        ordered = sorted(failures, key=lambda failure: failure.lease.job_id)
        rows = self.sessions.run(
            self.statements.fail,
            (
                *_ids_and_tokens([failure.lease for failure in ordered]),
                texts(failure.error for failure in ordered),
                lengths(failure.retry_in for failure in ordered),
                plain(failure.permanent for failure in ordered),
            ),
        )
        moved = ((job_id, Verdict(True, State(state), run_at)) for job_id, state, run_at, _ in rows)
        return _verdicts([failure.lease for failure in failures], moved)

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        """As `Driver.extend`."""
        rows = self.sessions.run(self.statements.extend, (*_ids_and_tokens(leases), lease))
        return _verdicts(leases, ((job_id, Verdict(True, State.RUNNING, until)) for job_id, until in rows))

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        """As `Driver.release`."""
        rows = self.sessions.run(self.statements.release, (*_ids_and_tokens(leases), delay))
        return _verdicts(leases, ((job_id, Verdict(True, State.READY, run_at)) for job_id, run_at, _ in rows))

    def rescue(self, limit: int) -> Rescued:
        """As `Driver.rescue`. Every ten minutes it also sees to the history: see housekeeping.py."""
        ((ready, dead, _),) = self.sessions.run(self.statements.rescue, (limit,))
        if self._keeping_house.acquire(blocking=False):
            try:
                with self.sessions.session() as connection:
                    self._housekeeping.run(connection)
            finally:
                self._keeping_house.release()
        return Rescued(ready, dead)

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """As `Driver.wait`. Returns as well when a scheduled job falls due."""
        return self._listener.wait(queues, timeout)

    def install(self, *, dry_run: bool = False) -> list[Step]:
        """As `Installation.install`. Its deadline is five minutes: a migration may have much to rewrite."""
        self.sessions.forget_schema()
        with self.sessions.session(checked=False) as connection:
            connection.expire_in(_INSTALL_DEADLINE)
            return self._schema.install(connection, self._server.where, dry_run=dry_run)

    def diagnose(self, expected: Expectations) -> list[Ailment]:
        """As `Diagnosis.diagnose`."""
        return self._diagnosing.diagnose(expected)

    def clock(self) -> datetime:
        """As `Diagnosis.clock`."""
        return self._diagnosing.clock()

    def close(self) -> None:
        """As `Driver.close`."""
        self._listener.close()
        self.sessions.close()


def _claimed_record(row: Row) -> ClaimedRecord:
    (
        job_id,
        kind,
        queue,
        priority,
        run_at,
        max_attempts,
        key,
        input_ref,
        headers,
        token,
        attempt,
        until,
        refunded,
    ) = row
    record = JobRecord(job_id, kind, queue, priority, run_at, max_attempts, key, None, input_ref, headers)
    return ClaimedRecord(Lease(job_id, queue, token, attempt, until, refunded), record)


def _mark(row: Row) -> Mark:
    job_id, _, queue, priority, run_at, *_, microseconds, _, _ = row
    return Mark(queue, priority, (run_at, job_id or FIRST_ID), microseconds / 1_000_000)


def _claim_order(claimed: ClaimedRecord) -> tuple[object, ...]:
    record = claimed.record
    return -record.priority, record.run_at, record.id


def _ids_and_tokens(leases: Iterable[Lease]) -> tuple[str, str]:
    """As parallel arrays, by id: rows are locked in this order, so that two batches can't deadlock."""
    ordered = sorted(leases, key=_job_id)
    return plain(lease.job_id for lease in ordered), texts(lease.token for lease in ordered)


def _verdicts(leases: Sequence[Lease], moved: Iterable[tuple[str, Verdict]]) -> list[Verdict]:
    applied = dict(moved)
    return [applied.get(lease.job_id, LOST) for lease in leases]

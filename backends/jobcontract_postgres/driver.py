"""The driver: each verb is one statement, and what is left of it here is the mapping of rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

import psycopg

from jobcontract.config import StoreSettings
from jobcontract.contract import (
    LOST,
    Capabilities,
    ClaimedRecord,
    Dialect,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    Row,
    State,
    Statement,
    Step,
    Steps,
    Verdict,
)
from jobcontract_postgres.arrays import instants, lengths, plain, texts
from jobcontract_postgres.capabilities import Facts, capabilities_from, read_facts
from jobcontract_postgres.connection import Connection, Pool
from jobcontract_postgres.failures import from_statement, is_missing_object
from jobcontract_postgres.low_water import LowWater, Probes
from jobcontract_postgres.options import PostgresOptions
from jobcontract_postgres.registration import register_steps
from jobcontract_postgres.schema import Schema
from jobcontract_postgres.server import PLANNER, Server
from jobcontract_postgres.statements import Statements, literal

_PRIORITIES = range(9, -1, -1)
_INSTALL_DEADLINE = 300.0


class PostgresDriver:
    """One store in one schema of one database."""

    dialect: Dialect = "postgresql"

    def __init__(self, settings: StoreSettings) -> None:
        options = settings.read_options(PostgresOptions)
        self._timeout = options.timeout.total_seconds()
        self._statements = Statements(options.schema_name)
        self._schema = Schema(self._statements)
        self._server = Server(settings, options)
        self._pool = Pool(
            self._server.connect, size=options.pool_size, max_lifetime=options.max_lifetime.total_seconds()
        )
        self._listens = options.listen
        self._prepares = options.prepared_statements
        self._low_water = LowWater()
        self._facts: Facts | None = None
        self._fits = False
        self._closing = threading.Event()

    @property
    def capabilities(self) -> Capabilities:
        with self._session(checked=False) as connection:
            facts = self._learn(connection)
        return capabilities_from(facts, self, listens=self._may_listen(facts))

    # ------------------------------------------------------------------------------------------------- producers

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        steps = register_steps(self._statements, records)
        with self._session() as connection:
            try:
                statement = next(steps)
                while True:
                    statement = steps.send(self._send(connection, statement))
            except StopIteration as end:
                registrations: list[Registration] = end.value
                return registrations

    def register_steps(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        return register_steps(self._statements, records)

    # --------------------------------------------------------------------------------------------------- workers

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        probes = self._low_water.probes(queues, _PRIORITIES)
        claimed = self._claim(probes, limit, lease)
        if not claimed and probes.hinted:
            self._low_water.drop()
            claimed = self._claim(self._low_water.probes(queues, _PRIORITIES), limit, lease)
        return claimed

    def _claim(self, probes: Probes, limit: int, lease: timedelta) -> list[ClaimedRecord]:
        begun = time.monotonic()
        rows = self._run(
            self._statements.claim,
            (
                texts(probes.queues),
                plain(probes.priorities),
                instants(probes.run_ats),
                plain(probes.ids),
                limit,
                limit,
                lease,
            ),
        )
        if not probes.hinted:
            self._low_water.charge(time.monotonic() - begun)
        rows.sort(key=lambda row: (-row[3], row[4], row[0]))
        claimed: list[ClaimedRecord] = []
        for (job_id, kind, queue, priority, run_at, max_attempts, key, input_ref, headers, token, attempt, until, refunded) in rows:
            record = JobRecord(job_id, kind, queue, priority, run_at, max_attempts, key, None, input_ref, headers)
            claimed.append(ClaimedRecord(Lease(job_id, queue, token, attempt, until, refunded), record))
            self._low_water.advance(queue, priority, (run_at, job_id))
        return claimed

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        rows = self._run(self._statements.complete, _ids_and_tokens(leases))
        return _verdicts(leases, {row[0]: Verdict(True, State.DONE) for row in rows})

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        ordered = sorted(failures, key=lambda failure: failure.lease.job_id)
        rows = self._run(
            self._statements.fail,
            (
                *_ids_and_tokens([failure.lease for failure in ordered]),
                texts(failure.error for failure in ordered),
                lengths(failure.retry_in for failure in ordered),
                plain(failure.permanent for failure in ordered),
            ),
        )
        moved = {row[0]: Verdict(True, State(row[1]), row[2]) for row in rows}
        return _verdicts([failure.lease for failure in failures], moved)

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        rows = self._run(self._statements.extend, (*_ids_and_tokens(leases), lease))
        return _verdicts(leases, {row[0]: Verdict(True, State.RUNNING, row[1]) for row in rows})

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        rows = self._run(self._statements.release, (*_ids_and_tokens(leases), delay))
        return _verdicts(leases, {row[0]: Verdict(True, State.READY, row[1]) for row in rows})

    def rescue(self, limit: int) -> Rescued:
        ((ready, dead, _),) = self._run(self._statements.rescue, (limit,))
        return Rescued(ready, dead)

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        return self._closing.wait(timeout.total_seconds())

    def close(self) -> None:
        self._closing.set()
        self._pool.close()

    # ------------------------------------------------------------------------------------------------ side doors

    def install(self, *, dry_run: bool = False) -> list[Step]:
        self._fits = False
        with self._session(checked=False, seconds=_INSTALL_DEADLINE) as connection:
            return self._schema.install(connection, self._server.where, dry_run=dry_run)

    # -------------------------------------------------------------------------------------------------- the inside

    @contextmanager
    def _session(self, *, checked: bool = True, seconds: float | None = None) -> Iterator[Connection]:
        """A connection for one call. psycopg's errors inside come out as the contract's."""
        try:
            connection = self._pool.take(seconds or self._timeout)
            try:
                self._learn(connection)
                if checked and not self._fits:
                    self._schema.check(self._schema.read_version(connection), self._server.where)
                    self._fits = True
                yield connection
            finally:
                self._pool.give_back(connection)
        except psycopg.Error as error:
            if is_missing_object(error):
                self._fits = False
            raise from_statement(error, self._server.where) from None

    def _run(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        with self._session() as connection:
            return self._send(connection, Statement(statement, parameters))

    def _send(self, connection: Connection, statement: Statement) -> list[Row]:
        return connection.execute(literal(statement.sql), statement.parameters, prepare=True, binary=True).fetchall()

    def _learn(self, connection: Connection) -> Facts:
        if self._facts is None:
            self._facts = read_facts(connection)
            if self._prepares == "auto" and self._facts.pooled:
                self._server.prepares = False
                connection.prepare_threshold = None
            if not self._facts.pooled:
                self._server.settings = PLANNER
                connection.execute(PLANNER)
        return self._facts

    def _may_listen(self, facts: Facts) -> bool:
        return self._listens == "on" or (self._listens == "auto" and not facts.pooled)


def _ids_and_tokens(leases: Sequence[Lease]) -> tuple[str, str]:
    """As parallel arrays, by id: rows are locked in this order, so that two batches can't deadlock."""
    ordered = sorted(leases)
    return plain(lease.job_id for lease in ordered), texts(lease.token for lease in ordered)


def _verdicts(leases: Sequence[Lease], moved: Mapping[str, Verdict]) -> list[Verdict]:
    return [moved.get(lease.job_id, LOST) for lease in leases]

"""The product with one fault each, as other queues shipped it. The laboratory has to see each of them.

`break_product` is called by the programs of a run before they open anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from jobcontract_migrate.move import Mover
from jobcontract_outbox.batch import Waiting
from jobcontract_outbox.locking import LockingSource
from jobcontract_postgres import PostgresDriver
from jobcontract_postgres.connection import Connection
from jobcontract_postgres.server import Server
from jobcontract_postgres.statements import Statements
from jobcontract_redis.pool import Command, Pool, Reply
from jobcontract_sqlite import SQLiteDriver

from jobcontract.contract import EARLIEST_RUN_AT, Rescued, State
from jobcontract.errors import StoreUnavailable
from jobcontract.side_doors import Gate, Transaction

Break: TypeAlias = Callable[[], None]

CLAIMED_WITHIN = 10.0
BETWEEN_TWO_STATEMENTS = 1.0
"""Seconds. More than from one rescue to the next, so that every rescue has another one beside it."""

_FENCE = "job.token::text = item.token AND job.lease_until > clock_timestamp()"


def fails_by_id() -> None:
    """Complete, fail and release ask whether the job is running, and not under whose lease."""
    make = Statements.__init__

    def unfenced(self: Statements, schema: str) -> None:
        make(self, schema)
        for verb in ("complete", "fail", "release"):
            statement: str = getattr(self, verb)
            assert _FENCE in statement
            setattr(self, verb, statement.replace(_FENCE, "job.state = 'running'"))

    setattr(Statements, "__init__", unfenced)  # noqa: B010


def rescues_in_two_steps() -> None:
    """What has expired is selected, and then updated by id."""

    def rescue(self: PostgresDriver, limit: int) -> Rescued:
        table = f"{self.statements.schema}.live_jobs"
        expired = self.sessions.run(
            f"SELECT id FROM {table} WHERE state = 'running' AND lease_until <= clock_timestamp() LIMIT %s",
            (limit,),
        )
        time.sleep(BETWEEN_TWO_STATEMENTS)
        self.sessions.run(
            f"UPDATE {table} SET state = 'ready', token = NULL, lease_until = NULL WHERE id = ANY (%s)"
            " RETURNING id",
            ([row[0] for row in expired],),
        )
        return Rescued(len(expired), 0)

    PostgresDriver.rescue = rescue  # type: ignore[method-assign]


def commits_unsynced() -> None:
    """`synchronous_commit = off`: faster, and an acknowledgement that is worth nothing."""
    connect = Server.connect

    def unsynced(self: Server, seconds: float) -> Connection:
        connection = connect(self, seconds)
        connection.execute("SET synchronous_commit TO off")
        return connection

    Server.connect = unsynced  # type: ignore[method-assign]


def relays_by_cursor() -> None:
    """The relay remembers how far it has come, and never looks behind that."""

    def claim(self: Any, transaction: Transaction, limit: int) -> list[Waiting]:
        if not hasattr(self, "cursor"):
            self.cursor = (EARLIEST_RUN_AT, 0)
        rows = self._read(transaction, self.cursor, limit)
        if rows:
            self.cursor = (rows[-1][7], rows[-1][0])
        return [Waiting.of(row) for row in rows]

    setattr(LockingSource, "_claim", claim)  # noqa: B010


def retries_in_the_client() -> None:
    """redis-py's default: what got no answer is sent again, and may run twice."""
    exchange = Pool.exchange

    def again(self: Pool, commands: Sequence[Command]) -> list[Reply]:
        for _ in range(9):
            try:
                return exchange(self, commands)
            except StoreUnavailable:
                time.sleep(0.05)
        return exchange(self, commands)

    Pool.exchange = again  # type: ignore[method-assign]


def shuts_no_store() -> None:
    """The migration writes its epoch into the source, and leaves it open."""
    set_gate = SQLiteDriver.set_gate

    def leave_open(self: SQLiteDriver, gate: Gate) -> Gate:
        found = set_gate(self, Gate(gate.epoch, intake=True, claims=True))
        return gate if found.epoch == gate.epoch else found

    setattr(SQLiteDriver, "set_gate", leave_open)  # noqa: B010


def buries_before_it_has_arrived() -> None:
    """The mover makes the trace at the source first, and then stores the batch at the target."""

    def batches(self: Any, limit: int, may_go_on: Callable[[], bool]) -> Iterator[int]:
        while hidden := self._source.hide(self._epoch, limit):
            self._source.bury(self._epoch, [job.record.id for job in hidden])
            time.sleep(0.3)
            self._admit(hidden)
            yield len(hidden)
            if not may_go_on():
                break

    Mover.batches = batches  # type: ignore[method-assign]


def copies_without_hiding() -> None:
    """The mover stores a batch at the target while it can be claimed at the source, too."""
    sound = Mover.batches

    def batches(self: Any, limit: int, may_go_on: Callable[[], bool]) -> Iterator[int]:
        moved = [limit]
        while moved and may_go_on():
            copied = self._source.hide(self._epoch, limit)
            self._admit(copied)
            self._source.reveal(self._epoch, limit)
            _await_claim(self._source, [job.record.id for job in copied if job.state is State.READY])
            moved = list(sound(self, limit, lambda: False))  # one batch
            yield from moved

    Mover.batches = batches  # type: ignore[method-assign]


def _await_claim(source: Any, job_ids: Sequence[str]) -> None:
    """Until a worker has come for one of these jobs. Where workers are far ahead of the mover nobody may."""
    deadline = time.monotonic() + CLAIMED_WITHIN
    while job_ids and time.monotonic() < deadline:
        found = [source.get(job_id) for job_id in job_ids]
        if any(job is None or job.state is not State.READY for job in found):
            break
        time.sleep(0.02)


BREAKS: dict[str, Break] = {
    each.__name__.replace("_", " "): each
    for each in (
        fails_by_id,
        rescues_in_two_steps,
        commits_unsynced,
        relays_by_cursor,
        retries_in_the_client,
        shuts_no_store,
        buries_before_it_has_arrived,
        copies_without_hiding,
    )
}


def break_product(name: str) -> None:
    """Build the product with the fault called `name`."""
    BREAKS[name]()

"""What waits in an outbox for one target, in numbers."""

from __future__ import annotations

from datetime import timedelta

from jobcontract.side_doors import HostsTables, OutboxStats
from jobcontract_outbox.schema import Schema
from jobcontract_outbox.statements import Statements, single


def read_status(host: HostsTables, schema: Schema, statements: Statements, target: str) -> OutboxStats:
    """Asks the outbox. Bounded work, however many rows there are. Raises `StoreError`."""
    times = 6 if statements.dialect == "postgresql" else 1
    with host.transaction() as transaction:
        schema.check(transaction)
        row = single(transaction, statements("status", *[target] * times))
    seconds, due, held_up, scheduled, parked = row or (None, 0, 0, 0, 0)
    return OutboxStats(
        oldest=None if seconds is None else timedelta(seconds=max(0.0, seconds)),
        due=due,
        held_up=held_up,
        scheduled=scheduled,
        parked=parked,
    )


def known_targets(host: HostsTables, schema: Schema, statements: Statements) -> list[str]:
    """Every target that this outbox was initialised for, configured or not. Raises `StoreError`."""
    with host.transaction() as transaction:
        schema.check(transaction)
        return [target for (target,) in transaction.run(statements("known_targets"))]

"""The SQL, from ``sql/<dialect>/<verb>.sql``: one statement per file, the tables' names set in."""

from __future__ import annotations

from typing import TypeVar, cast

from jobcontract.hosted import HostedStatements, single
from jobcontract.side_doors import HostsTables, Steps, Transaction

__all__ = ["TABLES", "Statements", "drive", "single"]

Result = TypeVar("Result")

TABLES = ("outbox_jobs", "outbox_targets", "outbox")


class Statements(HostedStatements):
    """The statements for the outbox that `host` holds."""

    def __init__(self, host: HostsTables) -> None:
        super().__init__(host, "jobcontract_outbox", "outbox", TABLES)


def drive(transaction: Transaction, steps: Steps[Result]) -> Result:
    """Run `steps` on a transaction of our own, whose driver knows what its errors mean."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(transaction.run(statement))
    except StopIteration as end:
        return cast(Result, end.value)

"""The SQL, from ``sql/<dialect>/<verb>.sql``: one statement per file, the tables' names set in."""

from __future__ import annotations

from jobcontract.contract import HostsTables
from jobcontract.hosted import HostedStatements, single

__all__ = ["TABLES", "Statements", "single"]

TABLES = ("outbox_jobs", "outbox_targets", "outbox")


class Statements(HostedStatements):
    """The statements for the outbox that `host` holds."""

    def __init__(self, host: HostsTables) -> None:
        super().__init__(host, "jobcontract_outbox", "outbox", TABLES)

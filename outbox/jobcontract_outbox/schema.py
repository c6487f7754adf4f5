"""The outbox's own tables, and the check that code and tables fit together."""

from __future__ import annotations

from jobcontract.hosted import HostedSchema
from jobcontract.side_doors import HostsTables
from jobcontract_outbox.statements import Statements


class Schema(HostedSchema):
    """The tables of the outbox in one SQL store, called `host_name` in the configuration."""

    def __init__(self, host: HostsTables, host_name: str, statements: Statements) -> None:
        super().__init__(
            host,
            host_name,
            statements,
            what="outbox",
            remedy="run `jobctl init --all`",
        )

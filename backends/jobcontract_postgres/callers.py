"""Connections that callers bring: whether they lead to the database that this store is in.

Asked once per connection, and not at all when it names the host, the port and the database that we reached
ourselves. Two names can lead to one database (a socket, a pooler), and two databases can hold one schema.
What tells them apart is the moment at which the server started: a copy that was made from a snapshot has
every number of the original.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from weakref import WeakSet

from jobcontract.errors import InvalidJob
from jobcontract.side_doors import Row, Statement, Steps
from jobcontract_postgres.server import Server, address_of
from jobcontract_postgres.statements import Statements


class Callers:
    """Those connections that are known to be right. Safe in threads."""

    def __init__(self, server: Server, statements: Statements, ask: Callable[[str], list[Row]]) -> None:
        """`ask` runs a statement on a connection of our own."""
        self._server = server
        self._identity = statements.identity
        self._ask = ask
        self._known: WeakSet[Any] = WeakSet()

    def steps(self, client: object) -> Steps[None]:
        """See `MeetsCallers.joining_steps`. `client` is psycopg's connection, of either colour."""
        connection = cast(Any, client)
        if connection in self._known or address_of(connection) == self._server.reached:
            return _nothing()
        return self._compare(connection, self._ask(self._identity))

    def _compare(self, connection: Any, own: list[Row]) -> Steps[None]:
        theirs = yield Statement(self._identity, ())
        if theirs != own:
            host, port, database = address_of(connection)
            raise InvalidJob(
                "connection",
                f"is open on the database {database!r} at {host}:{port}, and the jobs of this store live in "
                f"{self._server.location}; connect to that database",
            )
        self._known.add(connection)


def _nothing() -> Steps[None]:
    yield from ()

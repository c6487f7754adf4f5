"""The side door `HostsTables`: tables of others in our schema, and transactions on our connections."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from jobcontract.side_doors import Dialect, Row, Statement, Transaction
from jobcontract_postgres.connection import Connection
from jobcontract_postgres.sessions import Sessions
from jobcontract_postgres.statements import Statements, query, quote


class HostedTables:
    """`HostsTables`."""

    dialect: Dialect = "postgresql"
    sessions: Sessions
    statements: Statements

    def table(self, name: str) -> str:
        """As `HostsTables.table`."""
        return f"{quote(self.statements.schema)}.{quote(name)}".replace("%", "%%")

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """As `HostsTables.transaction`."""
        with self.sessions.session() as connection, connection.transaction():
            try:
                yield _Open(connection, self.sessions.timeout)
            finally:
                connection.expire_in(self.sessions.timeout)  # for the COMMIT or ROLLBACK

    def wake(self, topic: str) -> Statement | None:
        """As `HostsTables.wake`."""
        return Statement(self.statements.wake_topic, (topic,))


class _Open:
    """`Transaction`, with a deadline for each statement instead of one for all."""

    dialect: Dialect = "postgresql"

    def __init__(self, connection: Connection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds

    def run(self, statement: Statement) -> list[Row]:
        """As `Transaction.run`."""
        self._connection.expire_in(self._seconds)
        # Without parameters it is DDL, most of the time, which is not worth a prepared statement.
        cursor = self._connection.execute(
            query(statement.sql), statement.parameters, prepare=bool(statement.parameters), binary=True
        )
        return cursor.fetchall() if cursor.description else []

"""A session per call: a pooled connection with a deadline, on a schema that is known to fit; errors as the
contract's.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import psycopg

from jobcontract.contract import Row, Statement
from jobcontract_postgres.capabilities import Facts, read_facts
from jobcontract_postgres.connection import Connection, Pool
from jobcontract_postgres.failures import from_statement, is_missing_object
from jobcontract_postgres.options import PostgresOptions
from jobcontract_postgres.schema import Schema
from jobcontract_postgres.server import SESSION, Server
from jobcontract_postgres.statements import query


class Sessions:
    """Where every call of the driver gets its connection."""

    def __init__(self, server: Server, schema: Schema, options: PostgresOptions) -> None:
        self._server = server
        self._schema = schema
        self._options = options
        self._pool = Pool(
            server.connect, size=options.pool_size, max_lifetime=options.max_lifetime.total_seconds()
        )
        self.timeout = options.timeout.total_seconds()
        """The deadline of a call, in seconds."""
        self._facts: Facts | None = None
        self._fits = False

    @contextmanager
    def session(self, *, checked: bool = True, seconds: float | None = None) -> Generator[Connection]:
        """A connection for one call of `seconds`. `checked`: only if the schema is of our version.

        psycopg's errors inside come out as `StoreError` and `StoreUnavailable`.
        """
        try:
            connection = self._pool.take(seconds or self.timeout)
            try:
                self.learn(connection)
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

    def run(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """One statement, committed when it returns."""
        with self.session() as connection:
            return self.send(connection, Statement(statement, parameters))

    def send(self, connection: Connection, statement: Statement) -> list[Row]:
        """`statement` on the connection of a session."""
        if self._begins:
            with connection.transaction():
                return _execute(connection, statement)
        return _execute(connection, statement)

    @property
    def facts(self) -> Facts:
        """What is known of the server; asks for it the first time."""
        if self._facts is None:
            with self.session(checked=False) as connection:
                return self.learn(connection)
        return self._facts

    def learn(self, connection: Connection) -> Facts:
        """Ask the server what it is, once, and set up the sessions accordingly."""
        if self._facts is None:
            facts = read_facts(connection)
            if not facts.pooled:
                connection.execute(SESSION)
                self._server.session = SESSION
            if facts.pooled and self._options.prepared_statements == "auto":
                connection.prepare_threshold = None
                self._server.prepares = False
            self._facts = facts
        return self._facts

    def may_listen(self, connection: Connection) -> bool:
        """Whether LISTEN can be relied on."""
        return self._options.listen == "on" or (
            self._options.listen == "auto" and not self.learn(connection).pooled
        )

    @property
    def _begins(self) -> bool:
        """Whether statements need a BEGIN that asks for READ COMMITTED, because the session could not be
        told.
        """
        facts = self._facts
        return facts is not None and facts.pooled and facts.isolation != "read committed"

    def forget_schema(self) -> None:
        """Look at the schema's version again before the next call."""
        self._fits = False

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


def _execute(connection: Connection, statement: Statement) -> list[Row]:
    return connection.execute(
        query(statement.sql), statement.parameters, prepare=True, binary=True
    ).fetchall()

"""A session per call: a pooled connection with a deadline, on a schema that is known to fit; errors as the
contract's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import psycopg

from jobcontract.errors import StoreError
from jobcontract.side_doors import Row, Statement
from jobcontract_postgres.capabilities import Facts, read_facts
from jobcontract_postgres.connection import Connection, Pool
from jobcontract_postgres.failures import from_statement, is_missing_object
from jobcontract_postgres.options import PostgresOptions
from jobcontract_postgres.schema import Schema
from jobcontract_postgres.server import Server
from jobcontract_postgres.statements import query

# For sessions of our own. Each verb is a walk along an index, and shall stay one whatever the statistics say:
# a plan that was made while the table was empty reads all of it once it is full. Not behind a pooler, where a
# setting would reach other clients; there nothing is prepared either, so that each plan sees the table as it
# is.
_SESSION: Final[LiteralString] = (
    "SELECT set_config('default_transaction_isolation', 'read committed', false),"
    " set_config('plan_cache_mode', 'force_generic_plan', false), set_config('jit', 'off', false),"
    " set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),"
    " set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false)"
)


class Session:
    """See `Sessions.session`. A class and no generator, for a registration waits for every microsecond."""

    __slots__ = ("_checked", "_connection", "_sessions")

    def __init__(self, sessions: Sessions, checked: bool) -> None:
        self._sessions = sessions
        self._checked = checked
        self._connection: Connection | None = None

    def __enter__(self) -> Connection:
        try:
            connection = self._connection = self._sessions.open(self._checked)
        except psycopg.Error as error:
            raise self._sessions.failure(error) from None
        return connection

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        assert self._connection is not None
        self._sessions.give_back(self._connection)
        if isinstance(error, psycopg.Error):
            raise self._sessions.failure(error) from None


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
        self._version = 0

    def session(self, *, checked: bool = True) -> Session:
        """A connection for one call, as a context. `checked`: only if the schema is of our version.

        psycopg's errors inside come out as `StoreError` and `StoreUnavailable`.
        """
        return Session(self, checked)

    def open(self, checked: bool) -> Connection:
        """What a `Session` begins with."""
        connection = self._pool.take(self.timeout)
        if not (connection.is_set_up and (self._fits or not checked)):
            try:
                self.set_up(connection)
                if checked and not self._fits:
                    self._version = self._schema.check(
                        self._schema.read_installed(connection), self._server.where
                    )
                    self._fits = True
            except BaseException:
                self._pool.give_back(connection)
                raise
        return connection

    def give_back(self, connection: Connection) -> None:
        """What a `Session` ends with."""
        self._pool.give_back(connection)

    def failure(self, error: psycopg.Error) -> StoreError:
        """What an error in a session means."""
        if is_missing_object(error):
            self._fits = False
        return from_statement(error, self._server.where)

    def run(self, statement: str, parameters: Sequence[object], *, checked: bool = True) -> list[Row]:
        """One statement, committed when it returns. `checked`: see `session`."""
        with self.session(checked=checked) as connection:
            return self.send(connection, Statement(statement, parameters))

    def send(self, connection: Connection, statement: Statement, *, small: bool = False) -> list[Row]:
        """`statement` on the connection of a session. `small`: with few rows, and sent often."""
        if self._begins:
            with connection.transaction():
                return _execute(connection, statement, small)
        return _execute(connection, statement, small)

    @property
    def schema_version(self) -> int:
        """The version of the installed schema; asks for it the first time. Raises `StoreError`."""
        if not self._fits:
            with self.session():
                pass
        return self._version

    @property
    def facts(self) -> Facts:
        """What is known of the server; asks for it the first time."""
        if self._facts is None:
            with self.session(checked=False) as connection:
                return self.set_up(connection)
        return self._facts

    def set_up(self, connection: Connection) -> Facts:
        """Make the session of a new connection ready for use; what is known of the server."""
        facts = self._facts
        if facts is None:
            facts = self._facts = read_facts(connection)
        if not connection.is_set_up:
            if not self._prepares(facts):
                connection.prepare_threshold = None
            if not facts.pooled:
                connection.execute(_SESSION)
            connection.is_set_up = True
        return facts

    def _prepares(self, facts: Facts) -> bool:
        setting = self._options.prepared_statements
        return setting == "on" or (setting == "auto" and not facts.pooled)

    def may_listen(self, connection: Connection) -> bool:
        """Whether LISTEN can be relied on."""
        facts = self.set_up(connection)
        return self._options.listen == "on" or (self._options.listen == "auto" and not facts.pooled)

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


def _execute(connection: Connection, statement: Statement, small: bool) -> list[Row]:
    text = query(statement.sql)
    cursor = connection.kept_cursor(text) if small else connection.cursor(binary=True)
    return cursor.execute(text, statement.parameters, prepare=True).fetchall()

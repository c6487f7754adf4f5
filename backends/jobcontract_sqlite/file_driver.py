"""The driver of a store in a file: what only a file has, its installation and the callers' own connections to
it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from jobcontract.contract import JobRecord, Registration
from jobcontract.errors import InvalidJob, StoreError
from jobcontract.side_doors import Ailment, Dialect, Expectations, Row, Statement, Step, Steps, Transaction
from jobcontract_sqlite import schema
from jobcontract_sqlite.connections import transaction
from jobcontract_sqlite.driver import SQLiteDriver
from jobcontract_sqlite.faults import store_error
from jobcontract_sqlite.options import SQLiteOptions
from jobcontract_sqlite.pool import FileConnections, check_directory
from jobcontract_sqlite.registering import register_steps

_WRITE_AHEAD_LOG = Step("write-ahead log", "PRAGMA journal_mode = WAL;\n")


class SQLiteFileDriver(SQLiteDriver):
    """`SQLiteDriver` with the doors `Installation`, `Diagnosis`, `JoinsTransactions` and `HostsTables`."""

    def __init__(self, connections: FileConnections, options: SQLiteOptions) -> None:
        super().__init__(connections, options)
        self._file = connections
        self._synchronous = options.synchronous

    def install(self, *, dry_run: bool = False) -> list[Step]:
        """As `Installation.install`. Makes the file, never its directory."""
        exists = os.path.exists(self._file.path)
        if not exists:
            check_directory(self._file.path, self._file.where)
            if dry_run:
                return [_WRITE_AHEAD_LOG, *schema.pending_steps(None, self._file.where)]
        with self._file.unchecked("rw" if exists else "rwc") as connection:
            logged = _journal_mode(connection) == "wal"
            if dry_run:
                steps = schema.pending_steps(connection, self._file.where)
            else:
                if not logged:
                    self._use_write_ahead_log(connection)
                with transaction(connection):
                    steps = schema.migrate(connection, self._file.where)
        return steps if logged else [_WRITE_AHEAD_LOG, *steps]

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        connection.execute(_WRITE_AHEAD_LOG.statements)
        if (mode := _journal_mode(connection)) != "wal":
            raise StoreError(
                f"{self._file.where} can't have a write-ahead log (journal_mode stays {mode}); "
                "put it on a local file system"
            )

    def diagnose(self, expected: Expectations) -> list[Ailment]:
        """As `Diagnosis.diagnose`. A file has no connections to count and nobody who holds it for long."""
        del expected
        with self._file.read() as connection:
            journal = _journal_mode(connection)
        found: list[Ailment] = []
        if journal != "wal":
            found.append(
                Ailment(
                    "journal_mode",
                    f"journal_mode is {journal}: readers and the writer block each other",
                    "run `jobctl init`, which sets it to wal",
                )
            )
        if self._synchronous == "OFF":
            found.append(
                Ailment(
                    "not_durable",
                    "synchronous is OFF: a loss of power can damage the whole file",
                    "set synchronous to FULL, or to NORMAL for a window",
                )
            )
        return found

    def clock(self) -> None:
        """As `Diagnosis.clock`: it is that of this process."""

    @property
    def dialect(self) -> Dialect:
        """As `JoinsTransactions.dialect`."""
        return "sqlite"

    def table(self, name: str) -> str:
        """As `HostsTables.table`."""
        return f"jobcontract_{name}"

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """As `HostsTables.transaction`."""
        with self._file.write() as connection:
            yield _Open(connection)

    def wake(self, topic: str) -> Statement | None:
        """As `HostsTables.wake`: SQLite tells no other process of a commit."""
        del topic
        return None

    def joining_steps(self, client: object) -> Steps[None]:
        """As `MeetsCallers.joining_steps`.

        A file that is attached beside the main database would not do: across files, a commit in WAL mode is
        not atomic.
        """
        del client  # its statement costs no round trip, and it can attach and detach
        databases = yield Statement("PRAGMA database_list", ())
        main = next((os.fsdecode(file or "") for _, name, file in databases if name in ("main", b"main")), "")
        if not self._is_own(main):
            raise InvalidJob(
                "connection",
                f"is open on {main or 'a database in memory'}, "
                f"and the jobs of this store live in {self._file.path}; connect to that file",
            )

    def register_steps(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        """As `JoinsTransactions.register_steps`."""
        try:
            return (yield from register_steps(records))
        except Exception as error:
            client = getattr(error, "orig", None) or error  # SQLAlchemy wraps the client's error
            if isinstance(client, sqlite3.Error):
                raise store_error(client, self._file.where) from error
            raise

    def _is_own(self, main: str) -> bool:
        try:
            return bool(main) and os.path.samefile(main, self._file.path)
        except OSError:
            return False


class _Open:
    """`Transaction`."""

    dialect: Dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: Statement) -> list[Row]:
        """As `Transaction.run`."""
        return self._connection.execute(statement.sql, tuple(statement.parameters)).fetchall()


def _journal_mode(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])

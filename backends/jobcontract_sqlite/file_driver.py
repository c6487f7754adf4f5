"""The driver of a store in a file: what only a file has, its installation and the callers' own connections to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence

from jobcontract.contract import Dialect, JobRecord, Registration, Statement, Step, Steps
from jobcontract.errors import InvalidJob, StoreError
from jobcontract_sqlite import schema
from jobcontract_sqlite.connections import FileConnections, transaction
from jobcontract_sqlite.driver import SQLiteDriver
from jobcontract_sqlite.faults import store_error
from jobcontract_sqlite.options import SQLiteOptions
from jobcontract_sqlite.registering import register_steps


class SQLiteFileDriver(SQLiteDriver):
    """`SQLiteDriver` with the doors `Installation` and `JoinsTransactions`."""

    def __init__(self, connections: FileConnections, options: SQLiteOptions) -> None:
        super().__init__(connections, options)
        self._file = connections

    def install(self, *, dry_run: bool = False) -> list[Step]:
        """As `Installation.install`. Creates the file, never its directory."""
        path = self._file.path
        if not path.parent.is_dir():
            raise StoreError(
                f"{self._file.where} can't be created: there is no directory {path.parent}; create it first"
            )
        if dry_run and not path.exists():
            return schema.pending_steps(0)
        with self._file.new() as connection:
            if dry_run:
                return schema.pending_steps(schema.installed_version(connection))
            (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if journal != "wal":
                raise StoreError(
                    f"{self._file.where} can't use a write-ahead log (journal_mode stays {journal}); put it on a local file system"
                )
            with transaction(connection):
                return schema.migrate(connection)

    @property
    def dialect(self) -> Dialect:
        """As `JoinsTransactions.dialect`."""
        return "sqlite"

    def register_steps(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        """As `JoinsTransactions.register_steps`. Refuses a connection whose main database is another file."""
        databases = yield Statement("PRAGMA database_list", ())
        main = next((str(file or "") for _, name, file in databases if name == "main"), "")
        if not self._is_own(main):
            raise InvalidJob(
                "connection",
                f"is open on {main or 'a database in memory'}, and the jobs live in {self._file.path}; connect to that file",
            )
        try:
            return (yield from register_steps(records))
        except sqlite3.Error as error:
            raise store_error(error, self._file.where) from error

    def _is_own(self, main: str) -> bool:
        try:
            return bool(main) and os.path.samefile(main, self._file.path)
        except OSError:
            return False

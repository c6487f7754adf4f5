"""One connection to SQLite: opening it, a write transaction on it, its errors as ours. And what a driver asks
of several.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Protocol

from jobcontract.errors import ConfigError
from jobcontract_sqlite.faults import store_error
from jobcontract_sqlite.options import SQLiteOptions

OLDEST_SQLITE = (3, 37, 0)  # STRICT tables; RETURNING (3.35) and UPDATE FROM (3.33) are older
_LARGEST_IDLE_WAL = 64 * 1024 * 1024


class Connections(Protocol):
    """Where a driver gets its connection for one transaction. Safe in threads.

    Everything raises `StoreUnavailable` when the busy timeout is over, and `StoreError`, never
    `sqlite3.Error`.
    """

    @property
    def where(self) -> str:
        """The store, as an error names it."""
        ...

    def write(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection in a write transaction, which commits at the end of the block and rolls back when it
        raises.
        """
        ...

    def read(self, timeout: timedelta | None = None) -> AbstractContextManager[sqlite3.Connection]:
        """A connection outside of any transaction, for one statement that only reads. `timeout` replaces a
        longer busy timeout.
        """
        ...

    def version(self) -> tuple[int, int]:
        """A value that differs from an earlier one when another process, or another thread, has committed
        since.
        """
        ...

    def close(self) -> None:
        """Close what is idle now, and the rest when it comes back. Safe to call twice."""
        ...


def check_library(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> None:
    """Raise `ConfigError` when the SQLite that Python runs on is too old."""
    if version < OLDEST_SQLITE:
        found, oldest = (".".join(map(str, each)) for each in (version, OLDEST_SQLITE))
        raise ConfigError(
            f"this Python runs on SQLite {found}, and jobcontract needs {oldest} or newer; "
            "use a newer Python build, or another store"
        )


def connect(uri: str, where: str, options: SQLiteOptions, patience: timedelta) -> sqlite3.Connection:
    """A connection with our settings, in autocommit mode, for one thread at a time, not always the same.

    It waits for locks for as long as `patience`.
    """
    with translated(where):
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=patience.total_seconds(),
            isolation_level=None,
            check_same_thread=False,
        )
    try:
        with translated(where):
            # Text that is not UTF-8 must be handed over like any other: raising here would stop the rows
            # around it.
            connection.text_factory = _any_text
            connection.execute(f"PRAGMA synchronous = {options.synchronous}")
            connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_IDLE_WAL}")
            if sys.platform == "darwin":
                # There fsync leaves the data in the drive's cache.
                connection.execute("PRAGMA fullfsync = 1")
    except BaseException:
        connection.close()
        raise
    return connection


def _any_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """A write transaction around the block. Takes the write lock first, so that nothing it reads is stale."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors (a full disk) SQLite has rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translated(where: str) -> Generator[None]:
    """SQLite's errors in the block become ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, where) from error

"""SQLite connections: one writer at a time, readers beside it, and none of them across a fork.

SQLite lets one connection of all processes write. Within a process the writers queue up at a lock of ours, in turn, instead of
polling the file's lock against each other; between processes SQLite's busy handler waits. Both waits together are bounded by the
busy timeout.

A SQLite connection must not cross a fork: the child would believe in file locks that only its parent holds. `FileConnections`
therefore closes its connections right before a fork, when no statement is under way, and opens new ones on the next call.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from jobcontract.errors import ConfigError, StoreError
from jobcontract_sqlite.faults import locked, store_error
from jobcontract_sqlite.options import SQLiteOptions
from jobcontract_sqlite.schema import check_version, migrate

OLDEST_SQLITE = (3, 37, 0)  # STRICT tables; RETURNING and UPDATE FROM are older
_LARGEST_IDLE_WAL = 64 * 1024 * 1024


class Connections(Protocol):
    """Where a driver gets its connection for one transaction."""

    @property
    def where(self) -> str:
        """The store, as an error names it."""
        ...

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A connection in a write transaction, which commits at the end of the block and rolls back when it raises."""
        ...

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection outside of any transaction, for one statement that only reads."""
        ...

    def version(self) -> tuple[int, int]:
        """A value that differs from an earlier one when another connection has committed since."""
        ...

    def close(self) -> None:
        """Close what is idle now, and the rest when it comes back. Safe to call twice."""
        ...


class MemoryConnection:
    """A store in memory: one connection, one user at a time. It belongs to the process that made it."""

    where = "the store in memory"

    def __init__(self, options: SQLiteOptions) -> None:
        check_library()
        self._timeout = options.busy_timeout
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = connect("file::memory:", self.where, options)
        with self.write() as connection:
            migrate(connection)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """As `Connections.read`."""
        if os.getpid() != self._process:
            raise StoreError(
                "the store in memory belongs to the process that opened it; use sqlite:///FILE to share jobs between processes"
            )
        if not self._lock.acquire(timeout=self._timeout.total_seconds()):
            raise locked(self.where, self._timeout)
        try:
            if self._connection is None:
                raise StoreError(f"{self.where} was closed")
            with translated(self.where):
                yield self._connection
        finally:
            self._lock.release()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """As `Connections.write`."""
        with self.read() as connection, transaction(connection):
            yield connection

    def version(self) -> tuple[int, int]:
        """Never changes: nobody else can write here."""
        return 0, 0

    def close(self) -> None:
        """As `Connections.close`. The jobs are gone."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


class FileConnections:
    """The connections of one process to one file."""

    def __init__(self, path: Path, options: SQLiteOptions) -> None:
        check_library()
        self.path = path
        self.where = f"the SQLite store {path}"
        self._options = options
        self._timeout = options.busy_timeout
        self._writing = threading.Lock()
        # Guards what follows. `_in_use` counts the connections that are out; a fork waits until there are none.
        self._state = threading.Condition()
        self._idle: list[sqlite3.Connection] = []
        self._watch: sqlite3.Connection | None = None
        self._watch_serial = 0
        self._in_use = 0
        self._forking = False
        self._closed = False
        _live.add(self)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """As `Connections.read`."""
        with translated(self.where), self._lent(self._timeout) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """As `Connections.write`."""
        started = time.monotonic()
        if not self._writing.acquire(timeout=self._timeout.total_seconds()):
            raise locked(self.where, self._timeout)
        try:
            left = self._timeout - timedelta(seconds=time.monotonic() - started)
            with translated(self.where), self._lent(left) as connection, transaction(connection):
                yield connection
        finally:
            self._writing.release()

    def version(self) -> tuple[int, int]:
        """As `Connections.version`: asks a connection of its own, which never writes, and touches no table."""
        with translated(self.where), self._out():
            with self._state:
                if self._watch is None:
                    self._watch = self._open()
                    self._watch_serial += 1
                try:
                    found = self._watch.execute("PRAGMA data_version").fetchone()
                except sqlite3.Error:
                    self._watch.close()
                    self._watch = None
                    raise
            return self._watch_serial, int(found[0])

    def close(self) -> None:
        """As `Connections.close`."""
        with self._state:
            self._closed = True
            self._close_idle()

    @contextmanager
    def new(self) -> Iterator[sqlite3.Connection]:
        """A connection to a file that may not exist yet, and whose schema is not checked."""
        with translated(self.where), self._out():
            connection = connect(uri_of(self.path, "rwc"), self.where, self._options)
            try:
                yield connection
            finally:
                connection.close()

    @contextmanager
    def _lent(self, timeout: timedelta) -> Iterator[sqlite3.Connection]:
        with self._out():
            with self._state:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = self._open()
            try:
                connection.execute(f"PRAGMA busy_timeout = {max(1, timeout // timedelta(milliseconds=1))}")
                yield connection
            except BaseException:
                # Cheap to open again, and not worth finding out whether it is still good.
                connection.close()
                raise
            with self._state:
                if self._closed:
                    connection.close()
                else:
                    self._idle.append(connection)

    @contextmanager
    def _out(self) -> Iterator[None]:
        with self._state:
            if self._closed:
                raise StoreError(f"{self.where} was closed")
            if not self._state.wait_for(lambda: not self._forking, self._timeout.total_seconds()):
                raise locked(self.where, self._timeout)
            self._in_use += 1
        try:
            yield
        finally:
            with self._state:
                self._in_use -= 1
                self._state.notify_all()

    def _open(self) -> sqlite3.Connection:
        if not self.path.exists():
            if not self.path.parent.is_dir():
                raise StoreError(
                    f"{self.where} can't be opened: there is no directory {self.path.parent}; create it and run `jobctl init`"
                )
            raise StoreError(f"{self.where} does not exist yet; run `jobctl init`")
        connection = connect(uri_of(self.path, "rw"), self.where, self._options)
        try:
            check_version(connection, self.where)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close_idle(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def before_fork(self) -> None:
        """Let nobody in, wait until everybody is out, and leave no connection for the child to inherit."""
        self._state.acquire()
        self._forking = True
        self._state.wait_for(lambda: self._in_use == 0, self._timeout.total_seconds())
        self._close_idle()

    def after_fork(self) -> None:
        """In the parent: go on."""
        self._forking = False
        self._state.notify_all()
        self._state.release()

    def after_fork_in_child(self) -> None:
        """In the child: the threads that held or awaited the locks are not here."""
        self._writing = threading.Lock()
        self._state = threading.Condition()
        self._in_use = 0
        self._forking = False


_live: weakref.WeakSet[FileConnections] = weakref.WeakSet()


def _before_fork() -> None:
    for connections in list(_live):
        connections.before_fork()


def _after_fork() -> None:
    for connections in list(_live):
        connections.after_fork()


def _after_fork_in_child() -> None:
    for connections in list(_live):
        connections.after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def check_library() -> None:
    """Raise `ConfigError` when the SQLite that Python runs on is too old."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise ConfigError(
            f"this Python runs on SQLite {sqlite3.sqlite_version}, jobcontract needs {oldest} or newer; "
            "use a newer Python build, or another store"
        )


def uri_of(path: Path, mode: str) -> str:
    """`path` for SQLite, which would read '?' and '%' in it otherwise."""
    return f"file:{quote(str(path))}?mode={mode}"


def connect(uri: str, where: str, options: SQLiteOptions) -> sqlite3.Connection:
    """A connection with our settings, in autocommit mode, usable from any one thread at a time."""
    with translated(where):
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=options.busy_timeout.total_seconds(),
            isolation_level=None,
            check_same_thread=False,
        )
    try:
        with translated(where):
            # A row may hold text that is not UTF-8. It must be handed over; raising here would stop the rows around it.
            connection.text_factory = _any_text
            connection.execute(f"PRAGMA synchronous = {options.synchronous}")
            connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_IDLE_WAL}")
            if sys.platform == "darwin":
                # macOS's fsync leaves the data in the drive's cache.
                connection.execute("PRAGMA fullfsync = 1")
    except BaseException:
        connection.close()
        raise
    return connection


def _any_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A write transaction around the block: takes the write lock first, so that nothing it reads is stale."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself has rolled back after some errors (a full disk).
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translated(where: str) -> Iterator[None]:
    """SQLite's errors in the block become ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, where) from error

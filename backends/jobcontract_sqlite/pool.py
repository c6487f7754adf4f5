"""The connections of one process to one file: one writer at a time, readers beside it, and none of them
across a fork.

SQLite lets one connection of all processes write. Within a process the writers queue up at a lock of ours, in
turn, instead of polling the file's lock against each other; between processes SQLite's busy handler waits.
Both waits together are bounded by the busy timeout.

A connection must not cross a fork: the child would believe in file locks that only its parent holds, and
closing the child's copy can damage the file. So `FileConnections` closes its connections right before a fork,
when no statement is under way, and both processes open new ones with their next call.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from jobcontract.errors import InstallationError, StoreUnavailable
from jobcontract_sqlite.connections import check_library, connect, transaction, translated
from jobcontract_sqlite.faults import locked
from jobcontract_sqlite.options import SQLiteOptions
from jobcontract_sqlite.schema import check_version


class FileConnections:
    """`Connections` to the file at `path`. Opened when they are needed, kept for the next call."""

    def __init__(self, path: Path, options: SQLiteOptions) -> None:
        check_library()
        self.path = path
        self.where = f"the SQLite store {path}"
        self._options = options
        self._timeout = options.busy_timeout
        self._forget_locks()
        self._idle: list[sqlite3.Connection] = []
        self._watch: sqlite3.Connection | None = None
        self._watch_serial = 0
        self._closed = False
        _pools.add(self)

    def _forget_locks(self) -> None:
        self._writing = threading.Lock()
        self._watching = threading.Lock()
        # Guards the counters and the lists. `_in_use` counts connections that are out; a fork waits until
        # there are none.
        self._state = threading.Condition()
        self._in_use = 0
        self._forking = False

    @contextmanager
    def read(self, timeout: timedelta | None = None) -> Generator[sqlite3.Connection]:
        """As `Connections.read`."""
        patience = self._timeout if timeout is None else min(timeout, self._timeout)
        with translated(self.where), self._lent(patience) as connection:
            yield connection

    @contextmanager
    def write(self) -> Generator[sqlite3.Connection]:
        """As `Connections.write`."""
        started = time.monotonic()
        if not self._writing.acquire(timeout=self._timeout.total_seconds()):
            raise locked(self.where, self._timeout)
        try:
            left = max(self._timeout - timedelta(seconds=time.monotonic() - started), timedelta(0))
            with translated(self.where), self._lent(left) as connection, transaction(connection):
                yield connection
        finally:
            self._writing.release()

    def version(self) -> tuple[int, int]:
        """As `Connections.version`: asks a connection of its own, which never writes, reads no table and
        never waits for a lock.
        """
        with translated(self.where), self._watching, self._out():
            if self._watch is None:
                self._watch = self._open(timedelta(0))
                self._watch_serial += 1
            try:
                (version,) = self._watch.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error:
                self._watch.close()
                self._watch = None
                raise
            return self._watch_serial, version

    @contextmanager
    def unchecked(self, mode: str) -> Generator[sqlite3.Connection]:
        """A connection of its own to a file that may have no schema yet; in `mode` "rwc" not even the file
        need be there.
        """
        with translated(self.where), self._out():
            connection = connect(self._uri(mode), self.where, self._options, self._timeout)
            try:
                yield connection
            finally:
                connection.close()

    def close(self) -> None:
        """As `Connections.close`."""
        with self._watching, self._state:
            self._closed = True
            self._close_idle()

    @contextmanager
    def _lent(self, patience: timedelta) -> Generator[sqlite3.Connection]:
        with self._out():
            with self._state:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = self._open(patience)
            try:
                connection.execute(f"PRAGMA busy_timeout = {patience // timedelta(milliseconds=1)}")
                yield connection
            except BaseException:
                # A new one costs less than finding out whether this one is still good.
                connection.close()
                raise
            with self._state:
                if self._closed:
                    connection.close()
                else:
                    self._idle.append(connection)

    @contextmanager
    def _out(self) -> Generator[None]:
        with self._state:
            if not self._state.wait_for(lambda: not self._forking, self._timeout.total_seconds()):
                raise locked(self.where, self._timeout)
            if self._closed:
                # Not for good: a `Backend` that is used again opens a new driver.
                raise StoreUnavailable(f"{self.where} was closed by this process")
            self._in_use += 1
        try:
            yield
        finally:
            with self._state:
                self._in_use -= 1
                self._state.notify_all()

    def _open(self, patience: timedelta) -> sqlite3.Connection:
        if not os.path.exists(self.path):
            check_directory(self.path, self.where)
            raise InstallationError(f"{self.where} does not exist yet; run `jobctl init`")
        connection = connect(self._uri("rw"), self.where, self._options, patience)
        try:
            check_version(connection, self.where)
        except BaseException:
            connection.close()
            raise
        return connection

    def _uri(self, mode: str) -> str:
        # SQLite would read '?', '#' and '%' of a plain path.
        return f"file:{quote(str(self.path))}?mode={mode}"

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
        """In the child: the threads that held the locks, or waited for them, are not here."""
        self._forget_locks()


def check_directory(path: Path, where: str) -> None:
    """Raise `InstallationError` when the directory of `path` is not there: SQLite makes no directories."""
    if not os.path.isdir(path.parent):
        raise InstallationError(f"{where} has no directory: create {path.parent}, then run `jobctl init`")


_pools: weakref.WeakSet[FileConnections] = weakref.WeakSet()
_forking = threading.Lock()  # two threads may fork at once
_forked: list[FileConnections] = []  # the pools that `_before_fork` has stopped


def _before_fork() -> None:
    _forking.acquire()
    _forked[:] = _pools
    for pool in _forked:
        pool.before_fork()


def _after_fork() -> None:
    for pool in _forked:
        pool.after_fork()
    _forked.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    for pool in _forked:
        pool.after_fork_in_child()
    _forked.clear()
    _forking.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)

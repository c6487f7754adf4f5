"""A store in memory: the test double. It keeps every clause but durability, on the same statements."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from jobcontract.errors import StoreError
from jobcontract_sqlite.connections import check_library, connect, transaction, translated
from jobcontract_sqlite.faults import locked
from jobcontract_sqlite.options import SQLiteOptions
from jobcontract_sqlite.schema import migrate


class MemoryConnection:
    """`Connections` in memory: one connection, which the threads of one process use in turn."""

    where = "the SQLite store in memory"

    def __init__(self, options: SQLiteOptions) -> None:
        check_library()
        self._timeout = options.busy_timeout
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = connect(
            "file::memory:", self.where, options, self._timeout
        )
        with self.write() as connection:
            migrate(connection, self.where)

    @contextmanager
    def read(self, timeout: timedelta | None = None) -> Generator[sqlite3.Connection]:
        """As `Connections.read`. Raises `StoreError` in a forked child, whose copy nobody else would see."""
        if os.getpid() != self._process:
            raise StoreError(
                f"{self.where} belongs to the process that opened it; "
                "use sqlite:///FILE to share jobs between processes"
            )
        patience = self._timeout if timeout is None else min(timeout, self._timeout)
        if not self._lock.acquire(timeout=patience.total_seconds()):
            raise locked(self.where, self._timeout)
        try:
            if self._connection is None:
                raise StoreError(f"{self.where} was closed, and its jobs with it")
            with translated(self.where):
                yield self._connection
        finally:
            self._lock.release()

    @contextmanager
    def write(self) -> Generator[sqlite3.Connection]:
        """As `Connections.write`."""
        with self.read() as connection, transaction(connection):
            yield connection

    def version(self) -> tuple[int, int]:
        """As `Connections.version`. Always the same: whoever writes here wakes the driver's waiters."""
        return 0, 0

    def close(self) -> None:
        """As `Connections.close`. The jobs are gone."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

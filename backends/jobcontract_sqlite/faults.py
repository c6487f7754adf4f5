"""What SQLite says when it can't, in our own error tree and in one sentence."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from jobcontract.durations import format_duration
from jobcontract.errors import InstallationError, StoreError, StoreUnavailable


def store_error(error: sqlite3.Error, where: str) -> StoreError:
    """`error`, met at the store called `where`, as what the contract lets a driver raise."""
    # The low byte is the primary result code, the rest says which variant of it.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return StoreUnavailable(
            f"{where} was written by somebody else after this transaction began to read; "
            "roll back and run it again, or begin it with BEGIN IMMEDIATE"
        )
    if str(error).startswith("no such table: jobcontract_"):
        return InstallationError(f"{where} holds no job queue yet; run `jobctl init`")
    match code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return locked(where)
        case sqlite3.SQLITE_INTERRUPT | sqlite3.SQLITE_PROTOCOL | sqlite3.SQLITE_NOMEM:
            return StoreUnavailable(f"{where} could not be read or written just now: {error}; try again")
        case sqlite3.SQLITE_FULL:
            # As with every other store that is full: what can't be stored now is no fault of the job.
            return StoreUnavailable(
                f"{where} can't grow: the disk or the file's quota is full; free some space"
            )
        case sqlite3.SQLITE_READONLY:
            return StoreError(
                f"{where} can't be written: {error}; "
                "give this process write access to the file and its directory"
            )
        case sqlite3.SQLITE_CORRUPT:
            return StoreError(
                f"{where} is damaged: {error}; "
                "restore a backup, or save what is left with `sqlite3 FILE .recover`"
            )
        case sqlite3.SQLITE_NOTADB:
            return StoreError(f"{where} is not a SQLite database; point the URL at another file")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreError(
                f"{where} can't be opened: {error}; check that its directory exists and may be written"
            )
        case sqlite3.SQLITE_IOERR:
            return StoreError(f"{where} met an I/O error: {error}; check the disk and the file system")
        case _:
            return StoreError(f"{where} refused a statement: {error}")


def locked(where: str, timeout: timedelta | None = None) -> StoreUnavailable:
    """Another thread or process holds the write lock for longer than the busy timeout."""
    waited = f" for longer than {format_duration(timeout)}" if timeout else ""
    return StoreUnavailable(
        f"{where} is locked by another writer{waited} (busy_timeout); "
        "try again, or keep transactions on it short",
        nothing_written=True,  # the lock is taken before the first write
    )

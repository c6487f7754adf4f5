"""What a SQLite store can do, read from the library and the options in force."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from jobcontract.contract import (
    Capabilities,
    Deduplication,
    Driver,
    Durability,
    Scheduling,
    TimedLease,
    Transactional,
)
from jobcontract.side_doors import JoinsTransactions, side_doors_of
from jobcontract_sqlite.connections import Connections
from jobcontract_sqlite.options import SQLiteOptions
from jobcontract_sqlite.pool import FileConnections

_DURABILITY = {"FULL": Durability.FSYNC, "NORMAL": Durability.WINDOW, "OFF": Durability.MEMORY}
_NOTES = {
    "NORMAL": (
        "synchronous=NORMAL: a loss of power loses the commits since the last checkpoint; "
        "synchronous=FULL keeps them"
    ),
    "OFF": (
        "synchronous=OFF: a killed process loses nothing, but a loss of power can lose or damage the "
        "whole file; synchronous=FULL keeps it"
    ),
}
# https://sqlite.org/wal.html, "The WAL-Reset Bug": a race between a checkpoint and a commit that restarts the
# WAL.
_WAL_RESET_FIXED = (3, 51, 3)
_WAL_RESET_BACKPORTS = ((3, 44, 6), (3, 50, 7))
_LONGEST_LEASE = timedelta(days=366)


def capabilities_of(driver: Driver, connections: Connections, options: SQLiteOptions) -> Capabilities:
    """The declaration of `driver`. Contacts the file once."""
    in_file = isinstance(connections, FileConnections)
    notes: list[str] = []
    if in_file:
        with connections.read() as connection:
            (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        if journal != "wal":
            notes.append(
                f"journal_mode is {journal}, so that readers and the writer block each other; "
                "`jobctl init` sets it to wal"
            )
        if options.synchronous in _NOTES:
            notes.append(_NOTES[options.synchronous])
        if has_wal_reset_bug(sqlite3.sqlite_version_info):
            notes.append(
                f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (3.7.0 to 3.51.2): very rarely, a "
                "checkpoint racing with a commit damages the file; upgrade to 3.51.3 (3.50.7, 3.44.6), "
                "unless your distribution has mended it in its own build"
            )
    return Capabilities(
        store=f"SQLite {sqlite3.sqlite_version}" + ("" if in_file else " in memory"),
        deduplication=Deduplication.RETENTION,
        lease=TimedLease(shortest=timedelta(milliseconds=1), longest=_LONGEST_LEASE),
        scheduling=Scheduling(resolution=timedelta(milliseconds=1)),
        priority_levels=10,
        durability=_DURABILITY[options.synchronous] if in_file else Durability.MEMORY,
        transactional=Transactional.SAME if isinstance(driver, JoinsTransactions) else Transactional.NONE,
        max_register_batch=1000,
        max_input_ref_bytes=16 * 1024 * 1024,
        side_doors=side_doors_of(driver),
        notes=tuple(notes),
    )


def has_wal_reset_bug(version: tuple[int, int, int]) -> bool:
    """Whether SQLite `version`, as its authors released it, can damage a file in WAL mode."""
    if not (3, 7, 0) <= version < _WAL_RESET_FIXED:
        return False
    return not any(version[:2] == mended[:2] and version >= mended for mended in _WAL_RESET_BACKPORTS)

"""The store's own objects: numbered forward migrations, and the check that code and file fit together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from jobcontract.errors import InstallationError
from jobcontract.side_doors import Step


class Migration(NamedTuple):
    """One step forward."""

    version: int
    name: str
    script: str


def _migrations() -> list[Migration]:
    found = [
        Migration(int(entry.name[:3]), entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in (files("jobcontract_sqlite") / "schema").iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found)


MIGRATIONS = _migrations()
CURRENT_VERSION = MIGRATIONS[-1].version


def installed_version(connection: sqlite3.Connection) -> int:
    """The schema version of the open file, 0 when nothing is installed."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'jobcontract_schema'").fetchone():
        return 0
    return int(connection.execute("SELECT coalesce(max(version), 0) FROM jobcontract_schema").fetchone()[0])


def check_version(connection: sqlite3.Connection, where: str) -> None:
    """Raise `InstallationError` unless this code can work with what is installed."""
    version = installed_version(connection)
    if version == CURRENT_VERSION:
        return
    if version == 0:
        raise InstallationError(f"{where} holds no job queue yet; run `jobctl init`")
    if version < CURRENT_VERSION:
        raise InstallationError(
            f"{where} has schema version {version}, and this jobcontract needs {CURRENT_VERSION}; "
            "run `jobctl init`"
        )
    raise _too_new(version, where)


def pending_steps(connection: sqlite3.Connection | None, where: str) -> list[Step]:
    """What brings the open file, or one that is not there yet (None), to the current version.

    Raises `InstallationError` when the file is ahead of this code.
    """
    version = 0 if connection is None else installed_version(connection)
    if version > CURRENT_VERSION:
        raise _too_new(version, where)
    return [
        Step(
            f"schema {each.name}",
            f"{each.script}\nINSERT INTO jobcontract_schema (version) VALUES ({each.version});\n",
        )
        for each in MIGRATIONS
        if each.version > version
    ]


def migrate(connection: sqlite3.Connection, where: str) -> list[Step]:
    """Take the pending steps, inside the caller's write transaction, and tell them."""
    steps = pending_steps(connection, where)
    for step in steps:
        for statement in _split(step.statements):
            connection.execute(statement)
    return steps


def _too_new(version: int, where: str) -> InstallationError:
    return InstallationError(
        f"{where} has schema version {version}, and this jobcontract knows {CURRENT_VERSION} at most; "
        "upgrade jobcontract"
    )


def _split(script: str) -> Iterator[str]:
    # executescript() would commit the transaction that the caller holds.
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""

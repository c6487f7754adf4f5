"""The store's own objects: numbered forward migrations, and the check that code and file fit together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from jobcontract.contract import Step
from jobcontract.errors import StoreError

VERSION_TABLE = """\
CREATE TABLE jobcontract_schema (
    version      INTEGER NOT NULL PRIMARY KEY,
    installed_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT"""


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
    """Raise `StoreError` unless this code can work with what is installed."""
    version = installed_version(connection)
    if version == CURRENT_VERSION:
        return
    if version == 0:
        raise StoreError(f"{where} holds no job queue yet; run `jobctl init`")
    if version < CURRENT_VERSION:
        raise StoreError(
            f"{where} has schema version {version}, and this jobcontract needs {CURRENT_VERSION}; "
            "run `jobctl init`"
        )
    raise StoreError(
        f"{where} has schema version {version}, and this jobcontract knows {CURRENT_VERSION} at most; "
        "upgrade jobcontract"
    )


def pending_steps(version: int) -> list[Step]:
    """What leads from `version` to the current one."""
    return [Step(f"schema {each.name}", each.script) for each in MIGRATIONS if each.version > version]


def migrate(connection: sqlite3.Connection) -> list[Step]:
    """Bring the file to the current version, inside the caller's write transaction. The steps that were
    taken.
    """
    version = installed_version(connection)
    if version > CURRENT_VERSION:
        return []
    if version == 0:
        connection.execute(VERSION_TABLE)
    for each in MIGRATIONS:
        if each.version > version:
            for statement in _split(each.script):
                connection.execute(statement)
            connection.execute("INSERT INTO jobcontract_schema (version) VALUES (?)", (each.version,))
    return pending_steps(version)


def _split(script: str) -> Iterator[str]:
    # executescript() would commit the transaction that the caller holds.
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""

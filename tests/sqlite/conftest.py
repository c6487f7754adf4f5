"""A SQLite store per test, and a hand on its clock."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.sqlite.stores import Advance, Edit, FileStore, opened


@pytest.fixture(autouse=True)
def close_what_was_opened() -> Iterator[None]:
    """After each test, close the drivers that it opened: an open connection is an error of its own."""
    yield
    for driver in list(opened):
        driver.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of this test is; nothing is there yet."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[FileStore]:
    """An installed store in a file."""
    opened = FileStore(path)
    opened.driver.install()
    yield opened
    opened.close()


@pytest.fixture
def edit(path: Path) -> Iterator[Edit]:
    """Runs a statement on the file by another connection, as somebody with the sqlite3 shell would."""
    connection = sqlite3.connect(path, isolation_level=None)

    def edit(sql: str, *parameters: object) -> list[tuple[object, ...]]:
        return connection.execute(sql, parameters).fetchall()

    yield edit
    connection.close()


@pytest.fixture
def advance(path: Path) -> Iterator[Advance]:
    """Sets the store's clock forward, for every process on the file: its definition is a view there."""
    connection = sqlite3.connect(path, isolation_level=None)

    def advance(step: timedelta) -> None:
        (definition,) = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE name = 'jobcontract_clock'"
        ).fetchone()
        later = f"{definition} + {step // timedelta(microseconds=1)}"
        connection.executescript(f"BEGIN; DROP VIEW jobcontract_clock; {later}; COMMIT;")

    yield advance
    connection.close()

"""The SQLite driver keeps the contract, in a file and in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from jobcontract.conformance import ConformanceSuite, Harness, Transactions


class MemoryHarness(Harness):
    """``sqlite://``: a store inside of its driver."""

    several_clients = False

    def create(self) -> str:
        return "sqlite://"


class FileHarness(Harness):
    """A file of its own for each store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self) -> str:
        return f"sqlite:///{self.directory / uuid4().hex}.db"

    def transactions(self, url: str) -> Transactions:
        return {"sqlite3": partial(_transaction, url)}

    def corrupt(self, url: str, job_id: str, input_ref: str) -> None:
        with closing(_connect(url)) as connection, connection:
            connection.execute("UPDATE jobcontract_jobs SET input_ref = ? WHERE id = ?", (input_ref, job_id))


def _connect(url: str) -> sqlite3.Connection:
    return sqlite3.connect(url.removeprefix("sqlite:///"))


@contextmanager
def _transaction(url: str) -> Generator[sqlite3.Connection]:
    with closing(_connect(url)) as connection, connection:
        yield connection


class TestMemory(ConformanceSuite):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness()


class TestFile(ConformanceSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return FileHarness(tmp_path)

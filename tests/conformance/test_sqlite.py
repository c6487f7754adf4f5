"""The SQLite driver keeps the contract, in a file and in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from jobcontract.conformance import ConformanceSuite, Harness, Transactions
from tests.conformance.transactions import transactions_of
from tests.connections.callers import SQLITE


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
        return transactions_of(SQLITE, url)

    def corrupt(self, url: str, job_id: str, input_ref: str) -> None:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("UPDATE jobcontract_jobs SET input_ref = ? WHERE id = ?", (input_ref, job_id))


class TestMemory(ConformanceSuite):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness()


class TestFile(ConformanceSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return FileHarness(tmp_path)

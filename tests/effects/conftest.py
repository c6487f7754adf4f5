"""A database with a table for results, and the callers that write to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobcontract import Job
from jobcontract.connections import bind
from jobcontract.effects import create_effects_table
from jobcontract.side_doors import Statement
from tests.connections.callers import Caller, Psycopg, SQLite
from tests.servers.postgres import PostgresServer


@dataclass
class Running:
    """All that `once` asks of a claim or a context."""

    job: Job


@pytest.fixture
def store() -> str:
    """Which database a test gets that does not choose one."""
    return "postgres"


@pytest.fixture
def url(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A fresh database of the kind `store`."""
    if store == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(database=server.create_database())


@pytest.fixture
def plain(store: str) -> Callable[[str], Caller]:
    """The client library's own connection, for what a test does beside its caller."""
    return SQLite if store == "sqlite" else Psycopg


@pytest.fixture
def installed(url: str, plain: Callable[[str], Caller]) -> None:
    """The application's database, with the table of effects and one for results."""
    caller = plain(url)
    connection = caller.begin()
    create_effects_table(connection)
    connection.execute("CREATE TABLE results (job text NOT NULL)")
    caller.commit()
    caller.close()


@pytest.fixture
def caller(url: str, kind: Callable[[str], Caller], installed: None) -> Iterator[Caller]:
    """The application."""
    made = kind(url)
    yield made
    made.close()


def write_result(connection: object, text: str) -> None:
    """A row of the application, by whatever library."""
    bound = bind(connection)
    mark = "%s" if bound.dialect == "postgresql" else "?"
    bound.run(Statement(f"INSERT INTO results VALUES ({mark})", (text,)))

"""`jobctl doctor` on servers of its own, where a test may do harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobcontract import Backend, get_backend
from tests.cli.conftest import folder, invoke, logging_as_before
from tests.servers.binaries import Programs
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

__all__ = ["folder", "logging_as_before"]

Doctor = Callable[..., dict[str, str]]


def consult(*arguments: object) -> dict[str, str]:
    """What `jobctl doctor` finds: each ailment by its name, as finding and remedy in one text."""
    found = invoke("doctor", *arguments, "--json")
    assert found.code == (1 if found.json() else 0), found
    return {each["ailment"]: f"{each['finding']} -> {each['remedy']}" for each in found.json()}


@pytest.fixture
def doctor() -> Doctor:
    """Runs `jobctl doctor`."""
    return consult


@pytest.fixture(scope="module")
def postgres(postgres_programs: Programs) -> Iterator[PostgresServer]:
    """A server that syncs, with room for prepared transactions and few connections."""
    settings = {"max_prepared_transactions": "5", "wal_level": "logical"}
    with PostgresServer(programs=postgres_programs, max_connections=40, settings=settings) as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """An empty database."""
    name = postgres.create_database()
    yield name
    postgres.drop_database(name)


@pytest.fixture
def url(postgres: PostgresServer, database: str) -> str:
    """Where the installed store is."""
    found = postgres.url(database)
    with get_backend(found) as backend:
        backend.install()
    return found


@pytest.fixture
def redis_own(redis_programs: Programs) -> Iterator[RedisServer]:
    """A Redis for a test that changes its settings."""
    with RedisServer(programs=redis_programs) as server:
        yield server


@pytest.fixture
def redis_url(redis_own: RedisServer) -> str:
    """Where the installed store is."""
    with get_backend(redis_own.url()) as backend:
        backend.install()
    return redis_own.url()


def configure(folder: Path, text: str) -> None:
    """`text` is the configuration of the folder."""
    (folder / "jobcontract.toml").write_text(text)


def installed(url: str) -> Backend:
    """The installed store at `url`."""
    backend = get_backend(url)
    backend.install()
    return backend

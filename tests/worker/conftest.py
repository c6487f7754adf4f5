"""Stores for workers: each test of the contract runs on all of them, the others on the quickest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobcontract import Backend, Handlers, get_backend
from jobcontract.config import Settings


def open_installed(url: str) -> Backend:
    """A backend at `url` that has what it needs."""
    backend = get_backend(url, settings=Settings())
    backend.install()
    return backend


@pytest.fixture
def memory() -> Iterator[Backend]:
    """A store in memory, for what is the same on every store."""
    with open_installed("sqlite://") as backend:
        yield backend


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database."""
    server = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture(params=["sqlite in memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is; one after the other."""
    match request.param:
        case "sqlite in memory":
            return "sqlite://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/jobs.db"
        case _:
            return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is that several processes can use."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(url: str) -> Iterator[Backend]:
    """A store, one after the other."""
    with open_installed(url) as backend:
        yield backend


@pytest.fixture
def handlers() -> Handlers:
    """An empty registry."""
    return Handlers()

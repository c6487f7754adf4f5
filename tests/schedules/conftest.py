"""Stores that can have schedules: each of the four, RabbitMQ behind an outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobcontract import Backend, get_backend
from jobcontract.config import Settings, load_settings

STORES = ["sqlite", "postgresql", "redis", "redis behind an outbox", "rabbitmq behind an outbox"]


@pytest.fixture(params=STORES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """A configuration whose default store is installed; one after the other."""
    store: str = request.param
    host = f"sqlite:///{tmp_path}/host.db"
    with ExitStack() as stack:
        match store.partition(" ")[0]:
            case "sqlite":
                url = f"sqlite:///{tmp_path}/jobs.db"
            case "postgresql":
                url = str(request.getfixturevalue("postgres_url"))
            case "redis":
                url = f"{request.getfixturevalue('redis_server').url()}?namespace={tmp_path.name.lower()}"
            case _:
                server = request.getfixturevalue("rabbitmq_server")
                url = server.url(server.create_vhost())
        file = tmp_path / "jobcontract.toml"
        outbox = 'outbox = "host"' if "outbox" in store else ""
        file.write_text(
            f'default = "queue"\n[backends.queue]\nurl = "{url}"\n{outbox}\n[backends.host]\nurl = "{host}"\n'
        )
        found = load_settings(file, environment={})
        with get_backend(settings=found) as backend:
            backend.install()
        yield found
        stack.close()


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database."""
    server = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def connect(settings: Settings) -> Iterator[Callable[[], Backend]]:
    """Opens a further client of the store."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(get_backend(settings=settings))


@pytest.fixture
def store(connect: Callable[[], Backend]) -> Backend:
    """The store."""
    return connect()


@pytest.fixture
def memory() -> Iterator[Backend]:
    """A store in memory, for what is the same on every store."""
    with get_backend("sqlite://", settings=Settings()) as backend:
        backend.install()
        yield backend

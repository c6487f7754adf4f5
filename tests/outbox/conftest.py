"""An outbox on each SQL store, in front of each kind of target."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.outbox.stage import Stage
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

MakeStage = Callable[..., Stage]


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture(params=["postgresql", "sqlite"])
def host_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the outbox is, one after the other."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/outbox.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """A namespace that nobody uses."""
    return f"{redis_server.url()}?namespace={secrets.token_hex(8)}"


@pytest.fixture
def rabbit_vhost(rabbitmq_server: RabbitServer) -> Iterator[str]:
    """An empty virtual host."""
    name = rabbitmq_server.create_vhost()
    yield name
    rabbitmq_server.delete_vhost(name)


@pytest.fixture
def rabbit_url(rabbitmq_server: RabbitServer, rabbit_vhost: str) -> str:
    """The virtual host. One priority level: quorum queues take their time to be declared."""
    return f"{rabbitmq_server.url(rabbit_vhost)}?priority_levels=1&queues=default,mail"


@pytest.fixture
def rabbit_proxy(rabbitmq_server: RabbitServer) -> Iterator[Proxy]:
    """Stands between the relay and RabbitMQ."""
    with Proxy(rabbitmq_server.address) as proxy:
        yield proxy


@pytest.fixture
def proxied_rabbit_url(rabbitmq_server: RabbitServer, rabbit_vhost: str, rabbit_proxy: Proxy) -> str:
    """The virtual host behind the proxy; its deadline is short, for tests that meet it."""
    url = rabbitmq_server.url(rabbit_vhost, host=rabbit_proxy.host, port=rabbit_proxy.port)
    return f"{url}?priority_levels=1&queues=default,mail&timeout=2s"


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    """Makes stages: ``make_stage(host_url, name=url, ...)``; installed unless told otherwise."""
    made: list[Stage] = []

    def make(host: str, *, install: bool = True, **targets: str) -> Stage:
        folder = tmp_path / f"stage{len(made)}"
        folder.mkdir()
        stage = Stage(folder, host, targets)
        made.append(stage)
        if install:
            stage.install()
        return stage

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def stage(make_stage: MakeStage, host_url: str, redis_url: str) -> Stage:
    """Redis behind an outbox on either SQL store: for what is the same whatever the target is."""
    return make_stage(host_url, redis=redis_url)

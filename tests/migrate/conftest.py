"""Pairs of stores between which jobs move."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.migrate.stage import Stage
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer

MakeStage = Callable[..., Stage]


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    """Makes a stage: ``make_stage(control, old=url, new=url)``; `outbox` names a store that holds one for
    "new".
    """
    made: list[Stage] = []

    def make(control: str, /, outbox: str | None = None, **stores: str) -> Stage:
        folder = tmp_path / f"stage{len(made)}"
        folder.mkdir()
        stage = Stage(folder, control, stores, {} if outbox is None else {"new": outbox})
        made.append(stage)
        stage.install()
        return stage

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def make_files(make_stage: MakeStage, tmp_path: Path) -> Callable[[], Stage]:
    """Makes stages of two SQLite files: what needs no server."""
    numbers = count()

    def make() -> Stage:
        n = next(numbers)
        return make_stage("old", old=f"sqlite:///{tmp_path}/old{n}.db", new=f"sqlite:///{tmp_path}/new{n}.db")

    return make


@pytest.fixture
def files(make_files: Callable[[], Stage]) -> Stage:
    """SQLite to SQLite."""
    return make_files()


@pytest.fixture
def broker_url(rabbitmq_server: RabbitServer) -> Iterator[str]:
    """An empty virtual host."""
    name = rabbitmq_server.create_vhost()
    yield f"{rabbitmq_server.url(name)}?queues=default,mail"
    rabbitmq_server.delete_vhost(name)


PAIRS = [
    *("postgres-postgres", "sqlite-postgres", "postgres-redis", "redis-sqlite"),
    *(
        pytest.param(pair, marks=pytest.mark.slow)
        for pair in ("postgres-sqlite", "sqlite-sqlite", "redis-postgres", "sqlite-redis", "redis-redis")
    ),
]
"""Each store leaves and comes in the quick tests; the other pairs are for `-m slow`."""


BROKER_PAIRS = [
    "rabbitmq-postgres",
    *(
        pytest.param(pair, marks=pytest.mark.slow)
        for pair in (
            *("rabbitmq-sqlite", "rabbitmq-redis"),
            *("postgres-rabbitmq", "sqlite-rabbitmq", "redis-rabbitmq"),
        )
    ),
]


@pytest.fixture(params=BROKER_PAIRS)
def broker_stage(request: pytest.FixtureRequest, make_stage: MakeStage, tmp_path: Path) -> Stage:
    """Every pair of stores of which one is RabbitMQ."""
    return _stage_of(request, make_stage, tmp_path)


@pytest.fixture(params=PAIRS)
def stage(request: pytest.FixtureRequest, make_stage: MakeStage, tmp_path: Path) -> Stage:
    """Every pair of stores; two schemas of one database where both are PostgreSQL."""
    return _stage_of(request, make_stage, tmp_path)


def _stage_of(request: pytest.FixtureRequest, make_stage: MakeStage, tmp_path: Path) -> Stage:
    kinds = dict(zip(("old", "new"), str(request.param).split("-"), strict=True))
    urls = {name: _url(request, kind, name, tmp_path) for name, kind in kinds.items()}
    control = next((name for name, kind in kinds.items() if kind in ("postgres", "sqlite")), "control")
    if control == "control":
        urls["control"] = f"sqlite:///{tmp_path}/control.db"
    return make_stage(control, **urls)


def _url(request: pytest.FixtureRequest, kind: str, name: str, folder: Path) -> str:
    if kind == "postgres":
        return f"{request.getfixturevalue('postgres_url')}?schema={name}"
    if kind == "rabbitmq":
        return str(request.getfixturevalue("broker_url"))
    if kind == "redis":
        server = request.getfixturevalue("redis_server")
        return f"{server.url()}?namespace={secrets.token_hex(8)}"
    return f"sqlite:///{folder}/{name}.db"

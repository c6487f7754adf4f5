"""Pairs of stores between which jobs move."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.migrate.stage import Stage
from tests.servers.postgres import PostgresServer

MakeStage = Callable[..., Stage]


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    """Makes a stage: ``make_stage(control, old=url, new=url)``."""
    made: list[Stage] = []

    def make(control: str, **stores: str) -> Stage:
        folder = tmp_path / f"stage{len(made)}"
        folder.mkdir()
        stage = Stage(folder, control, stores)
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


PAIRS = [
    *("postgres-postgres", "sqlite-postgres", "postgres-redis", "redis-sqlite"),
    *(
        pytest.param(pair, marks=pytest.mark.slow)
        for pair in ("postgres-sqlite", "sqlite-sqlite", "redis-postgres", "sqlite-redis", "redis-redis")
    ),
]
"""Each store leaves and comes in the quick tests; the other pairs are for `-m slow`."""


@pytest.fixture(params=PAIRS)
def stage(request: pytest.FixtureRequest, make_stage: MakeStage, tmp_path: Path) -> Stage:
    """Every pair of stores; two schemas of one database where both are PostgreSQL."""
    kinds = dict(zip(("old", "new"), str(request.param).split("-"), strict=True))
    urls = {name: _url(request, kind, name, tmp_path) for name, kind in kinds.items()}
    control = next((name for name, kind in kinds.items() if kind != "redis"), "control")
    if control == "control":
        urls["control"] = f"sqlite:///{tmp_path}/control.db"
    return make_stage(control, **urls)


def _url(request: pytest.FixtureRequest, kind: str, name: str, folder: Path) -> str:
    if kind == "postgres":
        return f"{request.getfixturevalue('postgres_url')}?schema={name}"
    if kind == "redis":
        server = request.getfixturevalue("redis_server")
        return f"{server.url()}?namespace={secrets.token_hex(8)}"
    return f"sqlite:///{folder}/{name}.db"

"""Spans of register, publish and run, and the context that travels with a job through every store."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

ROOT = Path(__file__).parents[2]
FOREIGN = "0af7651916cd43dd8448eb211c80319c"
Span = dict[str, Any]

STORES = ["postgres", "sqlite", "redis", "rabbitmq", "outbox"]
IN_A_TRANSACTION = ["postgres joined", "postgres awaited", "outbox awaited"]


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def rabbitmq_url(rabbitmq_server: RabbitServer) -> Iterator[str]:
    """An empty virtual host."""
    name = rabbitmq_server.create_vhost()
    yield f"{rabbitmq_server.url(name)}?priority_levels=1"
    rabbitmq_server.delete_vhost(name)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """A namespace that nobody uses."""
    return f"{redis_server.url()}?namespace={secrets.token_hex(8)}"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def configuration(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The configuration in which the backend "it" is the given store."""

    def write(store: str) -> str:
        if store != "outbox":
            return f'[backends.it]\nurl = "{request.getfixturevalue(f"{store}_url")}"\n'
        redis_url = request.getfixturevalue("redis_url")
        host = request.getfixturevalue("postgres_url")
        return f'[backends.host]\nurl = "{host}"\n[backends.it]\nurl = "{redis_url}"\noutbox = "host"\n'

    return write


@pytest.fixture(params=STORES + IN_A_TRANSACTION)
def spans(
    request: pytest.FixtureRequest, tmp_path: Path, configuration: Callable[[str], str]
) -> tuple[str, list[Span]]:
    """Which store it is, and every span of `tests.telemetry.program` on it."""
    store, *way = request.param.split()
    (tmp_path / "jobcontract.toml").write_text(configuration(store))
    if way:
        way.append(request.getfixturevalue("postgres_url"))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.telemetry.program", "it", *way],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "canary" not in ran.stdout, "neither inputs nor errors are in a span"
    return store, [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_trace_leads_from_the_request_through_the_store_into_the_handler(
    spans: tuple[str, list[Span]],
) -> None:
    store, found = spans
    by_id = {span["id"]: span for span in found}
    (request,) = [span for span in found if span["name"] == "request"]
    registers = [span for span in found if span["name"] == "register it"]
    assert [span["parent"] for span in registers] == [request["id"], request["id"], None]
    assert [span["attributes"]["messaging.batch.message_count"] for span in registers] == [1, 2, 1]
    assert {span["kind"] for span in registers} == {"PRODUCER"}

    runs = {
        span["name"]: span for span in found if span["name"].startswith("run ") and span["trace"] != FOREIGN
    }
    assert runs.keys() == {"run plain", "run awaited", "run failing"}
    for run in runs.values():
        assert run["trace"] == request["trace"]
        assert by_id[run["parent"]]["name"] == "register it"
        assert run["kind"] == "CONSUMER"
        assert run["attributes"]["messaging.destination.name"] == "default"
        assert run["attributes"]["jobcontract.attempt"] == 1
    for kind in ("plain", "awaited"):
        (inner,) = [
            span for span in found if span["name"] == f"within {kind}" and span["trace"] == request["trace"]
        ]
        assert inner["parent"] == runs[f"run {kind}"]["id"]
        assert runs[f"run {kind}"]["attributes"]["jobcontract.outcome"] == "completed"
    failing = runs["run failing"]
    assert (failing["status"], failing["said"], failing["events"]) == ("ERROR", None, [])
    assert failing["attributes"]["error.type"] == "Dead"
    assert failing["attributes"]["jobcontract.outcome"] == "dead"

    (foreign,) = [span for span in found if span["trace"] == FOREIGN and span["name"] == "run plain"]
    assert foreign["parent"] == "b7ad6b7169203331", "a header of the application's own stands"

    published = [span for span in found if span["name"] == "publish it"]
    assert bool(published) == (store == "outbox")
    for span in published:
        links = [by_id[link]["name"] if link in by_id else link for link in span["links"]]
        assert sorted(links) == ["b7ad6b7169203331", "register it", "register it", "register it"]


def test_without_a_tracer_provider_no_header_is_written(sqlite_url: str) -> None:
    from jobcontract import Job, get_backend

    with get_backend(sqlite_url) as backend:
        backend.install()
        backend.register(Job(kind="k"))
        (claim,) = backend.claim()
    assert claim.job.headers == {}


def test_without_the_extra_everything_works(tmp_path: Path) -> None:
    """As if opentelemetry were not installed."""
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from jobcontract import Job, get_backend\n"
        "from jobcontract.telemetry import active\n"
        "backend = get_backend('sqlite:///jobs.db'); backend.install(); backend.register(Job(kind='k'))\n"
        "assert not active() and len(backend.claim()) == 1\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr

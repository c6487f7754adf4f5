"""A name that would be SQL is a name: every statement quotes what it is made of."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from jobcontract import Job, State, get_backend, once
from jobcontract.config import load_settings
from jobcontract.effects import create_effects_table, prune_effects
from tests.cli.conftest import folder, invoke, logging_as_before
from tests.servers.postgres import PostgresServer

__all__ = ["folder", "logging_as_before"]

NAME = """x"; DROP TABLE bystander; -- '%s %(a)s {} {schema} :n ? ü"""


@pytest.fixture
def database(postgres_server: PostgresServer) -> str:
    """The URL of a database with a table that has nothing to do with us."""
    url = postgres_server.url(postgres_server.create_database())
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE bystander (id int)")
    return url


def jobctl(*arguments: str, code: int = 0) -> str:
    ran = invoke(*arguments)
    assert ran.code == code, (arguments, ran.out, ran.err)
    return ran.out


def test_a_whole_life_in_a_schema_of_that_name(database: str, folder: Path) -> None:
    schema, other = quote(NAME, safe=""), quote(f"{NAME}2", safe="")
    (folder / "jobcontract.toml").write_text(
        f"""
        default = "main"
        control = "main"
        backends.main.url = "{database}?schema={schema}"
        backends.next.url = "{database}?schema={other}"
        backends.target = {{ url = "sqlite:///target.db", outbox = "main" }}
        schedules.nightly = {{ cron = "0 2 * * *", kind = "k", backend = "main" }}
        """
    )
    (folder / "app.py").write_text(
        "from jobcontract import Handlers\n"
        "handlers = Handlers()\n"
        "@handlers.handler('k', total_concurrency=2, key_concurrency=1, rate='1000/s')\n"
        "def k(input): pass\n"
    )
    jobctl("init")
    with (
        get_backend("main", settings=load_settings(folder / "jobcontract.toml")) as backend,
        psycopg.connect(database) as connection,
    ):
        backend.register_many([Job(kind="k", idempotency_key=f"{number}") for number in range(4)])
        backend.register(Job(kind="k", headers={"concurrency-key": "a"}), connection=connection)
        first, second, third, *_ = backend.claim(limit=3)
        assert once(connection, first, schema=NAME)
        create_effects_table(connection, schema=NAME)
        assert prune_effects(connection, timedelta(days=1), schema=NAME) == 0
        connection.commit()
        backend.complete(backend.extend(first))
        backend.fail(second, "no", permanent=True)
        backend.release([third])
        backend.rescue()
        assert backend.cancel(third.job.id) is State.CANCELLED
        assert backend.write_note("n", "text", expected=None)
    for command in (
        "stats", "jobs list", "dead list", "dead requeue --all --yes", "queues pause q", "queues list",
        "queues resume q", "schedule list", "schedule gaps", "schedule sql nightly", "metrics --once",
        "worker app:handlers --until-empty", "prune --older-than 0s --yes", "backends main",
        "init --backend target", "register k --backend target", "relay --once", "relay --check",
        "relay parked list", "register k", "migrate --from main --to next --yes --until sealed",
        "migrate verify", "migrate status", "migrate complete --yes", "worker app:handlers --until-empty",
    ):  # fmt: skip
        jobctl(*command.split())
    jobctl("doctor", "--backend", "next", code=1)  # the server does not sync, and nothing else ails it
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM bystander").fetchone() == (0,)
        made = connection.execute(
            "SELECT nspname::text FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$|^public$'"
        ).fetchall()
    assert {row[0] for row in made} == {NAME, f"{NAME}2"}

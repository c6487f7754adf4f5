"""What trying again can't mend ends a worker at once, in the store's sentence; the rest is waited for."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from jobcontract import Backend, Handlers, InstallationError, Job, State, StoreError, get_backend
from jobcontract.config import Settings
from tests.servers.postgres import PostgresServer
from tests.worker.claims import nothing
from tests.worker.conftest import open_installed
from tests.worker.running import PROMPT, RunningWorker, await_state, eventually


@pytest.fixture
def backend(shared_url: str) -> Iterator[Backend]:
    """A store in which nobody ran `jobctl init` yet."""
    with get_backend(shared_url, settings=Settings()) as backend:
        yield backend


@pytest.fixture
def working(handlers: Handlers) -> Handlers:
    """A handler that has nothing to do."""
    handlers.handler("job")(nothing)
    return handlers


def execute(url: str, statement: str) -> None:
    """`statement` in the store at `url`, behind the back of whoever uses it."""
    if url.startswith("sqlite:///"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
            file.execute(statement)
        file.close()
    else:
        with psycopg.connect(url) as connection:
            connection.execute(statement.encode())


def set_version(url: str, step: int) -> None:
    """Make the schema at `url` older or newer by `step`."""
    table = "jobcontract_schema" if url.startswith("sqlite") else "jobcontract.schema_version"
    execute(url, f"UPDATE {table} SET version = version + {step}")


def refuse_updates(url: str) -> None:
    """From now on no job can be claimed, for a reason that is no outage."""
    if url.startswith("sqlite"):
        execute(
            url,
            "CREATE TRIGGER refuse BEFORE UPDATE ON jobcontract_jobs "
            "BEGIN SELECT RAISE(FAIL, 'refused'); END",
        )
        return
    execute(
        url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'refused'; END$$;"
        "CREATE TRIGGER refuse BEFORE UPDATE ON jobcontract.live_jobs EXECUTE FUNCTION refuse()",
    )


def allow_updates(url: str) -> None:
    """Undo `refuse_updates`."""
    table = "" if url.startswith("sqlite") else " ON jobcontract.live_jobs"
    execute(url, f"DROP TRIGGER refuse{table}")


@pytest.mark.parametrize("until_empty", [False, True])
@pytest.mark.parametrize(
    ("step", "sentence"),
    [(None, "run `jobctl init`"), (-1000, "run `jobctl init`"), (1000, "upgrade (the package )?jobcontract")],
    ids=["missing", "older", "newer"],
)
def test_a_schema_that_does_not_fit_ends_the_worker_in_one_sentence(
    backend: Backend,
    shared_url: str,
    working: Handlers,
    step: int | None,
    sentence: str,
    until_empty: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if step is not None:
        open_installed(shared_url).close()
        set_version(shared_url, step)
    options = replace(PROMPT, until_empty=until_empty)
    with pytest.raises(InstallationError, match=sentence), RunningWorker(backend, working, options) as worker:
        worker.join()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_schema_that_goes_away_ends_the_worker(
    backend: Backend, shared_url: str, working: Handlers
) -> None:
    backend.install()
    job = Job(kind="job")
    backend.register(job)
    postgres = shared_url.startswith("postgresql")
    drop = "DROP SCHEMA jobcontract CASCADE" if postgres else "DROP TABLE jobcontract_jobs"
    with pytest.raises(InstallationError), RunningWorker(backend, working) as worker:  # noqa: PT012
        await_state(backend, job, State.DONE)
        execute(shared_url, drop)
        worker.join()


def test_a_store_that_refuses_from_the_start_ends_the_worker(
    postgres_server: PostgresServer, working: Handlers
) -> None:
    with get_backend(postgres_server.url("nowhere"), settings=Settings()) as backend:  # noqa: SIM117
        with (
            pytest.raises(StoreError, match='database "nowhere" does not exist'),
            RunningWorker(backend, working) as worker,
        ):
            worker.join()


def test_a_store_that_worked_and_then_refuses_is_waited_for(
    backend: Backend, shared_url: str, working: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    backend.install()
    first, second = Job(kind="job"), Job(kind="job")
    backend.register(first)
    with RunningWorker(backend, working) as worker:
        await_state(backend, first, State.DONE)
        refuse_updates(shared_url)
        backend.register(second)
        eventually(lambda: "fails to claim" in caplog.text)
        allow_updates(shared_url)
        await_state(backend, second, State.DONE)
        assert worker.runs

"""What trying again can't mend ends a worker at once, in the store's sentence; the rest is waited for."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from jobcontract import (
    Backend,
    Handlers,
    InstallationError,
    Job,
    JobContext,
    Retry,
    State,
    StoreError,
    get_backend,
)
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
        eventually(lambda: "trying again until it works" in caplog.text)  # the rescue may say it first
        allow_updates(shared_url)
        await_state(backend, second, State.DONE)
        assert worker.runs


def replace_once(backend: Backend, verb: str, replacement: Callable[..., object]) -> None:
    """The driver's next `verb` is `replacement`; a driver of a stranger may do anything."""
    kept = getattr(backend.driver, verb)

    def once(*arguments: object) -> object:
        setattr(backend.driver, verb, kept)
        return replacement(*arguments)

    setattr(backend.driver, verb, once)


@pytest.mark.parametrize("verb", ["complete", "fail", "claim", "rescue"])
def test_a_driver_that_answers_nonsense_is_said_and_asked_again(
    memory: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    def handle(input: object, context: JobContext) -> None:
        if verb == "fail" and context.attempt == 1:
            raise Retry("once more", after=timedelta())

    handlers.handler("job")(handle)
    replace_once(memory, verb, lambda *_: None)
    job = Job(kind="job")
    memory.register(job)
    with RunningWorker(memory, handlers) as worker:
        await_state(memory, job, State.DONE)
        eventually(lambda: f"fails to {'settle' if verb in ('complete', 'fail') else verb}" in caplog.text)
        assert worker.runs


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("verb", "thread"), [("complete", "settle"), ("claim", "claim"), ("rescue", "rescue")], ids=str
)
def test_a_thread_that_ends_ends_the_worker(
    memory: Backend, working: Handlers, verb: str, thread: str
) -> None:
    """Python says nothing about a `SystemExit` in a thread."""

    def leave(*_: object) -> None:
        raise SystemExit

    replace_once(memory, verb, leave)
    memory.register(Job(kind="job"))
    with (
        pytest.raises(RuntimeError, match=f"the worker's thread jobcontract-{thread} ended"),
        RunningWorker(memory, working) as worker,
    ):
        worker.join(within=60)

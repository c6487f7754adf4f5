"""`jobcontract.testing`: an application's tests without a server, and without waiting."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from jobcontract import Dead, Handlers, Job, JobContext, JobInput, Retry, Snooze, State, get_backend
from jobcontract.config import Settings
from jobcontract.errors import ConfigError, InvalidJob
from jobcontract.testing import Jobs, MemoryBackend, drain

pytest_plugins = ["pytester"]


class Embed(JobInput, kind="embed", queue="embeddings"):
    document: int

    def idempotency_key(self) -> str:
        return f"document {self.document}"


handlers = Handlers()
ran: list[object] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@handlers.handler(Embed)
def embed(input: Embed, context: JobContext) -> None:
    ran.append((input.document, context.attempt))


@handlers.handler("async")
async def handle_async(input: dict[str, object]) -> None:
    ran.append(input)


@handlers.handler("fails", max_attempts=3)
def fail(input: dict[str, object], context: JobContext) -> None:
    ran.append(context.attempt)
    raise Retry("not yet", after=timedelta(hours=1))


@handlers.handler("dies")
def die(input: dict[str, object]) -> None:
    raise Dead("never")


@handlers.handler("snoozes")
def snooze(input: dict[str, object], context: JobContext) -> None:
    if context.attempt < 3:
        raise Snooze(timedelta(hours=1))
    ran.append("awake")


def test_what_was_registered_is_asked_for_by_what_it_is(jobs: Jobs) -> None:
    jobs.backend.register(Embed(document=7))
    jobs.backend.register(Job(kind="mail", input_ref={"to": "a", "subject": "b"}, headers={"tenant": "x"}))
    found = jobs.assert_registered(kind="embed", input_ref={"document": 7})
    assert found.idempotency_key == "document 7"
    jobs.assert_registered(kind="mail", input_ref={"to": "a"}, headers={"tenant": "x"}, times=1)
    jobs.assert_registered(queue="embeddings", idempotency_key="document 7", state=State.READY)
    jobs.assert_not_registered(kind="mail", input_ref={"to": "b"})
    assert [job.kind for job in jobs.registered()] == ["embed", "mail"]


def test_what_is_missing_is_said_beside_what_is_there(jobs: Jobs) -> None:
    with pytest.raises(AssertionError, match=r"a job should fit, and 0 do; registered are:\n  nothing"):
        jobs.assert_registered(kind="embed")
    jobs.backend.register(Embed(document=7))
    with pytest.raises(
        AssertionError, match=r"kind='embed', input_ref=\{'document': 7\}, queue='embeddings'"
    ):
        jobs.assert_registered(kind="embed", input_ref={"document": 8})
    with pytest.raises(AssertionError, match="2 jobs should fit, and 1 do"):
        jobs.assert_registered(kind="embed", times=2)
    with pytest.raises(AssertionError, match="no job should fit, and 1 do, the first of them kind='embed'"):
        jobs.assert_not_registered(kind="embed")


def test_what_is_due_is_run_and_what_that_registers_too(jobs: Jobs) -> None:
    chain = Handlers()
    chain.include(handlers)

    @chain.handler("first")
    def first(input: dict[str, object]) -> None:
        jobs.backend.register(Embed(document=1))

    jobs.backend.register_many([Job(kind="first"), Job(kind="async", input_ref={"a": 1})])
    drained = jobs.drain(chain)
    assert (drained.completed, drained.failed) == (3, 0)
    assert sorted(map(str, ran)) == ["(1, 1)", "{'a': 1}"]
    assert len(jobs.registered(state=State.DONE)) == 3
    assert jobs.drain(chain).jobs == []


def test_only_the_queues_that_are_named_are_run(jobs: Jobs) -> None:
    jobs.backend.register_many([Embed(document=1), Job(kind="async")])
    assert jobs.drain(handlers, queues=["embeddings"]).completed == 1
    assert ran == [(1, 1)]


def test_a_retry_waits_unless_time_is_no_matter(jobs: Jobs) -> None:
    jobs.backend.register(Job(kind="fails"))
    once = jobs.drain(handlers)
    assert (once.failed, once.dead, once.errors) == (1, 0, ["not yet"])
    twice = jobs.drain(handlers, scheduled=True)
    assert (twice.failed, twice.dead) == (2, 1)
    assert ran == [1, 2, 3]
    jobs.assert_registered(kind="fails", state=State.DEAD)


def test_signals_mean_what_they_mean_to_a_worker(jobs: Jobs) -> None:
    jobs.backend.register_many([Job(kind="dies"), Job(kind="snoozes")])
    drained = jobs.drain(handlers, scheduled=True)
    assert (drained.dead, drained.released, drained.completed) == (1, 2, 1)
    assert ran == ["awake"]


def test_a_kind_without_a_handler_and_an_endless_chain_are_said(jobs: Jobs) -> None:
    jobs.backend.register(Job(kind="unheard"))
    with pytest.raises(ConfigError, match="no handler for kind 'unheard': these handle async, dies"):
        jobs.drain(handlers)
    endless = Handlers()

    @endless.handler("unheard")
    def again(input: dict[str, object]) -> None:
        jobs.backend.register(Job(kind="unheard"))

    with pytest.raises(ConfigError, match="jobs left after 20 runs"):
        drain(jobs.backend, endless, most=20)


def test_a_connection_is_checked_and_the_job_is_stored_at_once(jobs: Jobs, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        connection.execute("CREATE TABLE documents (id INTEGER)")
        connection.execute("INSERT INTO documents VALUES (7)")
        jobs.backend.register(Embed(document=7), connection=connection)
        connection.rollback()
    jobs.assert_registered(kind="embed")
    with pytest.raises(InvalidJob, match="connection"):
        jobs.backend.register(Embed(document=8), connection=connection)


def test_two_stores_in_memory_have_nothing_in_common() -> None:
    with MemoryBackend() as one, MemoryBackend() as other:
        one.register(Job(kind="a"))
        assert other.jobs() == []


def test_it_works_on_an_application_s_own_database(tmp_path: Path) -> None:
    with Jobs(get_backend(f"sqlite:///{tmp_path}/app.db", settings=Settings())) as jobs:
        jobs.backend.install()
        with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
            connection.execute("CREATE TABLE documents (id INTEGER)")
            connection.execute("INSERT INTO documents VALUES (7)")
            jobs.backend.register(Embed(document=7), connection=connection)
            connection.rollback()
        jobs.assert_not_registered(kind="embed")
        jobs.backend.register(Embed(document=7))
        assert jobs.drain(handlers).completed == 1


def test_pytest_brings_the_fixture_by_itself(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from jobcontract import Job

        def test_one(jobs):
            jobs.backend.register(Job(kind="mail"))
            jobs.assert_registered(kind="mail", times=1)

        def test_the_next_one_begins_empty(jobs):
            jobs.assert_not_registered()
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)

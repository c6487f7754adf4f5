"""What `register` through an outbox promises: in a caller's transaction, about duplicates, about time."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from jobcontract import InvalidJob, Job, Registration, State
from jobcontract.aio import AsyncBackend
from jobcontract.contract import Deduplication, Transactional
from tests.outbox.conftest import MakeStage
from tests.outbox.stage import Stage, drain, drain_until, ids, jobs, until

Begin = Callable[[], AbstractContextManager[object]]


@pytest.fixture
def begin(stage: Stage) -> Begin:
    """Opens a transaction of the application on the outbox's database."""
    return lambda: transaction_on(stage.host_url)


@contextmanager
def transaction_on(url: str) -> Generator[object]:
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=10)) as lite, lite:
            lite.execute("BEGIN IMMEDIATE")
            yield lite
    else:
        with psycopg.connect(url) as connection:
            yield connection


class Failed(Exception):
    """What makes the application roll back."""


def test_a_rolled_back_transaction_leaves_no_job_and_no_key(stage: Stage, begin: Begin) -> None:
    backend = stage.backend()
    with pytest.raises(Failed), begin() as connection:  # noqa: PT012 - that is the test
        backend.register(Job(kind="work", idempotency_key="k"), connection=connection)
        raise Failed
    assert stage.publish() == 0
    assert stage.sql("SELECT count(*) FROM {outbox_jobs}") == [(0,)]
    assert backend.register(Job(kind="work", idempotency_key="k")).created


def test_a_job_of_an_open_transaction_is_not_published(stage: Stage, begin: Begin) -> None:
    backend, job = stage.backend(), Job(kind="work")
    with begin() as connection:
        backend.register(job, connection=connection)
        if stage.host_url.startswith("postgresql"):  # in SQLite the relay waits for the one writer
            assert stage.publish() == 0
        assert drain(backend) == []
    assert stage.publish() == 1
    assert ids(drain_until(backend, 1)) == [job.id]


def test_a_row_that_commits_late_with_a_lower_number_is_published(
    make_stage: MakeStage, postgres_url: str, redis_url: str
) -> None:
    stage = make_stage(postgres_url, redis=redis_url)
    backend, first, second = stage.backend(), *jobs(2)
    relay = stage.relay()
    with psycopg.connect(postgres_url) as connection:
        backend.register(first, connection=connection)
        backend.register(second)
        relay.run_once()
        assert ids(drain_until(backend, 1)) == [second.id]
    relay.run_once()
    assert ids(drain_until(backend, 1)) == [first.id]


@pytest.mark.parametrize("relayed", [False, True], ids=["before it was relayed", "after"])
def test_a_duplicate_is_answered_with_the_first_job(stage: Stage, relayed: bool) -> None:
    backend, first = stage.backend(), Job(kind="work", idempotency_key="k")
    backend.register(first)
    if relayed:
        stage.publish()
    state = None if relayed else State.READY
    same, other = Job(kind="work", idempotency_key="k"), Job(kind="other", idempotency_key="k")
    elsewhere = Job(kind="work", idempotency_key="k", queue="mail")
    assert backend.register_many([same, other, first, elsewhere]) == [
        Registration(first.id, created=False, state=state, conflict=False),
        Registration(first.id, created=False, state=state, conflict=True),
        Registration(first.id, created=False, state=state, conflict=False),
        Registration(elsewhere.id, created=True, state=State.READY, conflict=False),
    ]
    stage.publish()
    assert len(drain_until(backend, 1)) == 1


def test_of_two_jobs_of_one_call_with_one_key_the_first_wins(stage: Stage) -> None:
    first, second = (Job(kind="work", idempotency_key="k") for _ in range(2))
    assert [each.job_id for each in stage.backend().register_many([first, second])] == [first.id] * 2


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_a_duplicate_of_an_open_transaction_waits_for_its_end(
    stage: Stage, begin: Begin, commits: bool
) -> None:
    backend, first, second = stage.backend(), *(Job(kind="work", idempotency_key="k") for _ in range(2))
    answers: list[Registration] = []
    waiting = threading.Thread(target=lambda: answers.append(backend.register(second)))
    try:
        with begin() as connection:
            stage.backend().register(first, connection=connection)
            waiting.start()
            waiting.join(0.3)
            assert answers == []
            if not commits:
                raise Failed
    except Failed:
        pass
    waiting.join()
    winner = first if commits else second
    assert [(each.job_id, each.created) for each in answers] == [(winner.id, not commits)]
    assert stage.publish() == 1


def test_many_producers_of_the_same_keys_make_each_job_once(stage: Stage) -> None:
    answers: list[list[Registration]] = []

    def produce() -> None:
        batch = [Job(kind="work", idempotency_key=str(number)) for number in range(100)]
        answers.append(stage.backend().register_many(batch))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert len({tuple(each.job_id for each in answer) for answer in answers}) == 1
    assert sum(each.created for answer in answers for each in answer) == 100
    assert stage.publish() == 100


def test_a_scheduled_job_is_held_until_it_is_due(stage: Stage) -> None:
    backend = stage.backend()
    late = Job(kind="work", run_at=datetime.now(UTC) + timedelta(hours=1))
    soon = Job(kind="work", run_at=datetime.now(UTC) + timedelta(seconds=1.5))
    backend.register_many([late, soon])
    assert stage.publish() == 0
    assert stage.status().scheduled == 2
    until(lambda: stage.publish() == 1)
    assert datetime.now(UTC) >= soon.run_at  # type: ignore[operator]
    assert ids(drain_until(backend, 1)) == [soon.id]
    assert stage.publish() == 0


def test_a_job_can_be_cancelled_while_it_waits(stage: Stage) -> None:
    backend = stage.backend()
    late = Job(kind="work", idempotency_key="k", run_at=datetime.now(UTC) + timedelta(hours=1))
    backend.register(late)
    found = backend.get(late.id)
    assert found is not None
    assert (found.state, found.job) == (State.READY, late)
    assert backend.cancel(late.id) is State.CANCELLED
    assert backend.cancel(late.id) is State.CANCELLED
    assert backend.register(Job(kind="work", idempotency_key="k")).state is State.CANCELLED
    assert stage.status().scheduled == 0


def test_jobs_are_listed_wherever_they_are(stage: Stage) -> None:
    backend, made = stage.backend(), jobs(6)
    backend.register_many(made[:3])
    stage.publish()
    backend.register_many(made[3:])
    newest_first = [job.id for job in reversed(made)]
    assert [each.id for each in backend.jobs()] == newest_first
    page = backend.jobs(limit=4)
    assert [each.id for each in page] == newest_first[:4]
    assert [each.id for each in backend.jobs(cursor=page[-1].cursor)] == newest_first[4:]
    assert backend.jobs(queue="mail") == []
    assert backend.jobs(state=State.DEAD) == []


def test_a_published_job_is_cancelled_where_it_is(stage: Stage) -> None:
    backend, job = stage.backend(), Job(kind="work")
    backend.register(job)
    stage.publish()
    assert backend.cancel(job.id) is State.CANCELLED
    assert drain(backend) == []


def test_a_broker_that_cannot_cancel_says_that_the_job_has_moved(
    make_stage: MakeStage, postgres_url: str, rabbit_url: str
) -> None:
    stage = make_stage(postgres_url, rabbitmq=rabbit_url)
    backend, job = stage.backend(), Job(kind="work")
    backend.register(job)
    assert [each.id for each in backend.jobs()] == [job.id]
    stage.publish()
    assert backend.cancel(job.id) is State.MOVED
    assert backend.jobs() == []
    assert backend.cancel(Job(kind="work").id) is None


def test_what_a_broker_gains(make_stage: MakeStage, postgres_url: str, rabbit_url: str) -> None:
    stage = make_stage(postgres_url, rabbitmq=rabbit_url)
    capabilities = stage.backend().capabilities
    assert capabilities.transactional is Transactional.OUTBOX
    assert capabilities.deduplication is Deduplication.OUTBOX
    assert capabilities.scheduling is not None
    assert capabilities.has("cancel")
    assert not capabilities.has("stats")


def test_the_same_from_asyncio(make_stage: MakeStage, postgres_url: str, redis_url: str) -> None:
    stage = make_stage(postgres_url, redis=redis_url)
    kept, lost = jobs(2)

    async def register(job: Job, *, commit: bool) -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            await AsyncBackend(stage.backend()).register(job, connection=connection)
            if not commit:
                await connection.rollback()

    asyncio.run(register(kept, commit=True))
    asyncio.run(register(lost, commit=False))
    assert stage.publish() == 1
    assert ids(drain_until(stage.backend(), 1)) == [kept.id]


def test_a_connection_without_a_transaction_is_refused(
    make_stage: MakeStage, postgres_url: str, redis_url: str
) -> None:
    stage = make_stage(postgres_url, redis=redis_url)
    refused = pytest.raises(InvalidJob, match=r"^connection: is in autocommit mode without a transaction")
    with psycopg.connect(postgres_url, autocommit=True) as connection, refused:
        stage.backend().register(Job(kind="work"), connection=connection)


def test_a_connection_to_another_sqlite_file_is_refused(make_stage: MakeStage, redis_url: str) -> None:
    stage = make_stage("sqlite:///outbox.db", install=False, redis=redis_url)
    stage = make_stage(f"sqlite:///{stage.folder}/outbox.db", redis=redis_url)
    with closing(sqlite3.connect(stage.folder / "other.db")) as connection:
        connection.execute("CREATE TABLE business (id)")
        connection.execute("BEGIN")
        with pytest.raises(InvalidJob, match=r"^connection: is open on"):
            stage.backend().register(Job(kind="work"), connection=connection)


def test_the_input_keeps_its_text(stage: Stage) -> None:
    job = Job(kind="work", input_ref={"a": 1e22, "b": -0.0, "c": ',"headers":null}'}, headers={"x": "y"})
    stage.backend().register(job)
    stage.publish()
    (claim,) = drain_until(stage.backend(), 1)
    assert (claim.job.input_json, claim.job.headers) == (job.input_json, job.headers)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_session_of_sqlalchemy_carries_a_job(stage: Stage, ending: str) -> None:
    url = stage.host_url.replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(url)
    made = [Job(kind="work", idempotency_key=str(number)) for number in range(3)]
    with Session(engine) as session:
        assert len(stage.backend().register_many(made, connection=session)) == 3
        assert not stage.backend().register(made[0], connection=session).created
        getattr(session, ending)()
    engine.dispose()
    assert stage.publish() == (3 if ending == "commit" else 0)

"""A lease is renewed for as long as its job needs it, and a lost one ends the run."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobcontract import Backend, Handlers, Job, JobContext, State
from jobcontract.context import LEASE_LOST
from tests.worker.conftest import open_installed
from tests.worker.running import PROMPT, RunningWorker, await_state, eventually

SHORT = replace(PROMPT, lease=timedelta(milliseconds=600))


def test_a_job_that_outlasts_its_lease_runs_once(store: Backend, handlers: Handlers) -> None:
    attempts: list[int] = []

    @handlers.handler("long")
    def long(input: object, context: JobContext) -> None:
        attempts.append(context.attempt)
        context.cancelled.wait(4 * SHORT.lease.total_seconds())

    job = Job(kind="long")
    store.register(job)
    with RunningWorker(store, handlers, SHORT), RunningWorker(store, handlers, SHORT):
        status = await_state(store, job, State.DONE)

    assert attempts == [1]
    assert status.attempt == 1


def test_an_async_job_that_outlasts_its_lease_runs_once(store: Backend, handlers: Handlers) -> None:
    attempts: list[int] = []

    @handlers.handler("long")
    async def long(input: object, context: JobContext) -> None:
        attempts.append(context.attempt)
        await asyncio.sleep(4 * SHORT.lease.total_seconds())

    job = Job(kind="long")
    store.register(job)
    with RunningWorker(store, handlers, SHORT), RunningWorker(store, handlers, SHORT):
        await_state(store, job, State.DONE)

    assert attempts == [1]


def test_a_kind_has_a_lease_of_its_own(store: Backend, handlers: Handlers) -> None:
    go_on = threading.Event()

    @handlers.handler("patient", lease="1h")
    def patient(input: object) -> None:
        go_on.wait(20)

    def is_long() -> bool:
        status = store.get(job.id)
        assert status is not None
        expires_at = status.lease_expires_at
        return expires_at is not None and expires_at > datetime.now(UTC) + timedelta(minutes=30)

    job = Job(kind="patient")
    store.register(job)
    with RunningWorker(store, handlers, SHORT):
        eventually(is_long)
        go_on.set()
        await_state(store, job, State.DONE)


# -- A lease that is lost ------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the store of these tests is: a file that a test can write to behind the store's back."""
    return tmp_path / "jobs.db"


@pytest.fixture
def in_file(file: Path) -> Iterator[Backend]:
    """The store in that file."""
    with open_installed(f"sqlite:///{file}?busy_timeout=300ms") as backend:
        yield backend


def expire_leases(file: Path) -> None:
    """As if every lease had run out long ago."""
    with sqlite3.connect(file, timeout=10) as connection:
        connection.execute("UPDATE jobcontract_jobs SET lease_until = 1 WHERE state = 'running'")
    connection.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_lost_lease_cancels_the_handler_and_its_outcome_is_dropped(
    file: Path, in_file: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture, colour: str
) -> None:
    started, ended = threading.Event(), threading.Event()
    reasons: list[str | None] = []

    def note(context: JobContext) -> None:
        reasons.append(context.cancelled.reason)
        ended.set()

    if colour == "sync":

        @handlers.handler("long")
        def long(input: object, context: JobContext) -> None:
            started.set()
            context.cancelled.wait(20)
            note(context)

    else:

        @handlers.handler("long")
        async def async_long(input: object, context: JobContext) -> None:
            started.set()
            try:
                await asyncio.sleep(20)
            finally:
                note(context)

    job = Job(kind="long")
    in_file.register(job)
    options = replace(SHORT, rescue_interval=timedelta(hours=1))
    with RunningWorker(in_file, handlers, options) as worker:
        assert started.wait(10)
        in_file.pause("default")  # the worker itself shall not claim the job again
        expire_leases(file)
        in_file.rescue()
        in_file.resume("default")
        (stolen,) = in_file.claim(lease=timedelta(minutes=5))
        assert ended.wait(10)
        eventually(lambda: "is lost while it runs" in caplog.text)
        if colour == "sync":
            eventually(lambda: "are dropped: the lease is lost" in caplog.text)
        worker.stop()
        tally = worker.join()

    assert reasons == [LEASE_LOST]
    assert (tally.completed, tally.lost) == (0, 1)
    in_file.complete(stolen)  # the other worker's claim was not touched


def test_a_run_whose_lease_could_not_be_renewed_in_time_is_told_to_stop(
    file: Path, in_file: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    started, told = threading.Event(), threading.Event()

    @handlers.handler("long")
    def long(input: object, context: JobContext) -> None:
        if context.attempt == 1:
            started.set()
            if context.cancelled.wait(20) and context.cancelled.reason == LEASE_LOST:
                told.set()

    job = Job(kind="long")
    in_file.register(job)
    with RunningWorker(in_file, handlers, SHORT):
        assert started.wait(10)
        blocker = sqlite3.connect(file, isolation_level=None, timeout=10)
        blocker.execute("BEGIN IMMEDIATE")  # nobody else can write
        assert told.wait(10)
        blocker.execute("ROLLBACK")
        blocker.close()
        await_state(in_file, job, State.DONE)

    assert "could not be renewed in time" in caplog.text


def test_a_claimed_job_that_no_hand_starts_is_given_back_for_others(
    store: Backend, handlers: Handlers
) -> None:
    release = threading.Event()
    ran: list[str] = []

    @handlers.handler("job")
    def handle(input: dict[str, str]) -> None:
        if input["name"].startswith("long"):
            release.wait(20)
        ran.append(input["name"])

    # Short jobs teach the worker to claim ahead; then each of its hands gets a long one.
    names = [*(f"short {number}" for number in range(200)), "long 1", "long 2", "behind 1", "behind 2"]
    jobs = [Job(kind="job", input_ref={"name": name}) for name in names]
    store.register_many(jobs)
    with RunningWorker(store, handlers, replace(PROMPT, concurrency=2)):
        eventually(lambda: len(ran) == 200)
        with RunningWorker(store, handlers, replace(PROMPT, concurrency=1)):
            for job in jobs[-2:]:
                assert await_state(store, job, State.DONE, within=10).attempt <= 3
            release.set()
            for job in jobs[-4:-2]:
                assert await_state(store, job, State.DONE).attempt == 1


# -- A store that takes no outcomes ------------------------------------------------------------------------


def test_an_outcome_that_the_store_does_not_take_is_sent_again(
    file: Path, in_file: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    blocker = sqlite3.connect(file, isolation_level=None, timeout=10, check_same_thread=False)

    @handlers.handler("job")
    def handle(input: object) -> None:
        blocker.execute("BEGIN IMMEDIATE")  # from now on the worker can't complete it

    job = Job(kind="job")
    in_file.register(job)
    with RunningWorker(in_file, handlers) as worker:
        eventually(lambda: "fails to" in caplog.text)
        blocker.execute("ROLLBACK")
        blocker.close()
        status = await_state(in_file, job, State.DONE)
        eventually(lambda: "works again" in caplog.text)
        worker.stop()
        assert worker.join().completed == 1

    assert status.attempt == 1
    assert caplog.text.count("fails to") == caplog.text.count("works again") == 1


def test_an_outcome_is_given_up_with_its_lease_and_the_job_runs_again(
    file: Path, in_file: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    blocker = sqlite3.connect(file, isolation_level=None, timeout=10, check_same_thread=False)

    @handlers.handler("job")
    def handle(input: object, context: JobContext) -> None:
        if context.attempt == 1:
            blocker.execute("BEGIN IMMEDIATE")

    job = Job(kind="job")
    in_file.register(job)
    with RunningWorker(in_file, handlers, SHORT) as worker:
        eventually(lambda: "gave up on the outcomes of 1 jobs" in caplog.text)
        blocker.execute("ROLLBACK")
        blocker.close()
        status = await_state(in_file, job, State.DONE)
        worker.stop()
        assert worker.join().lost == 1

    assert status.attempt == 2
    assert caplog.text.count("gave up on") == 1


def test_a_worker_that_was_stopped_past_its_leases_starts_nothing_from_its_buffer(
    store: Backend, handlers: Handlers
) -> None:
    """The instants are the worker's own: a claim that comes back after its lease is not worth starting."""
    started: list[float] = []

    @handlers.handler("job")
    def handle(input: object) -> None:
        started.append(time.monotonic())

    job = Job(kind="job")
    store.register(job)
    claim = store.claim
    asked: list[float] = []

    def slow_claim(**arguments: object) -> object:
        claims = claim(**arguments)  # type: ignore[arg-type]  # pyright: ignore
        if claims and not asked:
            asked.append(time.monotonic())
            time.sleep(2 * SHORT.lease.total_seconds())
        return claims

    store.claim = slow_claim  # type: ignore[method-assign, assignment]  # pyright: ignore
    with RunningWorker(store, handlers, SHORT):
        status = await_state(store, job, State.DONE)

    assert len(started) == 1
    assert started[0] - asked[0] >= SHORT.lease.total_seconds()
    assert status.attempt == 2

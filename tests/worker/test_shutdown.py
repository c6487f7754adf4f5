"""A worker that is told to stop finishes or gives back what it holds, and no attempt is spent on it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from jobcontract import Backend, Handlers, Job, JobContext, State
from jobcontract.context import SHUTDOWN
from tests.worker.running import PROMPT, RunningWorker, await_state, eventually, state_of

NO_GRACE = replace(PROMPT, grace=timedelta(0))


def test_running_jobs_finish_within_the_grace_and_nothing_new_starts(
    store: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    started, go_on = threading.Event(), threading.Event()

    @handlers.handler("job")
    def handle(input: object) -> None:
        started.set()
        go_on.wait(20)

    first, second = Job(kind="job", priority=9), Job(kind="job")
    store.register_many([first, second])
    options = replace(PROMPT, concurrency=1)
    with caplog.at_level(logging.INFO), RunningWorker(store, handlers, options) as worker:
        assert started.wait(10)
        worker.stop()
        eventually(lambda: "stopping: 1 jobs are held" in caplog.text)
        assert worker.runs
        go_on.set()
        tally = worker.join()

    assert (tally.completed, tally.lost) == (1, 0)
    assert (state_of(store, first), state_of(store, second)) == (State.DONE, State.READY)


def test_what_outlasts_the_grace_is_cancelled_and_given_back(store: Backend, handlers: Handlers) -> None:
    started = threading.Event()
    reasons: list[str | None] = []

    @handlers.handler("job")
    def handle(input: object, context: JobContext) -> None:
        started.set()
        context.cancelled.wait(20)
        reasons.append(context.cancelled.reason)
        context.check_cancelled()

    job = Job(kind="job", max_attempts=1)
    store.register(job)
    with RunningWorker(store, handlers, NO_GRACE) as worker:
        assert started.wait(10)
        worker.stop()
        tally = worker.join()

    assert reasons == [SHUTDOWN]
    assert (tally.released, tally.failed) == (1, 0)
    assert state_of(store, job) is State.READY
    (claim,) = store.claim()
    assert claim.spent == 1  # this one only


def test_an_async_handler_is_cancelled_and_its_job_given_back(store: Backend, handlers: Handlers) -> None:
    started, cleaned_up = threading.Event(), threading.Event()

    @handlers.handler("job")
    async def handle(input: object) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned_up.set()

    job = Job(kind="job", max_attempts=1)
    store.register(job)
    with RunningWorker(store, handlers, NO_GRACE) as worker:
        assert started.wait(10)
        worker.stop()
        worker.join()

    assert cleaned_up.is_set()
    (claim,) = store.claim()
    assert claim.spent == 1


def test_a_handler_that_does_not_listen_loses_its_job_and_its_outcome_is_dropped(
    store: Backend, handlers: Handlers
) -> None:
    started, go_on, returned = threading.Event(), threading.Event(), threading.Event()

    @handlers.handler("job")
    def handle(input: object) -> None:
        started.set()
        go_on.wait(20)
        returned.set()

    job = Job(kind="job", max_attempts=1)
    store.register(job)
    with RunningWorker(store, handlers, NO_GRACE) as worker:
        assert started.wait(10)
        worker.stop()
        tally = worker.join()

    assert tally.released == 1
    (claim,) = store.claim()
    go_on.set()
    assert returned.wait(10)
    assert claim.spent == 1
    store.complete(claim)  # the late return has changed nothing


def test_the_second_order_ends_the_grace(store: Backend, handlers: Handlers) -> None:
    started = threading.Event()

    @handlers.handler("job")
    def handle(input: object, context: JobContext) -> None:
        started.set()
        context.cancelled.wait(60)

    job = Job(kind="job")
    store.register(job)
    with RunningWorker(store, handlers, replace(PROMPT, grace=timedelta(minutes=5))) as worker:
        assert started.wait(10)
        worker.stop()
        worker.stop_now()
        worker.join(within=10)

    assert state_of(store, job) is State.READY


def test_jobs_that_were_claimed_ahead_go_back_at_once(store: Backend, handlers: Handlers) -> None:
    stuck, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    @handlers.handler("job")
    def handle(input: dict[str, int]) -> None:
        if input["number"] == 100:
            stuck.set()
            go_on.wait(20)
        ran.append(input["number"])

    jobs = [Job(kind="job", input_ref={"number": number}) for number in range(300)]
    store.register_many(jobs)
    with RunningWorker(store, handlers, replace(PROMPT, concurrency=1)) as worker:
        assert stuck.wait(10)  # by now the worker has claimed ahead
        worker.stop()
        eventually(lambda: store.stats()[0].running == 1)  # while it still runs, the others are free
        assert worker.runs
        go_on.set()
        tally = worker.join()

    assert tally.completed == 101
    assert tally.lost == 0
    (stats,) = store.stats()
    assert (stats.ready, stats.running) == (199, 0)
    assert {claim.spent for claim in store.claim(limit=300)} == {1}


def test_a_long_job_of_a_narrow_kind_leaves_no_slot_taken(store: Backend, handlers: Handlers) -> None:
    started = threading.Event()
    blocked = threading.Event()

    @handlers.handler("narrow", concurrency=1)
    def narrow(input: object, context: JobContext) -> None:
        if not blocked.is_set():
            blocked.set()
            started.set()
            context.cancelled.wait(60)
            context.check_cancelled()

    jobs = [Job(kind="narrow", max_attempts=1) for _ in range(2)]
    store.register_many(jobs)
    with RunningWorker(store, handlers, NO_GRACE) as worker:
        assert started.wait(10)
        worker.stop()
        worker.join()
    with RunningWorker(store, handlers):
        for job in jobs:
            await_state(store, job, State.DONE)


def test_an_idle_worker_stops_at_once(store: Backend, handlers: Handlers) -> None:
    @handlers.handler("job")
    def handle(input: object) -> None: ...

    with RunningWorker(store, handlers, replace(PROMPT, poll_interval=timedelta(minutes=5))) as worker:
        eventually(lambda: worker.runs)
        began = time.monotonic()
        worker.stop()
        worker.join(within=10)

    assert time.monotonic() - began < 5


def test_a_worker_that_is_stopped_before_it_runs_does_not_work(store: Backend, handlers: Handlers) -> None:
    @handlers.handler("job")
    def handle(input: object) -> None: ...

    job = Job(kind="job")
    store.register(job)
    worker = RunningWorker(store, handlers)
    worker.stop()
    with worker:
        worker.join()

    (claim,) = store.claim()
    assert claim.spent == 1


@pytest.mark.parametrize("count", [1, 50])
def test_stop_and_go_burns_no_attempt(store: Backend, handlers: Handlers, count: int) -> None:
    """As ten deployments in a row do to long jobs."""
    running: list[int] = []

    @handlers.handler("job")
    def handle(input: object, context: JobContext) -> None:
        running.append(1)
        if context.attempt <= 10:
            context.cancelled.wait(60)
            context.check_cancelled()

    jobs = [Job(kind="job", max_attempts=1) for _ in range(count)]
    store.register_many(jobs)
    for _ in range(10):
        running.clear()
        with RunningWorker(store, handlers, replace(NO_GRACE, concurrency=count)) as worker:
            eventually(lambda: len(running) == count)
            worker.stop()
            assert worker.join().failed == 0
    with RunningWorker(store, handlers, replace(PROMPT, concurrency=count)):
        for job in jobs:
            assert await_state(store, job, State.DONE).attempt == 11

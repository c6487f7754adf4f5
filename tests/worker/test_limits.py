"""A kind can be narrower than the worker, and takes nothing from the others by it."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from jobcontract import Backend, Handlers, Job, State
from jobcontract.worker import WorkerOptions
from tests.worker.running import PROMPT, RunningWorker, await_state, eventually


class Meter:
    """How many are inside at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0
        self.total = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self.total += 1
            self.most = max(self.most, self._inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1


def test_no_more_jobs_of_a_kind_run_at_once_than_it_allows(store: Backend, handlers: Handlers) -> None:
    meter = Meter()
    pause = threading.Event()

    @handlers.handler("narrow", concurrency=2)
    def narrow(input: object) -> None:
        with meter:
            pause.wait(0.02)

    store.register_many(Job(kind="narrow") for _ in range(40))
    with RunningWorker(store, handlers, replace(PROMPT, until_empty=True)) as worker:
        assert worker.join().completed == 40

    assert (meter.most, meter.total) == (2, 40)


def test_the_end_waits_for_the_longest_of_what_was_sent_away(store: Backend, handlers: Handlers) -> None:
    """Those of the first claim stay away for up to three seconds; one that is sent away for one second after
    them does not shorten that.
    """

    @handlers.handler("narrow", concurrency=1)
    def narrow(input: object) -> None: ...

    @handlers.handler("other", concurrency=1)
    def other(input: object) -> None: ...

    later = datetime.now(UTC) + timedelta(seconds=1)
    store.register_many(Job(kind="narrow") for _ in range(15))
    store.register_many(Job(kind="other", run_at=later) for _ in range(2))
    with RunningWorker(store, handlers, replace(PROMPT, until_empty=True)) as worker:
        assert worker.join().completed == 17


def test_the_limit_holds_for_async_handlers(store: Backend, handlers: Handlers) -> None:
    import asyncio

    meter = Meter()

    @handlers.handler("narrow", concurrency=3)
    async def narrow(input: object) -> None:
        with meter:
            await asyncio.sleep(0.02)

    store.register_many(Job(kind="narrow") for _ in range(40))
    with RunningWorker(store, handlers, replace(PROMPT, until_empty=True)) as worker:
        assert worker.join().completed == 40

    assert (meter.most, meter.total) == (3, 40)


def test_a_backlog_of_a_narrow_kind_does_not_stop_the_others(store: Backend, handlers: Handlers) -> None:
    release = threading.Event()

    @handlers.handler("narrow", concurrency=1)
    def narrow(input: object) -> None:
        release.wait(20)

    @handlers.handler("wide")
    def wide(input: object) -> None: ...

    store.register_many(Job(kind="narrow") for _ in range(60))
    others = [Job(kind="wide") for _ in range(5)]
    store.register_many(others)
    with RunningWorker(store, handlers):
        for job in others:
            await_state(store, job, State.DONE)
        assert not release.is_set()
        release.set()


def test_a_full_kind_is_neither_claimed_at_full_speed_nor_charged_for_it(
    store: Backend, handlers: Handlers
) -> None:
    release, started = threading.Event(), threading.Event()

    @handlers.handler("narrow", concurrency=1)
    def narrow(input: object) -> None:
        started.set()
        release.wait(30)

    jobs = [Job(kind="narrow", max_attempts=1) for _ in range(200)]
    store.register_many(jobs)
    options = WorkerOptions(concurrency=4, grace=timedelta(0))
    with RunningWorker(store, handlers, options):
        assert started.wait(10)
        release.wait(2)  # time enough for a busy loop to show
        claims = sum(status.attempt for status in store.jobs(limit=1000))
        release.set()

    assert claims <= 60, "a claim takes 4; after each that gave nothing the pause grows"
    assert not store.jobs(state=State.DEAD)


def test_a_slot_that_comes_free_is_filled_at_once(store: Backend, handlers: Handlers) -> None:
    steps = [threading.Event() for _ in range(5)]
    started: list[int] = []

    @handlers.handler("narrow", concurrency=1)
    def narrow(input: object) -> None:
        step = len(started)
        started.append(step)
        if step < len(steps):
            steps[step].wait(20)

    store.register_many(Job(kind="narrow") for _ in range(200))
    with RunningWorker(store, handlers, WorkerOptions(poll_interval=timedelta(minutes=1))):
        for number, step in enumerate(steps):
            eventually(partial(started.__contains__, number), within=5)
            step.set()

"""Worker processes that are killed, stopped and signalled: no job is lost, no stale one changes anything."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from jobcontract import Backend, Handlers, Job, State
from tests.worker.claims import nothing
from tests.worker.conftest import open_installed
from tests.worker.processes import WorkerProcess
from tests.worker.running import PROMPT, RunningWorker, await_state, eventually, state_of

LEASE = 1.0
SURVIVOR = replace(PROMPT, lease=timedelta(seconds=30))


@pytest.fixture
def shared(shared_url: str) -> Iterator[Backend]:
    """A store for several processes."""
    with open_installed(shared_url) as backend:
        yield backend


@pytest.fixture
def survivors() -> Handlers:
    """What the worker in the test's own process does with the job."""
    handlers = Handlers()
    handlers.handler("job")(nothing)
    return handlers


@pytest.mark.parametrize(
    ("point", "attempts"), [("claimed", 2), ("running", 2), ("finished", 2), ("completed", 1)]
)
def test_kill_9_at_any_point_of_a_job_loses_nothing(
    shared: Backend, shared_url: str, survivors: Handlers, point: str, attempts: int
) -> None:
    job = Job(kind="job")
    shared.register(job)
    with WorkerProcess(shared_url, point, str(LEASE)) as victim:
        victim.await_word(point)
        victim.kill()
        with RunningWorker(shared, survivors, SURVIVOR):
            # Lease and rescue interval, and as much again for a machine that is busy with other things.
            within = 2 * (LEASE + SURVIVOR.rescue_interval.total_seconds())
            status = await_state(shared, job, State.DONE, within=within)

    assert status.attempt == attempts


def test_a_stale_worker_that_comes_back_changes_nothing(shared: Backend, shared_url: str) -> None:
    running, go_on = threading.Event(), threading.Event()
    handlers = Handlers()

    @handlers.handler("job")
    def handle(input: object) -> None:
        running.set()
        go_on.wait(30)

    job = Job(kind="job")
    shared.register(job)
    with WorkerProcess(shared_url, "running", str(LEASE)) as stale:
        stale.await_word("running")
        stale.send(signal.SIGSTOP)
        with RunningWorker(shared, handlers, SURVIVOR):
            assert running.wait(15)  # claimed again, after the lease of the stopped one
            stale.send(signal.SIGCONT)
            stale.go_on()
            eventually(lambda: "are dropped: the lease" in stale.log)
            assert state_of(shared, job) is State.RUNNING
            go_on.set()
            status = await_state(shared, job, State.DONE)
        stale.send(signal.SIGTERM)
        assert stale.wait() == 0

    assert status.attempt == 2
    assert " 1 lost" in stale.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_job_finish(
    shared: Backend, shared_url: str, number: signal.Signals
) -> None:
    job, other = Job(kind="job", priority=9), Job(kind="job", queue="other")
    shared.register_many([job, other])
    with WorkerProcess(shared_url, "running", "30") as process:
        process.await_word("running")
        process.send(number)
        eventually(lambda: "stopping: 1 jobs are held" in process.log)
        process.go_on()
        assert process.wait() == 0

    assert state_of(shared, job) is State.DONE


def test_a_long_job_without_grace_is_given_back(shared: Backend, shared_url: str) -> None:
    job = Job(kind="job", max_attempts=1)
    shared.register(job)
    with WorkerProcess(shared_url, "running", "300", "0") as process:
        process.await_word("running")
        process.send(signal.SIGTERM)
        assert process.wait() == 0

    (claim,) = shared.claim()
    assert (claim.job.id, claim.spent) == (job.id, 1)


def test_the_second_signal_ends_the_grace(shared: Backend, shared_url: str) -> None:
    job = Job(kind="job", max_attempts=1)
    shared.register(job)
    with WorkerProcess(shared_url, "running", "300", "300") as process:
        process.await_word("running")
        process.send(signal.SIGTERM)
        eventually(lambda: "stopping: 1 jobs are held" in process.log)
        process.send(signal.SIGTERM)
        assert process.wait() == 0

    (claim,) = shared.claim()
    assert (claim.job.id, claim.spent) == (job.id, 1)


def test_many_workers_run_each_job_once(shared: Backend, shared_url: str) -> None:
    jobs = [Job(kind="job") for _ in range(500)]
    shared.register_many(jobs)
    with (
        WorkerProcess(shared_url, "never", "30") as first,
        WorkerProcess(shared_url, "never", "30") as second,
    ):
        eventually(lambda: not any(one.ready + one.running for one in shared.stats()))
        for process in (first, second):
            process.await_log("worker started")
            process.send(signal.SIGTERM)
            assert process.wait() == 0

    page = shared.jobs(limit=1000)
    assert len(page) == 500
    assert {(status.state, status.attempt) for status in page} <= {(State.DONE, 1), (State.DONE, 2)}

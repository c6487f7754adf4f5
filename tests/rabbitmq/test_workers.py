"""Real worker processes: stopped, killed, and side by side."""

from __future__ import annotations

import signal

import pytest

from jobcontract import Backend, Job
from tests.rabbitmq.stores import claim_all, claim_one, jobs, until
from tests.worker.processes import WorkerProcess


def test_a_worker_that_is_stopped_burns_no_attempt(url: str, store: Backend) -> None:
    """Neither of the jobs that run, nor of those that were fetched ahead."""
    store.register(Job(kind="job", max_attempts=1))
    with WorkerProcess(url, "running", "1.0", "0") as worker:
        worker.await_word("running")
        store.register_many(jobs(9, kind="job", max_attempts=1))
        worker.await_word("running")  # in its other hand
        worker.send(signal.SIGTERM)
        worker.wait()
    claims = claim_all(store, 10)
    assert {claim.spent for claim in claims} == {1}


@pytest.mark.parametrize("point", ["claimed", "running", "finished"])
def test_a_worker_that_is_killed_loses_no_job(url: str, store: Backend, point: str) -> None:
    store.register(Job(kind="job"))
    with WorkerProcess(url, point) as worker:
        worker.await_word(point)
        worker.kill()
    assert claim_one(store).attempt == 2


def test_a_job_that_was_completed_stays_completed_when_its_worker_is_killed(url: str, store: Backend) -> None:
    store.register(Job(kind="job"))
    with WorkerProcess(url, "completed") as worker:
        worker.await_word("completed")
        worker.kill()
    store.register(Job(kind="last"))
    assert claim_one(store).job.kind == "last"
    assert store.claim() == []


def test_a_job_that_crashes_its_workers_dies_and_the_others_run(url: str, store: Backend) -> None:
    store.register_many([Job(kind="crash", max_attempts=2), *jobs(5, kind="job", max_attempts=100)])
    for _ in range(2):
        with WorkerProcess(url, "never") as worker:
            worker.wait()
    with WorkerProcess(url, "never") as worker:
        worker.await_word("started")
        until(lambda: store.claim(limit=10) == [] and not store.wait(), "the queue is never empty")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0

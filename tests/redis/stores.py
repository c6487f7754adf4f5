"""Stores in Redis for tests: a namespace of its own on a server that is shared, or a server of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from jobcontract_redis import RedisDriver, open_driver

from jobcontract import Job
from jobcontract.config import StoreSettings
from jobcontract.contract import ClaimedRecord, Failure, JobRecord, Lease, State
from jobcontract.side_doors import QueueStats, StoredJob
from jobcontract.url import StoreURL

Result = TypeVar("Result")

QUEUE = "default"
HOUR = timedelta(hours=1)
NOTHING = timedelta()
PATIENCE = 30.0
"""Seconds to wait for what has to happen. Nothing is judged by how long it took."""


def open_store(url: str, **options: Any) -> RedisDriver:
    """A client of the store at `url`, which it has made sure is installed."""
    driver = connect(url, **options)
    driver.install()
    return driver


def connect(url: str, **options: Any) -> RedisDriver:
    """A client of the store at `url`. Contacts nothing."""
    return open_driver(StoreSettings("redis", StoreURL.parse(url), options))


def new_namespace() -> str:
    """A name that no other test has."""
    return uuid4().hex


def job(**fields: Any) -> Job:
    """A job that says nothing in particular."""
    return Job(**{"kind": "work", **fields})


def records(count: int, **fields: Any) -> list[JobRecord]:
    """`count` jobs as they cross the door, told apart by their input."""
    return [job(input_ref={"number": number}, **fields).to_record() for number in range(count)]


def leases_of(claimed: Sequence[ClaimedRecord]) -> list[Lease]:
    """The leases alone."""
    return [each.lease for each in claimed]


def failure(lease: Lease, *, retry_in: timedelta = NOTHING, permanent: bool = False) -> Failure:
    """A failure of the job that is leased."""
    return Failure(lease, "it failed", retry_in, permanent)


def counts(driver: RedisDriver, queue: str = QUEUE) -> dict[str, int]:
    """How many jobs of `queue` are in which state, those that are not there left out."""
    row = row_of(driver, queue)
    if row is None:
        return {}
    numbers = {
        "ready": row.ready,
        "scheduled": row.scheduled,
        "running": row.running,
        "dead": row.dead,
        "done": row.done or 0,
        "cancelled": row.cancelled or 0,
    }
    return {name: number for name, number in numbers.items() if number}


def row_of(driver: RedisDriver, queue: str = QUEUE) -> QueueStats | None:
    """The statistics of one queue."""
    return next((row for row in driver.stats() if row.queue == queue), None)


def stored(driver: RedisDriver, job_id: object) -> StoredJob:
    """The job, which must be there."""
    found = driver.get(str(job_id))
    assert found is not None, f"job {job_id} is not there"
    return found


def state_of(driver: RedisDriver, job_id: object) -> State:
    """The state of a job that must be there."""
    return stored(driver, job_id).state


def until(condition: Callable[[], Result], failed: str) -> Result:
    """The first true answer of `condition`."""
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, failed
        time.sleep(0.01)
    return result

"""`wait`: what ends it, and what it costs while nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

import pytest
from jobcontract_sqlite import SQLiteDriver

from jobcontract.contract import Failure
from tests.sqlite.stores import MINUTE, QUEUES, FileStore, open_url, record

SOON = timedelta(milliseconds=150)
LONG = timedelta(seconds=30)


@pytest.fixture(params=["file", "memory"])
def driver(request: pytest.FixtureRequest, store: FileStore) -> SQLiteDriver:
    """Both kinds of store."""
    return store.driver if request.param == "file" else open_url("sqlite://")


def test_nothing_to_do_is_a_timeout(driver: SQLiteDriver) -> None:
    started = time.monotonic()
    assert not driver.wait(QUEUES, SOON)
    assert time.monotonic() - started >= SOON.total_seconds()


def test_a_job_that_is_due_already_returns_at_once(driver: SQLiteDriver) -> None:
    driver.register([record()])
    assert driver.wait(QUEUES, LONG)
    assert driver.wait(QUEUES, timedelta(0))


def test_a_job_that_falls_due_meanwhile_ends_the_wait(driver: SQLiteDriver) -> None:
    driver.register([record(run_at=datetime.now(UTC) + 2 * SOON)])
    assert driver.claim(QUEUES, 1, MINUTE) == []
    assert driver.wait(QUEUES, LONG)
    assert len(driver.claim(QUEUES, 1, MINUTE)) == 1


@pytest.mark.parametrize("what", ["register", "release", "fail", "requeue", "resume"])
def test_work_that_comes_meanwhile_ends_the_wait(driver: SQLiteDriver, what: str) -> None:
    job = record()
    driver.register([job])
    (claimed,) = driver.claim(QUEUES, 1, MINUTE)
    if what == "requeue":
        driver.fail([Failure(claimed.lease, "failed", timedelta(0), permanent=True)])
    if what == "resume":
        driver.release([claimed.lease], timedelta(0))
        driver.pause("default")
    come: dict[str, Callable[[], object]] = {
        "register": lambda: driver.register([record()]),
        "release": lambda: driver.release([claimed.lease], timedelta(0)),
        "fail": lambda: driver.fail([Failure(claimed.lease, "failed", timedelta(0), permanent=False)]),
        "requeue": lambda: driver.requeue([job.id]),
        "resume": lambda: driver.resume("default"),
    }
    woken = Event()

    def wait() -> None:
        if driver.wait(QUEUES, LONG):
            woken.set()

    waiting = Thread(target=wait)
    waiting.start()
    assert not woken.wait(0.1)
    come[what]()
    assert woken.wait(5)
    waiting.join()


def test_neither_other_queues_nor_paused_ones_end_a_wait(driver: SQLiteDriver) -> None:
    driver.register([record(queue="other")])
    driver.register([record()])
    driver.pause("default")
    assert not driver.wait(QUEUES, SOON)


def test_closing_ends_a_wait(driver: SQLiteDriver) -> None:
    results: list[bool] = []
    waiting = Thread(target=lambda: results.append(driver.wait(QUEUES, LONG)))
    waiting.start()
    driver.close()
    waiting.join(5)
    assert results == [False]
    driver.close()


def test_an_idle_wait_reads_no_table(store: FileStore) -> None:
    store.driver.wait(QUEUES, timedelta(0))
    traced: list[str] = []
    with store.driver.connections.read() as connection:
        connection.set_trace_callback(traced.append)
    assert not store.driver.wait(QUEUES, timedelta(milliseconds=400))
    # One look at the start; after that the file is only asked whether it has changed, by another connection.
    looks = [statement for statement in traced if not statement.startswith("PRAGMA")]
    assert len(looks) == 1

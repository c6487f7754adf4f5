"""One driver object, many threads."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from jobcontract.contract import Driver, State
from jobcontract.errors import StoreError
from tests.sqlite.stores import MINUTE, QUEUES, FileStore, open_file, open_url, record


@pytest.fixture(params=["file", "memory"])
def driver(request: pytest.FixtureRequest, store: FileStore) -> Driver:
    """Both kinds of store. With fifty writers on a busy disk one of them may be overtaken for long."""
    return open_file(store.path, busy_timeout="1m") if request.param == "file" else open_url("sqlite://")


def test_fifty_claimers_claim_each_of_ten_thousand_jobs_once(driver: Driver) -> None:
    for _ in range(10):
        driver.register([record() for _ in range(1000)])
    start = threading.Barrier(50)

    def drain() -> list[tuple[str, int]]:
        start.wait()
        found: list[tuple[str, int]] = []
        while claimed := driver.claim(QUEUES, 20, MINUTE):
            found += [(each.lease.job_id, each.lease.attempt) for each in claimed]
            assert all(verdict.applied for verdict in driver.complete([each.lease for each in claimed]))
        return found

    with ThreadPoolExecutor(50) as threads:
        claims = Counter(
            claim for each in [threads.submit(drain) for _ in range(50)] for claim in each.result()
        )
    assert len(claims) == 10_000
    assert set(claims.values()) == {1}
    assert {attempt for _, attempt in claims} == {1}


def test_one_key_registered_by_many_threads_makes_one_job(driver: Driver) -> None:
    start = threading.Barrier(16)

    def register() -> list[tuple[str, bool]]:
        start.wait()
        records = [record(idempotency_key=f"key {number}") for number in range(20)]
        return [(str(each.job_id), each.created) for each in driver.register(records)]

    with ThreadPoolExecutor(16) as threads:
        answers = [each.result() for each in [threads.submit(register) for _ in range(16)]]
    for same_key in zip(*answers, strict=True):
        assert len({job_id for job_id, _ in same_key}) == 1
        assert sum(created for _, created in same_key) == 1


def test_a_claim_that_is_settled_by_many_threads_is_settled_once(driver: Driver) -> None:
    driver.register([record()])
    (claimed,) = driver.claim(QUEUES, 1, MINUTE)
    start = threading.Barrier(16)

    def settle(number: int) -> bool:
        start.wait()
        if number % 2:
            return driver.complete([claimed.lease])[0].applied
        return driver.release([claimed.lease], timedelta(0))[0].applied

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(settle, range(16))) == 1


def test_closing_while_others_work_leaves_nothing_half_done(store: FileStore) -> None:
    job_ids = store.add(500)
    started = threading.Barrier(9)

    def drain() -> str:
        started.wait()
        try:
            while claimed := store.claim():
                store.driver.complete([each.lease for each in claimed])
        except StoreError as error:
            return str(error)
        return "drained"

    with ThreadPoolExecutor(8) as threads:
        ends = [threads.submit(drain) for _ in range(8)]
        started.wait()
        store.driver.close()
        assert {end.result(10) for end in ends} == {
            f"the SQLite store {store.path} was closed by this process"
        }
    again = FileStore(store.path)
    stored = [again.driver.get(job_id) for job_id in job_ids]
    assert all(each is not None and each.state in (State.READY, State.RUNNING, State.DONE) for each in stored)

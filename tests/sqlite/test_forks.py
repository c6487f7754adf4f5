"""Forks: a child never uses what its parent opened."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from jobcontract.errors import StoreError
from tests.sqlite.stores import MINUTE, QUEUES, FileStore, open_url, record

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


def test_no_descriptor_of_the_file_crosses_a_fork(store: FileStore) -> None:
    store.add()
    store.driver.wait(QUEUES, timedelta(0))  # opens the connection that watches, too
    assert descriptors(store.path)
    assert in_child(lambda: not descriptors(store.path))


def test_parent_and_child_both_go_on(store: FileStore) -> None:
    store.add(2)
    assert in_child(lambda: len(store.claim()) == 1)
    assert len(store.claim()) == 1
    assert store.claim() == []


def test_tokens_of_parent_and_children_differ(store: FileStore) -> None:
    store.add(1)
    (ours,) = store.claim()
    tokens = {ours.lease.token}
    for _ in range(3):
        store.add(1)
        assert in_child(lambda: len(store.claim()) == 1)
        tokens.add(store_token(store))
    assert len(tokens) == 4


def test_a_fork_beside_busy_threads_waits_for_their_statements(store: FileStore) -> None:
    store.add(300)
    stop = threading.Event()
    claimed: list[str] = []

    def drain() -> None:
        while not stop.is_set():
            for each in store.claim():
                claimed.append(each.lease.job_id)

    threads = [threading.Thread(target=drain) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert in_child(lambda: not descriptors(store.path) and len(store.claim()) <= 1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert max(Counter(claimed).values()) == 1


def test_threads_may_fork_at_once(store: FileStore) -> None:
    store.add(40)

    def fork() -> list[bool]:
        return [in_child(lambda: not descriptors(store.path) and len(store.claim()) == 1) for _ in range(5)]

    with ThreadPoolExecutor(4) as threads:
        assert all(all(forked.result(60)) for forked in [threads.submit(fork) for _ in range(4)])
    assert len(store.claim(100)) == 20


def test_a_pool_of_forked_processes_shares_the_queue(store: FileStore) -> None:
    job_ids = store.add(200)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        claimed = [job_id for each in pool.map(_claim_some, [store.path] * 40) for job_id in each]
    assert sorted(claimed) == sorted(job_ids)


def test_a_store_in_memory_says_so_in_a_child() -> None:
    driver = open_url("sqlite://")
    driver.register([record()])

    def refused() -> bool:
        with pytest.raises(StoreError, match="belongs to the process that opened it; use sqlite:///FILE"):
            driver.claim(QUEUES, 1, MINUTE)
        driver.close()
        return True

    assert in_child(refused)
    assert len(driver.claim(QUEUES, 1, MINUTE)) == 1


def test_a_driver_that_was_dropped_is_not_kept_for_the_next_fork(store: FileStore) -> None:
    other = FileStore(store.path)
    other.add()
    del other
    gc.collect()
    assert in_child(lambda: not descriptors(store.path))


def _claim_some(path: Path) -> list[str]:
    return [each.lease.job_id for each in FileStore(path).claim(5)]


def store_token(store: FileStore) -> str:
    """The token of the job that was claimed last."""
    with store.driver.connections.read() as connection:
        (token,) = connection.execute(
            "SELECT token FROM jobcontract_jobs WHERE state = 'running' ORDER BY rowid DESC LIMIT 1"
        ).fetchone()
    return str(token)


def descriptors(path: Path) -> list[str]:
    """This process's open files that belong to the store."""
    links: list[str] = []
    for descriptor in os.listdir("/dev/fd"):
        try:
            links.append(os.readlink(f"/dev/fd/{descriptor}"))
        except OSError:
            continue  # the descriptor of the listing itself
    return [link for link in links if link.startswith(str(path))]


def in_child(check: Callable[[], bool]) -> bool:
    """Whether `check` holds in a forked child, which ends without a trace otherwise."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

"""What can go wrong with a file: each is one sentence, within the deadline, and it works again afterwards."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from jobcontract_sqlite import pool
from jobcontract_sqlite.connections import connect
from jobcontract_sqlite.options import SQLiteOptions

from jobcontract.contract import Failure, State
from jobcontract.errors import StoreError, StoreUnavailable
from jobcontract.side_doors import Page
from tests.sqlite.stores import MINUTE, QUEUES, Edit, FileStore, open_file, open_url, record

PATIENCE = timedelta(milliseconds=300)


@pytest.fixture
def impatient(store: FileStore) -> FileStore:
    """The installed store, opened with a short busy timeout."""
    return FileStore(store.path, busy_timeout="300ms")


@pytest.fixture
def locked(store: FileStore) -> Iterator[sqlite3.Connection]:
    """Another process's connection that holds the write lock."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_a_locked_file_is_unavailable_within_the_busy_timeout(
    impatient: FileStore, locked: sqlite3.Connection
) -> None:
    started = time.monotonic()
    with pytest.raises(
        StoreUnavailable, match=r"jobs\.db is locked by another writer \(busy_timeout\); try again"
    ):
        impatient.claim()
    assert PATIENCE <= timedelta(seconds=time.monotonic() - started) < 10 * PATIENCE
    locked.execute("ROLLBACK")
    assert impatient.claim() == []


def test_threads_behind_each_other_do_not_add_their_busy_timeouts_up(
    impatient: FileStore, locked: sqlite3.Connection
) -> None:
    assert locked.in_transaction
    taken: list[float] = []

    def claim() -> None:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="is locked by another writer"):
            impatient.claim()
        taken.append(time.monotonic() - started)

    threads = [Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(taken) == 8
    # One after the other they would take eight times as long.
    assert max(taken) < 4 * PATIENCE.total_seconds()


def test_reading_does_not_wait_for_a_writer(impatient: FileStore, locked: sqlite3.Connection) -> None:
    assert locked.in_transaction
    assert impatient.driver.jobs(Page()) == []
    assert impatient.driver.stats() == []


def test_a_wait_neither_raises_nor_outlasts_its_timeout_on_a_file_that_nobody_can_read(
    store: FileStore,
) -> None:
    with closing(sqlite3.connect(store.path, isolation_level=None)) as hog:
        store.close()
        hog.execute("PRAGMA locking_mode = EXCLUSIVE")
        hog.execute("BEGIN IMMEDIATE")
        hog.execute("INSERT INTO jobcontract_queues (name) VALUES ('default')")
        waiter = open_file(store.path)
        started = time.monotonic()
        assert not waiter.wait(QUEUES, timedelta(milliseconds=300))
        assert time.monotonic() - started < 3


def test_a_memory_store_whose_lock_is_held_is_unavailable_within_the_busy_timeout() -> None:
    driver = open_url("sqlite://?busy_timeout=300ms")
    held, done = Event(), Event()

    def hold() -> None:
        with driver.connections.read():
            held.set()
            done.wait(10)

    holder = Thread(target=hold)
    holder.start()
    assert held.wait(10)
    with pytest.raises(StoreUnavailable, match="the SQLite store in memory is locked"):
        driver.claim(QUEUES, 1, MINUTE)
    done.set()
    holder.join()
    assert driver.claim(QUEUES, 1, MINUTE) == []


def test_a_full_disk_is_told_and_the_store_works_again_when_there_is_space(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_id,) = store.add(1)
    pages = store.driver.connections
    with pages.read() as connection:
        (used,) = connection.execute("PRAGMA page_count").fetchone()
    with monkeypatch.context() as full:
        full.setattr(pool, "connect", limited_to(used))
        cramped = FileStore(store.path)
        with pytest.raises(StoreUnavailable, match=r"jobs\.db can't grow: the disk or the file's") as refused:
            cramped.add(100, input_ref={"text": "x" * 4000})
        assert "x" * 100 not in str(refused.value)
        # What is there can still be worked off.
        (claimed,) = cramped.claim()
        assert claimed.lease.job_id == job_id
    assert len(store.add(10, input_ref={"text": "x" * 4000})) == 10


def test_a_batch_that_did_not_fit_left_nothing(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, edit: Edit
) -> None:
    with store.driver.connections.read() as connection:
        (used,) = connection.execute("PRAGMA page_count").fetchone()
    monkeypatch.setattr(pool, "connect", limited_to(used + 20))
    cramped = FileStore(store.path)
    with pytest.raises(StoreError, match="can't grow"):
        cramped.add(100, input_ref={"text": "x" * 4000}, idempotency_key=None)
    records = [
        record(idempotency_key=f"key {number}", input_ref={"text": "x" * 4000}) for number in range(100)
    ]
    with pytest.raises(StoreError, match="can't grow"):
        cramped.driver.register(records)
    assert edit("SELECT count(*) FROM jobcontract_jobs") == [(0,)]
    assert edit("SELECT count(*) FROM jobcontract_keys") == [(0,)]


def test_a_read_only_file_is_told(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add()
    # Not by permissions: root may write everything.
    monkeypatch.setattr(pool, "connect", reading_only)
    reader = FileStore(store.path)
    with pytest.raises(
        StoreError, match=r"jobs\.db can't be written: attempt to write a readonly database; give"
    ):
        reader.claim()
    assert len(reader.driver.jobs(Page())) == 1


def test_another_kind_of_file_is_told(path: Path) -> None:
    path.write_text("Dear diary, " * 1000)
    for verb in (lambda: open_file(path).install(), lambda: open_file(path).register([record()])):
        with pytest.raises(
            StoreError, match=r"jobs\.db is not a SQLite database; point the URL at another file"
        ):
            verb()
    assert path.read_text().startswith("Dear diary")


def test_a_directory_in_the_place_of_the_file_is_told(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match=r"jobs\.db can't be opened: unable to open database file; check"):
        open_file(path).claim(QUEUES, 1, MINUTE)


def test_a_damaged_file_is_told(store: FileStore) -> None:
    store.add(200, input_ref={"text": "x" * 1000})
    store.close()
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'jobcontract_jobs'"
        ).fetchone()
    with store.path.open("r+b") as file:
        file.seek((root - 1) * page_size)
        file.write(b"\xff" * page_size)
    with pytest.raises(StoreError, match=r"jobs\.db is damaged: .*; restore a backup, or save what is left"):
        FileStore(store.path).claim()


def test_a_file_that_vanished_is_told_to_who_opens_it_and_a_new_one_is_used(store: FileStore) -> None:
    store.add()
    store.close()
    for each in store.path.parent.glob("jobs.db*"):
        each.unlink()
    driver = open_file(store.path)
    with pytest.raises(StoreError, match="does not exist yet; run `jobctl init`"):
        driver.claim(QUEUES, 1, MINUTE)
    driver.install()
    assert driver.claim(QUEUES, 1, MINUTE) == []


def test_an_error_text_of_the_largest_size_is_kept(store: FileStore) -> None:
    (job_id,) = store.add()
    (claimed,) = store.claim()
    error = "\u20ac" * 2700 + "\x01\x7f"
    store.driver.fail([Failure(claimed.lease, error, timedelta(0), permanent=True)])
    stored = store.driver.get(job_id)
    assert stored is not None
    assert (stored.state, stored.last_error) == (State.DEAD, error)


def test_after_every_fault_no_descriptor_is_left(store: FileStore, locked: sqlite3.Connection) -> None:
    before = len(os.listdir("/dev/fd"))
    # While a lock is held on the file, SQLite puts one descriptor off for the next connection.
    for _ in range(20):
        impatient = FileStore(store.path, busy_timeout="1ms")
        with pytest.raises(StoreUnavailable):
            impatient.claim()
        impatient.close()
    locked.execute("ROLLBACK")
    assert len(os.listdir("/dev/fd")) <= before + 1


def limited_to(pages: int) -> Callable[..., sqlite3.Connection]:
    """`connect`, for a file that may have at most so many pages: SQLite then fails as on a full disk."""

    def connect_limited(
        uri: str, where: str, options: SQLiteOptions, patience: timedelta
    ) -> sqlite3.Connection:
        connection = connect(uri, where, options, patience)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    return connect_limited


def reading_only(uri: str, where: str, options: SQLiteOptions, patience: timedelta) -> sqlite3.Connection:
    """`connect`, for a process that may not write."""
    return connect(uri.replace("mode=rw", "mode=ro"), where, options, patience)

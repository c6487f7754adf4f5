"""Registering on the caller's own connection to the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeAlias

import pytest

from jobcontract.backend import Backend
from jobcontract.contract import Job, State
from jobcontract.errors import InvalidJob, StoreError, StoreUnavailable, Unsupported
from tests.sqlite.stores import MINUTE, FileStore, open_file, open_url

RowFactory: TypeAlias = "type[sqlite3.Row] | Callable[[sqlite3.Cursor, tuple[Any, ...]], object] | None"


def as_dictionary(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, object]:
    """A row factory as many applications have one."""
    return dict(zip((column[0] for column in cursor.description), row, strict=True))


@pytest.fixture
def backend(store: FileStore) -> Backend:
    """What an application holds."""
    return Backend("store", lambda: store.driver)


@pytest.fixture
def caller(store: FileStore) -> Iterator[sqlite3.Connection]:
    """The application's connection to the same file, with a table of its own."""
    with closing(sqlite3.connect(store.path, timeout=0.3)) as connection:
        connection.execute("CREATE TABLE documents (id INTEGER PRIMARY KEY)")
        yield connection


def test_row_and_job_commit_together(backend: Backend, store: FileStore, caller: sqlite3.Connection) -> None:
    caller.execute("INSERT INTO documents VALUES (7)")
    registered = backend.register(Job(kind="extract", idempotency_key="7"), connection=caller)
    assert registered.created
    assert store.driver.get(str(registered.job_id)) is None
    caller.commit()
    (claimed,) = store.claim()
    assert claimed.lease.job_id == str(registered.job_id)


def test_row_and_job_and_key_vanish_together(
    backend: Backend, store: FileStore, caller: sqlite3.Connection
) -> None:
    backend.register(Job(kind="extract", idempotency_key="7"), connection=caller)
    caller.rollback()
    assert store.claim() == []
    assert backend.register(Job(kind="extract", idempotency_key="7")).created


def test_a_duplicate_waits_for_the_open_transaction_and_inserts_when_it_rolls_back(
    backend: Backend, caller: sqlite3.Connection
) -> None:
    backend.register(Job(kind="extract", idempotency_key="7"), connection=caller)
    answered = Event()
    created: list[bool] = []

    def register() -> None:
        created.append(backend.register(Job(kind="extract", idempotency_key="7")).created)
        answered.set()

    waiting = Thread(target=register)
    waiting.start()
    assert not answered.wait(0.2)
    caller.rollback()
    assert answered.wait(5)
    waiting.join()
    assert created == [True]


@pytest.mark.parametrize("row_factory", [None, sqlite3.Row, as_dictionary])
@pytest.mark.parametrize("text_factory", [str, bytes])
def test_the_factories_of_the_caller_do_not_matter(
    backend: Backend, caller: sqlite3.Connection, row_factory: RowFactory, text_factory: type
) -> None:
    caller.row_factory = row_factory
    caller.text_factory = text_factory
    first = backend.register(Job(kind="extract", idempotency_key="7"), connection=caller)
    again = backend.register(Job(kind="other", idempotency_key="7"), connection=caller)
    assert first.created
    assert (again.job_id, again.created, again.conflict, again.state) == (
        first.job_id,
        False,
        True,
        State.READY,
    )


def test_another_file_is_refused(backend: Backend, store: FileStore, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    open_file(other).install()
    with closing(sqlite3.connect(other)) as connection:
        with pytest.raises(InvalidJob) as refused:
            backend.register(Job(kind="extract"), connection=connection)
        assert str(refused.value) == (
            f"connection: is open on {other}, and the jobs of this store live in {store.path}; "
            "connect to that file"
        )
        assert connection.execute("SELECT count(*) FROM jobcontract_jobs").fetchone() == (0,)


def test_a_file_that_is_only_attached_is_refused(backend: Backend, store: FileStore, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "application.db")) as connection:
        connection.execute("ATTACH ? AS queue", (str(store.path),))
        with pytest.raises(
            InvalidJob, match=r"is open on .*application\.db, and the jobs of this store live in"
        ):
            backend.register(Job(kind="extract"), connection=connection)


def test_a_database_in_memory_is_refused(backend: Backend) -> None:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(InvalidJob, match="a database in memory"),
    ):
        backend.register(Job(kind="extract"), connection=connection)


def test_a_link_to_the_file_is_the_file(backend: Backend, store: FileStore, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(store.path)
    with closing(sqlite3.connect(link)) as connection:
        assert backend.register(Job(kind="extract"), connection=connection).created
        connection.commit()
    assert len(store.claim()) == 1


def test_a_store_in_memory_can_not_join(caller: sqlite3.Connection) -> None:
    backend = Backend("memory", lambda: open_url("sqlite://"))
    with pytest.raises(Unsupported, match="can't write a job in the caller's transaction"):
        backend.register(Job(kind="extract"), connection=caller)


def test_a_lock_that_somebody_else_holds_is_told(
    backend: Backend, store: FileStore, caller: sqlite3.Connection
) -> None:
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="is locked by another writer"):
            backend.register(Job(kind="extract"), connection=caller)


def test_a_snapshot_that_is_too_old_to_write_is_told(
    backend: Backend, store: FileStore, caller: sqlite3.Connection
) -> None:
    caller.isolation_level = None
    caller.execute("BEGIN")
    caller.execute("SELECT count(*) FROM documents").fetchall()
    store.add()
    with pytest.raises(
        StoreUnavailable, match="was written by somebody else after this transaction began to read"
    ):
        backend.register(Job(kind="extract"), connection=caller)
    caller.rollback()
    caller.execute("BEGIN IMMEDIATE")
    assert backend.register(Job(kind="extract"), connection=caller).created


def test_a_schema_that_was_dropped_is_told(
    backend: Backend, store: FileStore, caller: sqlite3.Connection
) -> None:
    assert backend.capabilities.max_register_batch
    caller.execute("DROP TABLE jobcontract_jobs")
    with pytest.raises(StoreError, match="holds no job queue yet; run `jobctl init`"):
        backend.register(Job(kind="extract"), connection=caller)


def test_a_job_that_the_caller_commits_ends_a_wait(
    backend: Backend, store: FileStore, caller: sqlite3.Connection
) -> None:
    woken = Event()

    def wait() -> None:
        if store.driver.wait(["default"], MINUTE):
            woken.set()

    waiting = Thread(target=wait)
    waiting.start()
    backend.register(Job(kind="extract"), connection=caller)
    assert not woken.wait(0.2)
    caller.commit()
    assert woken.wait(5)
    waiting.join()

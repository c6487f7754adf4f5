"""An upgrade under load: either side may be the newer one, nobody waits, what was interrupted is mended."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing, contextmanager

import psycopg
import pytest
from jobcontract_postgres import schema as schema_module
from jobcontract_postgres.indexes import indexes
from jobcontract_postgres.schema import VERSION

from jobcontract.errors import StoreError
from jobcontract.side_doors import Step
from tests.postgres.conftest import OpenStore
from tests.postgres.stores import Store, jobs, until
from tests.servers.postgres import PostgresServer

OF_002 = ["dead_jobs_finished", "dead_jobs_queue"]


@pytest.fixture
def old(open_another: OpenStore, connection: psycopg.Connection) -> Store:
    """A store whose schema is the first version, with jobs in each state and a partition of the history."""
    store = open_another(timeout="20s")
    first, *_ = store.driver.install(dry_run=True)
    connection.execute(first.statements.encode())
    store.driver.rescue(1)  # makes the partitions
    store.register(*jobs(30))
    claimed = [each.lease for each in store.claim(20)]
    assert all(store.complete(*claimed[:10]))
    assert store.fail(claimed[10], permanent=True)
    return store


def version(store: Store, connection: psycopg.Connection) -> int:
    row = connection.execute(store.sql("SELECT max(version) FROM OURS.schema_version")).fetchone()
    assert row is not None
    return int(row[0])


def invalid(store: Store, connection: psycopg.Connection) -> list[str]:
    """Names of indexes of the store that can't be used, those of partitions included."""
    rows = connection.execute(
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
        " WHERE NOT indisvalid AND relnamespace = %s::regnamespace",
        (store.sql("OURS").decode(),),
    )
    return [name for (name,) in rows]


def present(store: Store, connection: psycopg.Connection) -> set[str]:
    rows = connection.execute("SELECT indexname::text FROM pg_indexes WHERE schemaname = %s", (store.schema,))
    return {name for (name,) in rows}


def works(store: Store) -> None:
    """A job goes its way, and an operator sees it."""
    store.register(*jobs(1, queue="probe"))
    (claimed,) = store.claim(1, queue="probe")
    assert store.complete(claimed.lease) == [True]
    store.driver.rescue(10)
    assert store.driver.stats()


def test_new_code_works_on_the_old_schema(old: Store, connection: psycopg.Connection) -> None:
    assert version(old, connection) == 1
    works(old)


def test_old_code_works_on_the_new_schema(
    old: Store, open_another: OpenStore, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the first version only, starts when the second is there already, and installs nothing."""
    old.driver.install()
    monkeypatch.setattr(schema_module, "VERSION", 1)
    late = open_another(schema=old.schema)
    works(late)
    assert late.driver.install() == []
    assert version(old, connection) == VERSION


def test_an_upgrade_brings_what_a_new_installation_has(
    old: Store, store: Store, connection: psycopg.Connection
) -> None:
    assert not present(old, connection) & set(OF_002)
    dry = old.driver.install(dry_run=True)
    assert [step.title for step in old.driver.install()] == [step.title for step in dry]
    wanted = {index.name for index in indexes()}
    assert wanted <= present(old, connection)
    assert wanted <= present(store, connection)
    assert invalid(old, connection) == []
    assert old.driver.install() == []


@contextmanager
def holding(old: Store, postgres_server: PostgresServer) -> Generator[psycopg.Connection]:
    """A transaction that has written to each table and stays open, as that of an application may."""
    with closing(postgres_server.connect(autocommit=False)) as holder:
        for table in ("live_jobs", "dead_jobs", "done_jobs"):
            holder.execute(old.sql(f"UPDATE OURS.{table} SET kind = kind WHERE id = gen_random_uuid()"))
            holder.execute(old.sql(f"LOCK TABLE OURS.{table} IN ROW EXCLUSIVE MODE"))
        yield holder


@contextmanager
def installing(store: Store) -> Generator[list[list[Step]]]:
    """An upgrade under way; its steps, once it is done."""
    done: list[list[Step]] = []
    thread = threading.Thread(target=lambda: done.append(store.driver.install()))
    thread.start()
    try:
        yield done
    finally:
        thread.join()


def is_building(store: Store, connection: psycopg.Connection) -> int | None:
    """The server process that builds an index of the store, if one does."""
    row = connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE query LIKE %s AND state = 'active'",
        (f"CREATE INDEX CONCURRENTLY%{store.schema}%",),
    ).fetchone()
    return None if row is None else int(row[0])


def test_workers_go_on_while_an_upgrade_waits_for_an_open_transaction(
    old: Store, open_another: OpenStore, connection: psycopg.Connection, postgres_server: PostgresServer
) -> None:
    installer = open_another(schema=old.schema)
    with holding(old, postgres_server) as holder, installing(installer) as done:
        try:
            until(lambda: is_building(old, connection), "an index is being built")
            for _ in range(20):
                works(old)
            assert not done, "it waits for the transaction, and nobody waits for it"
        finally:
            holder.rollback()
    assert done
    assert invalid(old, connection) == []
    assert version(old, connection) == VERSION


def test_no_migration_takes_a_lock_that_a_worker_waits_for(
    old: Store, connection: psycopg.Connection, postgres_server: PostgresServer
) -> None:
    """Nor one that it would have to wait for: a worker writes, so that only these modes stand in its way."""
    steps = [step for step in old.driver.install(dry_run=True) if not step.title.startswith("history")]
    assert len(steps) >= VERSION - 1
    with closing(postgres_server.connect(connection.info.dbname)) as installer:
        for step in steps:
            if "CONCURRENTLY" in step.statements:
                installer.execute(step.statements.encode())  # which waits for others, and nobody for it
                continue
            with installer.transaction():
                (used,) = installer.execute(
                    "SELECT array_agg(oid) FROM pg_class WHERE relnamespace = %s::regnamespace"
                    " AND relkind IN ('r', 'p') AND relname <> 'schema_version'",
                    (old.sql("OURS").decode(),),
                ).fetchone() or ([],)
                installer.execute(step.statements.encode())
                strong = installer.execute(
                    "SELECT relation::regclass::text, mode FROM pg_locks WHERE pid = pg_backend_pid()"
                    " AND relation = ANY(%s) AND mode IN"
                    " ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')",
                    (used,),
                ).fetchall()
                assert strong == [], step.title
    assert version(old, connection) == VERSION


def test_an_index_build_that_was_interrupted_is_repaired_by_the_next_run(
    old: Store, open_another: OpenStore, connection: psycopg.Connection, postgres_server: PostgresServer
) -> None:
    installer = open_another(schema=old.schema)
    failures: list[Exception] = []

    def install() -> None:
        try:
            installer.driver.install()
        except Exception as error:
            failures.append(error)

    with holding(old, postgres_server):
        thread = threading.Thread(target=install)
        thread.start()
        process = until(lambda: is_building(old, connection), "an index is being built")
        until(lambda: invalid(old, connection), "the index is there")
        connection.execute("SELECT pg_terminate_backend(%s)", (process,))
        thread.join()
    assert failures
    assert version(old, connection) == 1
    assert invalid(old, connection), "what is left of it"
    works(old)
    old.driver.install()
    assert invalid(old, connection) == []
    assert version(old, connection) == VERSION


def test_a_dropped_index_comes_back_with_the_next_run(store: Store, connection: psycopg.Connection) -> None:
    connection.execute(store.sql("DROP INDEX OURS.live_jobs_ready, OURS.done_jobs_id"))
    titles = [step.title for step in store.driver.install()]
    assert titles == ["index done_jobs_id", "index live_jobs_ready"]
    assert {"live_jobs_ready", "done_jobs_id"} <= present(store, connection)
    assert invalid(store, connection) == []


def test_several_upgrades_at_once_are_one(
    old: Store, open_another: OpenStore, connection: psycopg.Connection
) -> None:
    installers = [open_another(schema=old.schema) for _ in range(3)]
    threads = [threading.Thread(target=each.driver.install) for each in installers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert version(old, connection) == VERSION
    assert invalid(old, connection) == []
    assert set(OF_002) <= present(old, connection)


def test_what_the_old_schema_lacks_is_refused_in_one_sentence(old: Store) -> None:
    with pytest.raises(StoreError, match="run `jobctl init`"):
        old.driver.read_notes(["schedule:nightly"])
    works(old)

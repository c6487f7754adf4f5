"""Each ailment of a PostgreSQL store, provoked for real, is found and named with its remedy."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from jobcontract import Job, get_backend
from jobcontract.conformance.clock import shifted_clock
from tests.cli.conftest import Ran, invoke
from tests.doctor.conftest import Doctor, configure
from tests.postgres.stores import until
from tests.servers.binaries import Programs
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgres import PostgresServer


@pytest.fixture
def connection(postgres: PostgresServer, database: str) -> Iterator[psycopg.Connection]:
    """A superuser's connection in autocommit mode."""
    with postgres.connect(database) as connection:
        yield connection


def test_a_healthy_store_is_silent(doctor: Doctor, url: str, connection: psycopg.Connection) -> None:
    with get_backend(url) as backend:
        backend.register_many([Job(kind="k") for _ in range(100)])
        backend.complete_many(backend.claim(limit=50))
    connection.execute("ANALYZE")
    assert doctor("--backend", url) == {}
    assert invoke("doctor", "--backend", url) == Ran(0, "", "")


def test_all_configured_backends_are_looked_at(doctor: Doctor, url: str, folder: Path) -> None:
    away = "postgresql://someone:canary@127.0.0.1:1/nowhere?timeout=2s"
    configure(folder, f'[backends.good]\nurl = "{url}"\n[backends.away]\nurl = "{away}"\n')
    found = doctor()
    assert found.keys() == {"unreachable"}
    assert "canary" not in found["unreachable"]


def test_a_store_that_nobody_initialised_is_unusable(
    doctor: Doctor, postgres: PostgresServer, database: str
) -> None:
    assert doctor("--backend", postgres.url(database))["unusable"].endswith(" -> run `jobctl init`")


@pytest.mark.parametrize("index", ["live_jobs_ready", "live_jobs_running", "done_jobs_id"])
def test_a_dropped_index(doctor: Doctor, url: str, connection: psycopg.Connection, index: str) -> None:
    connection.execute(f"DROP INDEX jobcontract.{index}".encode())
    found = doctor("--backend", url)
    assert found.keys() == {"index"}
    assert f"the index {index} is missing" in found["index"]
    assert "jobctl init" in found["index"]
    told = invoke("doctor", "--backend", url)
    assert told.code == 1
    first, second = told.out.splitlines()
    assert first.startswith("url: index: the index ")
    assert second.startswith("    remedy: run `jobctl init`")


def test_an_index_whose_build_was_interrupted(
    doctor: Doctor, url: str, connection: psycopg.Connection
) -> None:
    """What an interrupted CREATE INDEX CONCURRENTLY leaves behind, left behind by one."""
    connection.execute("DROP INDEX jobcontract.live_jobs_ready")
    with get_backend(url) as backend:
        backend.register_many([Job(kind="k"), Job(kind="k")])
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute("CREATE UNIQUE INDEX CONCURRENTLY live_jobs_ready ON jobcontract.live_jobs (kind)")
    assert "live_jobs_ready is not valid" in doctor("--backend", url)["index"]


def test_an_index_that_the_claim_does_not_use(
    doctor: Doctor, url: str, connection: psycopg.Connection
) -> None:
    """One of that name is there, and it is another one."""
    connection.execute("ALTER INDEX jobcontract.live_jobs_ready RENAME TO of_old")
    connection.execute("CREATE INDEX live_jobs_ready ON jobcontract.live_jobs (kind)")
    found = doctor("--backend", url)
    assert "does not use the index live_jobs_ready, but live_jobs_pkey, of_old" in found["claim_plan"]
    assert "ANALYZE" in found["claim_plan"]


@contextmanager
def in_background(connection: psycopg.Connection, statement: bytes) -> Generator[None]:
    """`statement` runs on `connection` until the block ends."""

    def run() -> None:
        with contextlib.suppress(psycopg.Error):
            connection.execute(statement)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        connection.cancel_safe()
        thread.join()


def test_a_session_that_holds_an_old_snapshot(
    doctor: Doctor, url: str, postgres: PostgresServer, database: str
) -> None:
    with postgres.connect(database) as busy, in_background(busy, b"SELECT pg_sleep(60)"):
        found = until(lambda: doctor("--backend", url, "--patience", "200ms"), "the snapshot is old")
        assert found.keys() == {"pinned_horizon"}
        assert f"session {busy.info.backend_pid} of jobcontract has held" in found["pinned_horizon"]
        assert "pg_cancel_backend" in found["pinned_horizon"]
        assert doctor("--backend", url) == {}, "the usual patience is longer"


def test_a_prepared_transaction_that_nobody_ends(
    doctor: Doctor, url: str, connection: psycopg.Connection
) -> None:
    connection.execute("BEGIN; CREATE TABLE held (); PREPARE TRANSACTION 'forgotten'")
    try:
        found = until(lambda: doctor("--backend", url, "--patience", "100ms"), "it is old")
        assert "ROLLBACK PREPARED 'forgotten'" in found["pinned_horizon"]
    finally:
        connection.execute("ROLLBACK PREPARED 'forgotten'")


def test_a_replication_slot_that_nobody_reads(
    doctor: Doctor, url: str, connection: psycopg.Connection
) -> None:
    connection.execute("SELECT pg_create_logical_replication_slot('left', 'pgoutput')")
    try:
        assert "pg_drop_replication_slot('left')" in doctor("--backend", url)["pinned_horizon"]
    finally:
        connection.execute("SELECT pg_drop_replication_slot('left')")


def test_a_session_that_idles_in_its_transaction(
    doctor: Doctor, url: str, postgres: PostgresServer, database: str
) -> None:
    with closing(postgres.connect(database, autocommit=False)) as idle:
        idle.execute("SELECT 1")
        found = until(lambda: doctor("--backend", url, "--patience", "200ms"), "it idles for long")
        assert found.keys() == {"idle_in_transaction"}
        assert f"pg_terminate_backend({idle.info.backend_pid})" in found["idle_in_transaction"]


def test_vacuum_that_is_off_for_the_table(doctor: Doctor, url: str, connection: psycopg.Connection) -> None:
    connection.execute("ALTER TABLE jobcontract.live_jobs SET (autovacuum_enabled = off)")
    found = doctor("--backend", url)
    assert found["vacuum"].endswith('ALTER TABLE "jobcontract".live_jobs RESET (autovacuum_enabled)')


def test_vacuum_that_is_off_for_all(doctor: Doctor, url: str, connection: psycopg.Connection) -> None:
    connection.execute("ALTER SYSTEM SET autovacuum = off")
    connection.execute("SELECT pg_reload_conf()")
    try:
        found = until(lambda: doctor("--backend", url), "the server has read its configuration")
        assert found["vacuum"].endswith("set autovacuum = on and track_counts = on")
    finally:
        connection.execute("ALTER SYSTEM RESET autovacuum")
        connection.execute("SELECT pg_reload_conf()")
    until(lambda: not doctor("--backend", url), "the server has read its configuration again")


def test_dead_rows_that_vacuum_can_not_get_at(
    doctor: Doctor, url: str, connection: psycopg.Connection, postgres: PostgresServer, database: str
) -> None:
    connection.execute(
        "INSERT INTO jobcontract.live_jobs"
        " (id, run_at, created_at, max_attempts, priority, queue, kind, input_ref)"
        " SELECT gen_random_uuid(), now(), now(), 5, 0, 'default', 'k', '{}' FROM generate_series(1, 60000)"
    )
    with closing(postgres.connect(database, autocommit=False)) as pin:
        pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pin.execute("SELECT 1")
        connection.execute("DELETE FROM jobcontract.live_jobs")

        def dead_rows() -> str | None:
            return doctor("--backend", url, "--patience", "1s").get("dead_rows")

        found = until(dead_rows, "the statistics have come")
    assert "60,000 dead rows" in (found or "")
    assert (found or "").endswith('VACUUM "jobcontract".live_jobs')


def test_a_pooler_in_transaction_mode(
    doctor: Doctor, url: str, postgres: PostgresServer, database: str, pgbouncer_programs: Programs
) -> None:
    del url  # the store behind it is installed
    with PgBouncerServer(postgres, programs=pgbouncer_programs) as pooler:
        found = doctor("--backend", pooler.url(database))
        assert found.keys() == {"pooler"}
        assert "give workers a URL without the pooler" in found["pooler"]
        trusted = f"{pooler.url(database)}?listen=on&prepared_statements=on"
        assert doctor("--backend", trusted) == {}, "whoever says that it is in session mode is believed"


def test_too_few_connections(doctor: Doctor, url: str, postgres: PostgresServer, database: str) -> None:
    assert doctor("--backend", url) == {}
    found = doctor("--backend", url, "--processes", "4")
    assert "max_connections leaves " in found["connections"]
    assert "4 more processes may open 44" in found["connections"]
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(closing(postgres.connect(database)))
        assert "one more process may open 11" in doctor("--backend", url)["connections"]


def test_a_role_that_may_have_few_connections(
    doctor: Doctor, postgres: PostgresServer, url: str, database: str, connection: psycopg.Connection
) -> None:
    connection.execute(f'ALTER DATABASE "{database}" CONNECTION LIMIT 5'.encode())
    assert "the CONNECTION LIMIT of the database leaves" in doctor("--backend", url)["connections"]


def test_a_day_without_a_partition(doctor: Doctor, url: str, connection: psycopg.Connection) -> None:
    days = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'jobcontract.done_jobs'::regclass ORDER BY 1"
    ).fetchall()
    connection.execute(f"DROP TABLE {days[1][0]}".encode())
    assert "run `jobctl init` now and daily" in doctor("--backend", url)["history_partitions"]


def test_a_commit_that_is_not_synced(
    doctor: Doctor, url: str, connection: psycopg.Connection, database: str
) -> None:
    connection.execute(f'ALTER DATABASE "{database}" SET synchronous_commit = off'.encode())
    assert doctor("--backend", url)["not_durable"].endswith(" -> set synchronous_commit = on")


def test_what_the_user_may_not_see(
    doctor: Doctor, url: str, connection: psycopg.Connection, postgres: PostgresServer, database: str
) -> None:
    del url  # the store is installed
    connection.execute("CREATE ROLE looker LOGIN PASSWORD 'looker'")
    try:
        connection.execute("GRANT USAGE ON SCHEMA jobcontract TO looker")
        connection.execute("GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA jobcontract TO looker")
        seen = postgres.url(database, user="looker", password="looker")
        assert doctor("--backend", seen)["unseen"].endswith(" -> GRANT pg_read_all_stats TO looker")
        connection.execute("GRANT pg_read_all_stats TO looker")
        assert doctor("--backend", seen) == {}
    finally:
        connection.execute("DROP OWNED BY looker; DROP ROLE looker")


def test_a_clock_that_is_30_seconds_off(doctor: Doctor, url: str) -> None:
    with shifted_clock(timedelta(seconds=30), ("jobcontract",)):
        found = doctor("--backend", url)
    assert found.keys() == {"clock"}
    assert "30s behind" in found["clock"]
    assert "NTP" in found["clock"]

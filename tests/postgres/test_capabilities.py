"""What the driver declares is what the live server is set to."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta

import psycopg
import pytest

from jobcontract.contract import Durability
from tests.postgres.conftest import installed
from tests.postgres.stores import Store, jobs, open_store
from tests.servers.binaries import Programs
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def durable_server(postgres_programs: Programs) -> Generator[PostgresServer]:
    """A server as it comes: fsync is on."""
    with PostgresServer(programs=postgres_programs) as server:
        yield server


def test_a_server_as_it_comes_keeps_what_it_acknowledged(durable_server: PostgresServer) -> None:
    capabilities = open_store(durable_server.url()).driver.capabilities
    assert capabilities.durability is Durability.FSYNC
    assert capabilities.notes == ()
    assert capabilities.has("fsync")


def test_synchronous_commit_off_is_declared(durable_server: PostgresServer) -> None:
    """Set for a role or a database, it is as good as set for the server."""
    database = durable_server.create_database()
    with durable_server.connect() as connection:
        connection.execute(f"ALTER DATABASE {database} SET synchronous_commit = off".encode())
    capabilities = open_store(durable_server.url(database)).driver.capabilities
    assert capabilities.durability is Durability.WINDOW
    assert any("synchronous_commit is off" in note for note in capabilities.notes)


def test_fsync_off_is_declared(postgres_server: PostgresServer) -> None:
    """The servers of the tests are set so."""
    capabilities = open_store(postgres_server.url()).driver.capabilities
    assert capabilities.durability is Durability.WINDOW
    assert any("fsync is off" in note for note in capabilities.notes)


def test_an_encoding_that_does_not_hold_everything_is_said(postgres_server: PostgresServer) -> None:
    with postgres_server.connect() as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    try:
        store = open_store(postgres_server.url("latin"))
        assert any("encoding is LATIN1" in note for note in store.driver.capabilities.notes)
        store.driver.close()
    finally:
        postgres_server.drop_database("latin")


def test_a_pooler_is_noticed_and_said(pgbouncer_server: PgBouncerServer) -> None:
    notes = " ".join(open_store(pgbouncer_server.url()).driver.capabilities.notes)
    assert "a pooler stands in between" in notes
    assert "waiting workers poll" in notes


def test_sessions_behind_a_pooler_are_left_as_they_are(
    postgres_server: PostgresServer, pgbouncer_server: PgBouncerServer
) -> None:
    """A setting, a prepared statement or a lock of a session would meet whoever gets the session next."""
    database = postgres_server.create_database()
    with installed(pgbouncer_server.url(database)) as store:
        use(store)
        rows = session_state(pgbouncer_server.url(database))
    assert rows == [("auto", "on", 0, 0)]
    postgres_server.drop_database(database)


def use(store: Store) -> None:
    for _ in range(10):
        store.register(*jobs(1))
        store.complete(store.claim_one())
    store.driver.wait(["default"], timedelta(milliseconds=200))


def session_state(url: str) -> list[tuple[object, ...]]:
    """Settings, prepared statements and advisory locks of the server session that the pooler lends."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        return connection.execute(
            "SELECT current_setting('plan_cache_mode'), current_setting('enable_seqscan'),"
            " (SELECT count(*) FROM pg_prepared_statements),"
            " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
        ).fetchall()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("pooled", [False, True], ids=["directly", "behind PgBouncer"])
def test_statements_are_read_committed_whatever_the_default_is(
    postgres_server: PostgresServer, pgbouncer_server: PgBouncerServer, level: str, pooled: bool
) -> None:
    database = postgres_server.create_database()
    with postgres_server.connect() as connection:
        connection.execute(
            f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'".encode()
        )
    server = pgbouncer_server if pooled else postgres_server
    with installed(server.url(database)) as store:
        show = "SELECT current_setting('transaction_isolation')"
        assert store.driver.sessions.run(show, ()) == [("read committed",)]
    postgres_server.drop_database(database)

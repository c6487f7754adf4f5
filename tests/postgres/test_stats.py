"""The numbers of the queues: what they say, and that looking costs the same however much there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from jobcontract.side_doors import COUNTED_UP_TO, QueueStats
from tests.postgres.stores import Store, jobs, open_store
from tests.servers.postgres import PostgresServer

MANY = COUNTED_UP_TO + 20_000
MOST_BUFFERS = 20_000
"""Counting 100,001 entries of an index reads some 1,000 pages, if none of its rows has to be looked at."""

_FILL = """\
INSERT INTO OURS.live_jobs (id, run_at, created_at, max_attempts, priority, queue, kind, input_ref)
SELECT gen_random_uuid(), now() + interval '1 day', now(), 5, 9, 'later', 'k', '{}' FROM generate_series(1,
$1); INSERT INTO OURS.done_jobs
    (id, run_at, created_at, finished_at, attempt, max_attempts, priority, queue, kind, input_ref)
SELECT gen_random_uuid(), now(), now(),
       greatest(now() - interval '1 hour', date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'),
       1, 5, 0, 'past', 'k', '{}'
FROM generate_series(1, $1);
INSERT INTO OURS.dead_jobs
    (id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, state, queue, kind,
    input_ref)
SELECT gen_random_uuid(), now(), now(), now(), 1, 0, 5, 0, 'dead', 'past', 'k', '{}' FROM generate_series(1,
$1)
"""


@pytest.fixture(scope="module")
def full(postgres_server: PostgresServer) -> Iterator[Store]:
    """A store with many jobs that are not due, done or dead, and vacuumed."""
    name = postgres_server.create_database()
    store = open_store(postgres_server.url(name))
    with closing(store.driver), postgres_server.connect(name) as connection:
        store.driver.install()
        connection.execute(store.sql(_FILL.replace("$1", str(MANY))))
        for table in ("live_jobs", "dead_jobs", "done_jobs"):
            connection.execute(store.sql(f"VACUUM (ANALYZE) OURS.{table}"))
        yield store
    postgres_server.drop_database(name)


def row(store: Store, queue: str) -> QueueStats:
    return {each.queue: each for each in store.driver.stats()}[queue]


def test_what_is_more_than_can_be_counted_cheaply_is_counted_up_to_there(full: Store) -> None:
    full.register(*jobs(3, queue="few"))
    assert (row(full, "later").scheduled, row(full, "later").ready) == (COUNTED_UP_TO + 1, 0)
    assert row(full, "past").dead == COUNTED_UP_TO + 1
    assert row(full, "few").ready == 3


def test_stats_read_a_bounded_number_of_pages(full: Store, postgres_server: PostgresServer) -> None:
    """All of the history and half of the rest would be some ten thousands of pages, and grow with it."""
    with full.driver.sessions.session() as connection:
        plan = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {full.driver.statements.stats}".encode()
        )
        (explained,) = plan.fetchone() or ([],)
    top = explained[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < MOST_BUFFERS
    assert not _sequential(top, {"live_jobs", "dead_jobs"})


def _sequential(node: dict[str, object], tables: set[str]) -> list[object]:
    found: list[object] = []
    if node.get("Node Type") == "Seq Scan" and node.get("Relation Name") in tables:
        found.append(node["Relation Name"])
    below = node.get("Plans", [])
    assert isinstance(below, list)
    for each in below:  # pyright: ignore[reportUnknownVariableType]  # EXPLAIN's JSON
        found += _sequential(each, tables)  # pyright: ignore[reportUnknownArgumentType]
    return found


def test_a_worker_starts_beside_many_jobs_without_reading_them(
    full: Store, postgres_server: PostgresServer
) -> None:
    """What a worker does first: a claim, a rescue with its housekeeping, a look for what is due next."""
    starting = open_store(postgres_server.url(_database_of(full)), timeout="5s")
    with closing(starting.driver), closing(postgres_server.connect(_database_of(full))) as connection:
        before = _rows_read(connection)
        full.register(*jobs(1, queue="start"))
        (claimed,) = starting.claim(1, queue="start")
        assert starting.complete(claimed.lease) == [True]
        starting.driver.rescue(100)
        starting.driver.wait(["nothing"], timedelta(milliseconds=1))
        starting.driver.close()
        assert _rows_read(connection) - before < 10_000


def _database_of(store: Store) -> str:
    with store.driver.sessions.session() as connection:
        return connection.info.dbname


def _rows_read(connection: psycopg.Connection) -> int:
    """By sequential scans of our tables, so far."""
    connection.execute("SELECT pg_stat_clear_snapshot()")
    row = connection.execute(
        "SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE schemaname = 'jobcontract'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_the_rate_of_completions_is_that_of_the_last_ten_seconds(
    store: Store, connection: psycopg.Connection
) -> None:
    store.register(*jobs(50))
    assert all(store.complete(*(each.lease for each in store.claim(50))))
    assert row(store, "default").done_per_second == pytest.approx(5.0)
    connection.execute(store.sql("UPDATE OURS.done_jobs SET finished_at = finished_at - interval '11 s'"))
    assert store.driver.stats() == [], "long ago, and all is done"
    store.register(*jobs(1))
    assert row(store, "default").done_per_second == 0


def test_each_queue_is_found_once(store: Store) -> None:
    names = [f"q{number:03}" for number in range(150)]
    store.register(*(jobs(1, queue=name)[0] for name in names))
    store.register(*(jobs(1, queue=name, priority=9)[0] for name in names))
    assert [(each.queue, each.ready) for each in store.driver.stats()] == [(name, 2) for name in names]

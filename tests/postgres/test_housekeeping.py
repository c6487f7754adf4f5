"""The history: tomorrow's partition is there, and what is past the retention is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

from jobcontract.contract import Job, State
from tests.postgres.conftest import OpenStore
from tests.postgres.stores import Store, jobs, until


def partitions(store: Store, connection: psycopg.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid"
        " WHERE inhparent = %s::regclass ORDER BY 1",
        (store.sql("OURS.done_jobs").decode(),),
    )
    return [name for (name,) in rows]


def name_of(days_ahead: int) -> str:
    return f"done_jobs_{datetime.now(UTC) + timedelta(days=days_ahead):%Y%m%d}"


def age(store: Store, connection: psycopg.Connection, days: int) -> None:
    """Let all that is done have ended `days` ago, in a partition of that day."""
    day = datetime.now(UTC).date() - timedelta(days=days)
    connection.execute(
        store.sql(
            f"CREATE TABLE OURS.{name_of(-days)} PARTITION OF OURS.done_jobs"
            f" FOR VALUES FROM ('{day}+00') TO ('{day + timedelta(days=1)}+00')"
        )
    )
    connection.execute(
        store.sql(f"UPDATE OURS.done_jobs SET finished_at = finished_at - interval '{days} days'")
    )


def finish(store: Store, *made: Job) -> None:
    store.register(*made)
    assert all(store.complete(*(each.lease for each in store.claim(len(made)))))


def test_an_installation_brings_the_partitions_of_three_days(
    store: Store, connection: psycopg.Connection
) -> None:
    assert partitions(store, connection) == [name_of(0), name_of(1), name_of(2), "done_jobs_rest"]


def test_rescue_makes_the_partitions_that_are_missing(store: Store, connection: psycopg.Connection) -> None:
    connection.execute(store.sql(f"DROP TABLE OURS.{name_of(1)}, OURS.{name_of(2)}"))
    store.driver.rescue(1)
    assert partitions(store, connection) == [name_of(0), name_of(1), name_of(2), "done_jobs_rest"]


def test_a_day_without_a_partition_ends_in_the_safety_net_and_stays_there(
    store: Store, connection: psycopg.Connection
) -> None:
    connection.execute(store.sql(f"DROP TABLE OURS.{name_of(0)}"))
    (made,) = jobs(1)
    finish(store, made)
    store.driver.rescue(1)
    assert name_of(0) not in partitions(store, connection), "its jobs are elsewhere already"
    assert store.driver.get(str(made.id)).state is State.DONE  # type: ignore[union-attr]


def test_a_day_past_the_retention_goes_with_its_keys(
    store: Store, open_another: OpenStore, connection: psycopg.Connection
) -> None:
    old, kept = jobs(1, idempotency_key="old"), jobs(1, idempotency_key="kept")
    finish(store, *old, *jobs(20))
    age(store, connection, 9)
    finish(store, *kept)
    keeper = open_another(schema=store.schema, retention="7d")

    keeper.driver.rescue(1)
    assert name_of(-9) not in partitions(store, connection)
    assert store.driver.get(str(old[0].id)) is None
    assert store.register(*jobs(1, idempotency_key="old"))[0].created, "its key is free"
    assert not store.register(*jobs(1, idempotency_key="kept"))[0].created


def test_without_a_retention_everything_is_kept(
    store: Store, open_another: OpenStore, connection: psycopg.Connection
) -> None:
    (made,) = jobs(1)
    finish(store, made)
    age(store, connection, 4000)
    open_another(schema=store.schema, retention="0").driver.rescue(1)
    assert store.driver.get(str(made.id)) is not None


def test_what_is_past_the_retention_in_the_safety_net_goes_too(
    store: Store, open_another: OpenStore, connection: psycopg.Connection
) -> None:
    finished, cancelled, dead = jobs(3)
    finish(store, finished)
    store.register(cancelled, dead)
    store.driver.cancel([str(cancelled.id)])
    store.fail(store.claim_one(), permanent=True)
    connection.execute(store.sql("UPDATE OURS.done_jobs SET finished_at = finished_at - interval '9 days'"))
    connection.execute(store.sql("UPDATE OURS.dead_jobs SET finished_at = finished_at - interval '9 days'"))
    open_another(schema=store.schema, retention="7d").driver.rescue(1)
    assert store.driver.get(str(finished.id)) is None
    assert store.driver.get(str(cancelled.id)) is None
    assert store.driver.get(str(dead.id)) is not None, "a dead job waits for a person"


def test_a_day_that_somebody_reads_is_dropped_another_time(
    store: Store, open_another: OpenStore, connection: psycopg.Connection
) -> None:
    """The drop must not queue for its lock: whoever completes a job would queue behind it."""
    finish(store, *jobs(1))
    age(store, connection, 9)
    keeper = open_another(schema=store.schema, retention="7d")
    with connection.transaction():
        connection.execute(store.sql("SELECT FROM OURS.done_jobs"))
        keeper.driver.rescue(1)
        finish(keeper, *jobs(1))
    assert name_of(-9) in partitions(store, connection)
    later = open_another(schema=store.schema, retention="7d")
    until(
        lambda: later.driver.rescue(1) and name_of(-9) not in partitions(store, connection), "it is dropped"
    )

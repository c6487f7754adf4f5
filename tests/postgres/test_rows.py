"""Rows that were edited by hand, and statements that must not read what they don't need."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from jobcontract import get_backend
from jobcontract.config import Settings
from jobcontract.contract import State
from jobcontract.side_doors import Page
from tests.postgres.conftest import OpenStore
from tests.postgres.stores import NOTHING, Store, jobs, until
from tests.servers.postgres import PostgresServer

EDITS = {
    "an integer of 5,000 digits": "SET input_ref = ('{\"a\":' || repeat('9', 5000) || '}')::json",
    "an input that is no object": "SET input_ref = '[1]'",
    "an input nested too deep": "SET input_ref = (repeat('[', 3000) || repeat(']', 3000))::json",
    "an escaped NUL": 'SET input_ref = \'{"a": "\\u0000"}\'',
    "a kind that is none": "SET kind = 'no kind!'",
    "headers that are none": "SET headers = '[1]'",
    "attempts that are none": "SET max_attempts = -1",
    "a run_at that no job may have": "SET run_at = '2999-01-01+00'",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_row_that_is_no_job_dies_alone(
    store: Store, postgres_server: PostgresServer, connection: psycopg.Connection, edit: str
) -> None:
    good, bad, other = jobs(3, idempotency_key=None)
    store.register(good, bad, other)
    connection.execute(store.sql(f"UPDATE OURS.live_jobs {edit} WHERE id = %s"), (bad.id,))
    url = postgres_server.url(schema=store.schema)
    with get_backend(url, settings=Settings()) as backend:
        claims = backend.claim(limit=10)
        assert {claim.job.id for claim in claims} == {good.id, other.id}
        assert all(verdict.applied for verdict in backend.complete_many(claims))
        found = backend.get(bad.id)
        assert found is not None
        if found.state is not State.READY:  # out of the reach of claims is as good as dead
            assert found.state is State.DEAD
            assert found.last_error


@pytest.mark.parametrize(
    "edit",
    [
        "SET run_at = 'infinity'",
        "SET run_at = '-infinity'",
        "SET created_at = 'infinity'",
        "SET priority = 10",
        "SET attempt = 2147483647",
        "SET attempt = -1",
        "SET refunded = 1",
        "SET state = 'running'",
        "SET state = 'resting'",
        "SET token = gen_random_uuid()",
    ],
)
def test_an_edit_that_would_stop_the_others_is_refused(
    store: Store, connection: psycopg.Connection, edit: str
) -> None:
    """No client can fetch an infinite timestamp, and no claim can count on from the last integer.

    The row would spoil every batch it is in.
    """
    store.register(*jobs(1))
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(store.sql(f"UPDATE OURS.live_jobs {edit}"))


def test_a_job_that_is_dead_already_does_not_stop_the_rescue_of_others(
    store: Store, connection: psycopg.Connection
) -> None:
    """Somebody copied a row by hand."""
    store.register(*jobs(3, max_attempts=1))
    leases = [each.lease for each in store.claim(3, lease=timedelta(milliseconds=1))]
    connection.execute(
        store.sql(
            "INSERT INTO OURS.dead_jobs"
            " SELECT id, run_at, created_at, now(), attempt, refunded, max_attempts, priority, 'dead', queue,"
            " kind, idempotency_key, last_error, headers, input_ref FROM OURS.live_jobs WHERE id = %s"
        ),
        (leases[0].job_id,),
    )
    assert store.driver.rescue(10) == (0, 3)
    assert store.driver.rescue(10) == (0, 0)


def test_no_verb_of_a_worker_or_producer_reads_a_table_from_end_to_end(
    open_another: OpenStore, connection: psycopg.Connection
) -> None:
    """Also with the plans that were made while the tables were empty."""
    schema = f"test_plans_{id(connection)}"
    installing = open_another(schema=schema)
    installing.driver.install()
    installing.driver.close()
    store = open_another(schema=schema, application_name=schema, retention="0")
    connection.execute(store.sql("VACUUM OURS.live_jobs, OURS.dead_jobs, OURS.done_jobs, OURS.job_keys"))
    use_every_verb(store, 1)
    for _ in range(5):
        use_every_verb(store, 100)

    store.driver.close()
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    until(
        lambda: connection.execute(sessions, (schema,)).fetchone() == (0,), "all have told their statistics"
    )
    rows = connection.execute(
        "SELECT relname, seq_tup_read FROM pg_stat_all_tables WHERE schemaname = %s AND seq_tup_read > 0",
        (schema,),
    ).fetchall()
    assert {name for name, _ in rows} <= {"queues", "schema_version"}


def use_every_verb(store: Store, count: int) -> None:
    made = jobs(2 * count) + [
        job for n in range(2 * count) for job in jobs(1, idempotency_key=f"{count}:{n}")
    ]
    store.register(*made)
    store.register(*made)
    claimed = [each.lease for each in store.claim(4 * count)]
    store.driver.extend(claimed, timedelta(minutes=1))
    store.complete(*claimed[:count])
    for lease in claimed[count : 2 * count]:
        store.fail(lease, permanent=True)
    store.driver.release(claimed[2 * count : 3 * count], NOTHING)
    store.driver.rescue(10)
    store.driver.wait(["default"], timedelta(seconds=10))
    store.driver.get(claimed[0].job_id)
    store.driver.jobs(Page())
    store.driver.jobs(Page(idempotency_key=f"{count}:1"))
    ids = [lease.job_id for lease in claimed]
    store.driver.cancel(ids)
    store.driver.requeue(ids)

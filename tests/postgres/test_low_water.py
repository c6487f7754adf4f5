"""The low-water hint saves work, and hides none for long."""

from __future__ import annotations

import re
from datetime import timedelta

import psycopg
from jobcontract_postgres.capabilities import PRIORITIES
from jobcontract_postgres.low_water import Probes, ranges

from jobcontract.connections import bind, run_steps
from jobcontract.contract import Job
from tests.postgres.conftest import OpenStore
from tests.postgres.stores import LEASE, Store, jobs, until
from tests.servers.postgres import PostgresServer


def ids(store: Store, limit: int = 10) -> list[str]:
    return [each.record.id for each in store.claim(limit)]


def test_a_job_that_was_committed_late_is_found_behind_the_hint(
    store: Store, postgres_server: PostgresServer
) -> None:
    """It was registered first, by a transaction that stayed open while later jobs came and went."""
    late, first, second, third = jobs(4)
    with psycopg.connect(postgres_server.url()) as caller:
        run_steps(bind(caller), store.driver.register_steps([late.to_record()]))
        store.register(first, second, third)
        assert ids(store, 2) == [str(first.id), str(second.id)]
        caller.commit()
    assert ids(store, 1) == [str(third.id)], "the hint passes over it"
    assert ids(store) == [str(late.id)], "and an empty answer is not given by the hint"


def test_a_job_behind_the_hint_is_found_within_a_second_or_so_while_others_come(
    store: Store, postgres_server: PostgresServer
) -> None:
    (late,) = jobs(1)
    with psycopg.connect(postgres_server.url()) as caller:
        run_steps(bind(caller), store.driver.register_steps([late.to_record()]))
        store.register(*jobs(1))
        store.claim_one()
        caller.commit()

    def found() -> bool:
        store.register(*jobs(2))
        return str(late.id) in ids(store, 1)

    until(found, "the hint is dropped")


def test_jobs_of_another_process_do_not_wait_for_our_hint(store: Store, open_another: OpenStore) -> None:
    """What comes back to ready has a new run_at, and lies before every hint."""
    other = open_another(schema=store.schema)
    store.register(*jobs(3))
    first, second = store.claim_one(), other.claim_one()
    other.driver.release([second], timedelta())
    other.fail(first)
    assert len(ids(store)) == 3


def test_claims_between_surveys_do_not_walk_over_the_dead(
    store: Store, postgres_server: PostgresServer, connection: psycopg.Connection
) -> None:
    """Somebody holds an old snapshot. Neither are the dead of a priority read that is empty by now, nor those
    of one that is not.
    """
    with postgres_server.connect(autocommit=False) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        for priority in (0, 9):
            store.register(*jobs(1000, priority=priority))
            assert all(store.complete(*(each.lease for each in store.claim(1000))))
        store.register(*jobs(100))

        low_water = store.driver.low_water
        assert dead_rows_read(connection, store, low_water.survey(["default"], PRIORITIES)) >= 2000
        store.claim(10)
        assert dead_rows_read(connection, store, low_water.from_marks(["default"], PRIORITIES)) < 100


def dead_rows_read(connection: psycopg.Connection, store: Store, probes: Probes) -> int:
    """How many rows a claim that reads `probes` looks at in vain or, a few of them, not in vain."""
    claim = psycopg.ClientCursor(connection).mogrify(
        store.driver.statements.claim.encode(), (*ranges(probes), 10, 10, LEASE, False)
    )
    with connection.transaction(force_rollback=True):
        plan = connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {claim}".encode()).fetchall()
    return sum(map(int, re.findall(r"Heap Fetches: (\d+)", str(plan))))


def test_each_queue_and_priority_has_a_hint_of_its_own(store: Store) -> None:
    low, high, elsewhere = Job(kind="test"), Job(kind="test", priority=9), Job(kind="test", queue="other")
    store.register(*jobs(1, priority=5), *jobs(1, priority=5, queue="other"))
    store.claim_one()
    store.register(low, high, elsewhere)
    assert ids(store) == [str(high.id), str(low.id)]
    assert [each.record.id for each in store.claim(10, queue="other")][-1:] == [str(elsewhere.id)]


def test_jobs_with_one_run_at_are_told_apart_by_their_ids(store: Store) -> None:
    """A batch is due at one instant; a hint by the instant alone would never move while it is drained."""
    made = jobs(100)
    store.register(*made)
    claimed = [each for _ in range(10) for each in ids(store, 10)]
    assert claimed == sorted(str(job.id) for job in made)

"""What the relay's statements touch: rows that can't go now cost nothing, however many they are."""

from __future__ import annotations

import json
from typing import Any, cast

import psycopg
import pytest
from jobcontract_outbox.locking import LANES_LOOKED_AT
from jobcontract_outbox.statements import Statements

from jobcontract.side_doors import HostsTables, Statement
from tests.outbox.conftest import MakeStage
from tests.outbox.stage import Stage, jobs

WAITING = 30_000
START = ("1970-01-01T00:00:00Z", 0)


@pytest.fixture
def stage(make_stage: MakeStage, postgres_url: str, redis_url: str) -> Stage:
    """An outbox in PostgreSQL."""
    return make_stage(postgres_url, redis=redis_url)


@pytest.fixture
def crowded(stage: Stage) -> Stage:
    """100 due rows for "redis", among many: of a target that is down, of the future, parked, of stopped keys.

    Without statistics, as after a burst.
    """
    fill = (
        "INSERT INTO {{outbox}} "
        "(target, job_id, queue, ordering_key, due_at, available_at, parked_at, envelope) "
        "SELECT '{target}', gen_random_uuid(), 'default', {key}, now() + {due}, now() + {due}, {parked}, '' "
        f"FROM generate_series(1, {WAITING}) AS n"
    )
    for values in (
        {"target": "down", "due": "interval '-1 day'"},
        {"target": "redis", "due": "interval '1 day'"},
        {"target": "redis", "due": "interval '-1 day'", "parked": "now()"},
        {"target": "redis", "due": "interval '-1 day'", "key": "'k' || mod(n, 3)"},
    ):
        stage.sql(fill.format(**{"key": "NULL", "parked": "NULL"} | values))
    stage.sql(
        "UPDATE {outbox} SET parked_at = now() "
        "WHERE seq IN (SELECT min(seq) FROM {outbox} WHERE ordering_key IS NOT NULL GROUP BY ordering_key)"
    )
    stage.backend().register_many(jobs(100))
    return stage


def buffers(stage: Stage, verb: str, *parameters: object) -> tuple[int, int]:
    """How many pages `verb` touches as the relay runs it, and how many rows it gives."""
    driver = stage.backend("host").driver
    assert isinstance(driver, HostsTables)
    statement = Statements(driver)(verb, *parameters)
    explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}"
    with driver.transaction() as transaction:
        ((found,),) = transaction.run(Statement(explained, statement.parameters))
    plan = cast("list[dict[str, Any]]", json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], plan["Actual Rows"]


def test_a_claim_reads_only_what_is_due_for_its_target(crowded: Stage) -> None:
    pages, rows = buffers(crowded, "claim", "redis", *START, 100)
    assert rows == 100
    assert pages < 600, pages


def test_an_empty_claim_reads_almost_nothing(crowded: Stage) -> None:
    pages, rows = buffers(crowded, "claim", "idle", *START, 100)
    assert rows == 0
    assert pages < 20, pages


def test_keys_cost_a_probe_each_however_many_rows_they_have(crowded: Stage) -> None:
    pages, rows = buffers(crowded, "lanes", "redis", "", "redis", LANES_LOOKED_AT)
    assert rows == 3
    assert pages < 50, pages


def test_the_next_due_job_is_found_at_the_head_of_its_index(crowded: Stage) -> None:
    pages, _ = buffers(crowded, "next_due", "redis", "redis")
    assert pages < 50, pages


def test_an_idle_relay_walks_over_nothing_that_was_published(stage: Stage, postgres_url: str) -> None:
    """Dead entries stay in the index for as long as anybody holds an older snapshot."""
    with psycopg.connect(postgres_url) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT pg_current_xact_id()")
        stage.backend().register_many(jobs(5000))
        assert stage.publish() == 5000
        pages, _ = buffers(stage, "next_due", "redis", "redis")
        assert pages < 30, pages


def test_registering_many_takes_no_step_per_pair_of_jobs(crowded: Stage) -> None:
    """Whatever the statistics say, and with the settings of our own sessions."""
    with psycopg.connect(crowded.host_url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) jobcontract.outbox, jobcontract.outbox_jobs")
    driver = crowded.backend("host").driver
    assert isinstance(driver, HostsTables)
    empty: list[str] = []
    statement = Statements(driver)("register", *[empty] * 7, "redis", "redis")
    with driver.transaction() as transaction:
        rows = transaction.run(Statement(f"EXPLAIN {statement.sql}", statement.parameters))
    plan = "\n".join(line for (line,) in rows)
    assert "hashed SubPlan" in plan
    assert "Nested Loop" not in plan


def test_looking_at_an_outbox_is_bounded(crowded: Stage) -> None:
    """Of 90,000 rows, three times 10,001 are counted."""
    with psycopg.connect(crowded.host_url, autocommit=True) as connection:
        connection.execute("VACUUM jobcontract.outbox")  # else each row is looked up
    pages, _ = buffers(crowded, "status", *["redis"] * 6)
    assert pages < 3000, pages
    status = crowded.status()
    assert (status.due, status.held_up, status.scheduled, status.parked) == (100, 10_001, 10_001, 10_001)


def test_deleting_goes_by_the_primary_key(crowded: Stage) -> None:
    numbers = [seq for (seq,) in crowded.sql("SELECT seq FROM {outbox} ORDER BY seq DESC LIMIT 100")]
    pages, _ = buffers(crowded, "delete", numbers)
    assert pages < 1500, pages

"""Rows that somebody edited by hand: handed over raw, each alone, and no other job suffers."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from jobcontract.backend import Backend
from jobcontract.contract import Failure, Rescued, State
from jobcontract.errors import StoreError
from jobcontract.records import Undecodable, decode
from jobcontract.side_doors import Page
from tests.sqlite.stores import MINUTE, QUEUES, Advance, Edit, FileStore, record

# What a hand may write into a row of the live table that no `Job` could hold.
EDITS = {
    "text that is not UTF-8": "kind = CAST(x'ff80' AS TEXT)",
    "a NUL in a key": "idempotency_key = 'a' || char(0) || 'b'",
    "an input that is not JSON": "input_ref = '{\"document\": '",
    "an input that is not an object": "input_ref = '[1]'",
    "an integer of 5,000 digits": "input_ref = '{\"n\": ' || replace(hex(zeroblob(2500)), '0', '9') || '}'",
    "headers that are not text": "headers = '{\"a\": 1}'",
    "an id that is not a UUID": "id = 'abc'",
    "an instant before the year 1": "run_at = -9000000000000000000",
    "an instant before 1970": "run_at = -1",
    "a kind that is no name": "kind = 'no name'",
    "attempts without end": "max_attempts = 9000000000000000000",
}


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS.keys())
def test_an_edited_row_is_claimed_raw_beside_the_others_and_can_be_buried(
    store: FileStore, edit: Edit, edited: str
) -> None:
    store.add(3)
    edit(f"UPDATE jobcontract_jobs SET {edited} WHERE rowid = 2")
    claimed = store.claim(10)
    assert len(claimed) == 3
    undecodable = [each for each in claimed if not is_decodable(each.record)]
    assert len(undecodable) == 1
    verdicts = store.driver.fail(
        [Failure(each.lease, "can't be read", timedelta(0), permanent=True) for each in undecodable]
    )
    assert [verdict.state for verdict in verdicts] == [State.DEAD]
    others = [each.lease for each in claimed if each not in undecodable]
    assert [verdict.state for verdict in store.driver.complete(others)] == [State.DONE, State.DONE]
    assert len(store.driver.jobs(Page())) == 3


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS.keys())
def test_a_backend_buries_an_edited_row_by_itself(store: FileStore, edit: Edit, edited: str) -> None:
    backend = Backend("store", lambda: store.driver)
    store.add(3)
    edit(f"UPDATE jobcontract_jobs SET {edited} WHERE rowid = 2")
    assert len(backend.claim(limit=10)) == 2
    assert edit("SELECT count(*), max(state) FROM jobcontract_dead") == [(1, "dead")]


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS.keys())
def test_an_edited_row_whose_lease_ran_out_is_rescued(
    store: FileStore, edit: Edit, advance: Advance, edited: str
) -> None:
    store.add(3, max_attempts=1)
    edit(f"UPDATE jobcontract_jobs SET {edited} WHERE rowid = 2")
    store.claim(10)
    advance(MINUTE)
    rescued = store.driver.rescue(10)
    assert rescued.ready + rescued.dead == 3
    assert store.driver.rescue(10) == Rescued(0, 0)


@pytest.mark.parametrize("column", ["priority", "run_at", "attempt", "max_attempts", "created_at"])
def test_the_tables_refuse_what_no_claim_could_order(store: FileStore, edit: Edit, column: str) -> None:
    store.add()
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value in INTEGER column"):
        edit(f"UPDATE jobcontract_jobs SET {column} = 'soon'")


@pytest.mark.parametrize(
    "edited",
    [
        "id = 'seven'",
        "id = CAST(x'ff80' AS TEXT)",
        "state = 'running'",
        "state = 'odd'",
        "priority = 10",
        "attempt = 9223372036854775807",
        "attempt = -1",
        "refunded = 1",
        "token = 'x', lease_until = 1",
    ],
)
def test_the_tables_refuse_what_no_statement_would_find(store: FileStore, edit: Edit, edited: str) -> None:
    store.add()
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
        edit(f"UPDATE jobcontract_jobs SET {edited}")


def test_a_job_that_is_in_two_tables_does_not_stop_the_others(store: FileStore, edit: Edit) -> None:
    job_ids = store.add(3)
    claimed = store.claim(3)
    for table in ("done", "dead"):
        state = "" if table == "done" else "state, "
        value = "" if table == "done" else "'dead', "
        edit(
            f"""
            INSERT INTO jobcontract_{table} (
                id, queue, kind, priority, run_at, {state}attempt, refunded, max_attempts, created_at,
                finished_at, input_ref
            )
            SELECT id, queue, kind, priority, run_at, {value}attempt, 0, 5, 1, 1, '{{}}'
            FROM jobcontract_jobs
            WHERE id = ?
            """,
            job_ids[1],
        )
    assert all(verdict.applied for verdict in store.driver.complete([each.lease for each in claimed]))
    assert store.driver.requeue([job_ids[1]]) == [State.READY]


def test_a_ledger_that_names_no_job_is_told(store: FileStore, edit: Edit) -> None:
    store.add(idempotency_key="key")
    edit("UPDATE jobcontract_keys SET job_id = 'seven'")
    with pytest.raises(StoreError, match="jobcontract_keys names a job whose id is not a UUID: 'seven'"):
        store.driver.register([record(idempotency_key="key")])


def test_input_and_headers_come_back_to_the_byte(store: FileStore) -> None:
    written = record(
        input_ref={
            "z": 1,
            "a": [1.10, 10**40, -0.0, None, True],
            "\u20ac\U0001f600": '\\u0041"\x7f\u2028\ufffe',
        },
        headers={"traceparent": "00-\u00e4"},
        run_at=datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    )
    store.driver.register([written])
    ((_, read),) = store.driver.claim(QUEUES, 1, MINUTE)
    assert read == written._replace(fingerprint=None)


def is_decodable(found: object) -> bool:
    """Whether the record is a job."""
    try:
        decode(found)  # type: ignore[arg-type]
    except Undecodable:
        return False
    return True

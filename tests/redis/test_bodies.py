"""A job as bytes in Redis, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobcontract_redis import RedisDriver
from jobcontract_redis.bodies import claimed_record, milliseconds, registration_words, stored_job

from jobcontract.contract import EARLIEST_RUN_AT, LATEST_RUN_AT, JobRecord, State
from jobcontract.records import Undecodable, decode
from tests.redis.stores import HOUR, QUEUE, job, records, stored

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
_records = st.builds(
    JobRecord,
    id=st.uuids().map(str),
    kind=st.from_regex(r"[A-Za-z0-9_.:\-]{1,128}", fullmatch=True),
    queue=st.just(QUEUE),
    priority=st.integers(0, 9),
    run_at=st.datetimes(
        EARLIEST_RUN_AT.replace(tzinfo=None),
        LATEST_RUN_AT.replace(tzinfo=None) - timedelta(microseconds=1),
        timezones=st.just(UTC),
    ),
    max_attempts=st.integers(1, 1000),
    idempotency_key=st.none() | _texts.filter(bool),
    fingerprint=st.none(),
    input_ref=_texts,
    headers=st.none() | _texts.filter(bool),
)


def as_stored(record: JobRecord) -> bytes:
    """What register.lua makes of the arguments for `record`."""
    _, _, due, exact, rest, _, _ = registration_words(record)
    assert isinstance(rest, bytes)
    return f"{milliseconds(NOW - EARLIEST_RUN_AT)} {exact or f'{due}000'} ".encode() + rest


@given(_records)
def test_every_byte_of_a_record_comes_back(record: JobRecord) -> None:
    """Texts with newlines, spaces and digits in them too: nothing is escaped, and nothing is searched for."""
    found = claimed_record(QUEUE, record.id.encode() + b" 3 1 - " + as_stored(record), "token", NOW)
    assert found.record == record
    assert found.lease == (record.id, QUEUE, "token", 3, NOW, 1)
    looked_up = stored_job(
        QUEUE, [record.id.encode(), b"dead", b"3", b"1", b"", b"0", b"", b"it failed", as_stored(record)]
    )
    assert looked_up.record == record
    assert (looked_up.state, looked_up.created_at) == (State.DEAD, NOW)
    assert looked_up.finished_at == EARLIEST_RUN_AT
    assert (looked_up.attempt, looked_up.refunded) == (3, 1)


@given(_records)
def test_a_job_is_never_due_before_its_run_at(record: JobRecord) -> None:
    due = registration_words(record)[2]
    assert record.run_at is not None
    lead = EARLIEST_RUN_AT + timedelta(milliseconds=int(str(due))) - record.run_at
    assert timedelta() <= lead < timedelta(milliseconds=1)


@given(st.binary(max_size=200), st.sampled_from([b"-", b"0", b"x", b"9" * 30]))
def test_any_bytes_at_all_come_out_as_a_record(body: bytes, due: bytes) -> None:
    found = claimed_record(QUEUE, b"0193 1 0 " + due + b" " + body, "token", NOW)
    assert found.lease.token == "token"
    with pytest.raises(Undecodable):
        decode(found.record)  # above the door, where it becomes dead with the reason


def test_bytes_that_are_no_text_are_undecodable_and_not_an_error(store: RedisDriver) -> None:
    made = job(input_ref={"a": "b"})
    body = as_stored(made.to_record()._replace(run_at=NOW)).replace(b'"b"', b'"\xff"')
    found = claimed_record(QUEUE, str(made.id).encode() + b" 1 0 - " + body, "token", NOW)
    with pytest.raises(Undecodable):
        decode(found.record)


def test_run_at_keeps_its_microseconds_until_it_changes(store: RedisDriver) -> None:
    run_at = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    (made,) = records(1, run_at=run_at)
    store.register([made])
    assert stored(store, made.id).record.run_at == run_at
    (claimed,) = store.claim([QUEUE], 1, HOUR)
    assert claimed.record.run_at == run_at
    (verdict,) = store.release([claimed.lease], HOUR)
    assert stored(store, made.id).record.run_at == verdict.at

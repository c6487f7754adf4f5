"""A job as a message, there and back, and what becomes of messages that others wrote."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobcontract_rabbitmq.message import History, first_message, read
from jobcontract_rabbitmq.topology import Route

from jobcontract import Job
from jobcontract.records import Undecodable, decode

NOW = datetime(2026, 11, 30, 12, 0, 0, 123000, tzinfo=UTC)
ROUTE = Route("exchange", "key")
instants = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(
    lambda each: each.replace(tzinfo=UTC, microsecond=each.microsecond // 1000 * 1000)
)
histories = st.builds(
    History,
    attempts=st.integers(0, 10_000),
    refunded=st.integers(0, 10_000),
    run_at=st.none() | instants,
    error=st.none() | st.text(max_size=100),
    died_at=st.none() | instants,
    created_at=st.none() | instants,
    copy=st.text(max_size=100),
)


@given(histories)
def test_a_history_comes_back_from_its_headers(history: History) -> None:
    assert History.of(history.headers()) == history


@given(st.integers(0, 100), st.integers(0, 100))
def test_what_the_broker_counts_is_added_to_what_we_count(ours: int, brokers: int) -> None:
    headers = {**History(attempts=ours).headers(), "x-delivery-count": brokers}
    assert History.of(headers).attempts == ours + brokers


NO_NUMBERS = [-1, True, None, 1.5, [1], {"a": 1}, b"1"]
STRANGE: dict[str, list[object]] = {
    "attempts": ["2", 2**40, *NO_NUMBERS],
    "refunded": ["2", 2**40, *NO_NUMBERS],
    "x-delivery-count": ["2", 2**40, *NO_NUMBERS],
    "run_at": ["2", 2**60, *NO_NUMBERS],
    "died_at": ["2", 2**60, *NO_NUMBERS],
    "error": [7, *NO_NUMBERS],
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_header_that_is_none_of_ours_says_nothing(name: str) -> None:
    assert {History.of({name: value}) for value in STRANGE[name]} == {History()}


names = st.sampled_from(["input_ref", "headers", "a", ',"headers":null', '"headers":{}', "\\", '"'])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(names, values, max_size=4), st.dictionaries(names, names, max_size=3))
def test_a_job_comes_back_whatever_its_input_is_called(
    input_ref: dict[str, object], headers: dict[str, str]
) -> None:
    made = Job(kind="work", input_ref=input_ref, headers=headers)
    message = first_message(made.to_record(), ROUTE, NOW)
    record = read(message.body, message.properties.headers, message.properties.message_id, "default").record
    assert record == made.to_record()._replace(run_at=NOW)


def test_a_message_of_another_program_is_read_if_it_holds_an_envelope() -> None:
    identifier = uuid4()
    body = f"""{{
        "headers": null, "input_ref": {{"a": 1}}, "id": "{identifier}", "kind": "work", "queue": "mail",
        "v": 1, "priority": 0, "run_at": null, "max_attempts": 3, "idempotency_key": null, "fingerprint": null
    }}""".encode()
    job = decode(read(body, {}, None, "mail").record)
    assert (job.id, job.kind, job.input_ref, job.max_attempts) == (identifier, "work", {"a": 1}, 3)


FOREIGN: dict[str, bytes] = {
    "nothing": b"",
    "text": b"hello",
    "no UTF-8": b"\xff\xfe",
    "no object": b"[1]",
    "another envelope": b'{"task":"work","args":[]}',
    "an envelope of the future": b'{"v":2,"id":"x","input_ref":{},"headers":null}',
    "marks without meaning": b',"input_ref":,"headers":',
}


@pytest.mark.parametrize("body", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("headers", [{}, {"attempts": "many", "error": 7}], ids=["", "strange headers"])
def test_a_message_that_is_no_job_becomes_a_record_that_is_none_either(
    body: bytes, headers: Mapping[str, object]
) -> None:
    reading = read(body, headers, None, "default")
    assert (reading.record.queue, reading.history, reading.max_attempts) == ("default", History(), 1)
    assert reading.problem
    assert read(body, headers, None, "default").record.id == reading.record.id
    with pytest.raises(Undecodable):
        decode(reading.record)

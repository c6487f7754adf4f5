"""What a store gives back is untrusted: it decodes to the very same job, or it is `Undecodable` by itself."""

from __future__ import annotations

import contextlib
import copy
import json
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobcontract import records
from jobcontract.contract import Job, JobRecord
from jobcontract.records import Undecodable, decode, from_envelope, to_envelope
from tests.contract.strategies import jobs

RECORD = Job(kind="embed_document", input_ref={"document_id": 7}, headers={"tenant": "acme"}).to_record()


@given(jobs())
def test_a_record_decodes_to_the_job_it_was_made_from(job: Job) -> None:
    again = decode(job.to_record())
    assert again == job
    assert again.to_record() == job.to_record()


@given(jobs())
def test_a_job_crosses_a_wire_unchanged(job: Job) -> None:
    envelope = to_envelope(job.to_record())
    assert json.loads(envelope)["v"] == 1
    assert "\n" not in envelope
    assert from_envelope(envelope) == job.to_record()
    assert from_envelope(envelope.encode()) == job.to_record()


@given(jobs(), st.sampled_from(["kind", "queue", "idempotency_key", "input_ref"]), st.data())
def test_a_glance_lets_pass_only_what_the_closer_look_finds_the_same(
    job: Job, field: str, data: st.DataObject
) -> None:
    run_at = datetime(2026, 11, 30, tzinfo=UTC)
    record = job.to_record()._replace(run_at=run_at, headers=None)
    text = getattr(record, field) or ""
    position = data.draw(st.integers(0, len(text)))
    spoilt = text[:position] + data.draw(st.text(max_size=3)) + text[position:]
    change: dict[str, Any] = {field: spoilt}
    for tried in (record, record._replace(**change)):
        glanced = records.decode_plain(tried)
        if glanced is not None:
            looked = records.decode_carefully(tried)
            assert glanced == looked
            assert glanced.model_dump_json() == looked.model_dump_json()
            assert glanced.to_record() == looked.to_record()
            assert copy.deepcopy(glanced) == looked
            assert glanced.model_copy(update={"priority": 3}).priority == 3


@given(jobs(), st.booleans(), st.data())
def test_an_envelope_read_at_a_glance_is_what_the_closer_look_finds(
    job: Job, due: bool, data: st.DataObject
) -> None:
    run_at = datetime(2026, 11, 30, tzinfo=UTC) if due else None
    envelope = to_envelope(job.to_record()._replace(headers=None, run_at=run_at))
    position = data.draw(st.integers(0, len(envelope)))
    length = data.draw(st.integers(0, 3))
    spoilt = envelope[:position] + data.draw(st.text(max_size=3)) + envelope[position + length :]
    for tried in (envelope, spoilt):
        glanced = records.read_plain_envelope(tried)
        assert glanced is None or glanced == records.read_any_envelope(tried)


def test_an_envelope_of_ours_is_read_at_a_glance() -> None:
    job = Job(kind="noop", input_ref={"document": "x"}, idempotency_key="7:v3")
    assert records.read_plain_envelope(to_envelope(job.to_record())) == job.to_record()


@given(jobs())
def test_an_envelope_is_the_json_of_its_parts(job: Job) -> None:
    record = job.to_record()
    found = json.loads(to_envelope(record))
    for name in ("id", "kind", "queue", "priority", "max_attempts", "idempotency_key"):
        assert found[name] == getattr(record, name)
    assert found["input_ref"] == json.loads(record.input_ref)


def test_an_envelope_holds_what_others_have_stored_too() -> None:
    """Of the wrong type, it is written as it is, and undecodable where it is read."""
    envelope = to_envelope(RECORD._replace(kind=cast("str", 7), priority=cast("int", True)))
    assert (json.loads(envelope)["kind"], json.loads(envelope)["priority"]) == (7, True)


def test_a_plain_job_is_decoded_at_a_glance() -> None:
    """Or the fast way is never taken, and nobody notices."""
    run_at = datetime(2026, 11, 30, tzinfo=UTC)
    plain = Job(kind="embed_document", input_ref={"document_id": 7}, idempotency_key="7:v3")
    assert records.decode_plain(plain.to_record()._replace(run_at=run_at)) is not None


def test_the_stored_text_of_an_input_is_kept() -> None:
    """A job that moves to another store is written there as it was here, digit for digit."""
    text = '{ "a": 1.50, "b": 1E2 }'
    job = decode(RECORD._replace(input_ref=text))
    assert job.input_ref == {"a": 1.5, "b": 100.0}
    assert job.to_record().input_ref == text


BAD_RECORDS: list[tuple[str, object, str]] = [
    ("id", "nonsense", "UUID"),
    ("id", None, "can't be read"),
    ("id", 7, "can't be read"),
    ("kind", "", "kind"),
    ("kind", None, "kind"),
    ("kind", "k" * 100_000, "kind"),
    ("queue", "Not A Queue", "queue"),
    ("priority", 10, "priority"),
    ("priority", None, "priority"),
    ("priority", "5", "priority"),
    ("run_at", datetime(2026, 11, 30), "run_at"),
    ("run_at", datetime.max.replace(tzinfo=UTC), "run_at"),
    ("run_at", 1_700_000_000, "run_at"),
    ("max_attempts", 0, "max_attempts"),
    ("idempotency_key", "", "idempotency_key"),
    ("idempotency_key", "a\x00", "idempotency_key"),
    ("input_ref", "", "can't be read"),
    ("input_ref", "{", "can't be read"),
    ("input_ref", None, "can't be read"),
    ("input_ref", b"{}", "can't be read"),
    ("input_ref", {"a": 1}, "can't be read"),
    ("input_ref", "[]", "input_ref"),
    ("input_ref", "null", "input_ref"),
    ("input_ref", '{"a":NaN}', "nan"),
    ("input_ref", '{"a":1e999}', "inf"),
    ("input_ref", '{"a":"\\u0000"}', "NUL"),
    ("input_ref", '{"a":"\\ud800"}', "surrogate"),
    ("input_ref", '{"a":' + "9" * 5000 + "}", "4300 digits"),
    ("input_ref", "[" * 200_000, "RecursionError"),
    ("input_ref", '{"a":' + "[" * 80 + "]" * 80 + "}", "deeper than 64"),
    ("headers", "[]", "headers"),
    ("headers", '{"a":1}', "headers"),
    ("headers", "nonsense", "can't be read"),
    ("headers", b"{}", "can't be read"),
]


@pytest.mark.parametrize(
    ("field", "value", "reason"), BAD_RECORDS, ids=[f"{field}-{reason}" for field, _, reason in BAD_RECORDS]
)
def test_a_spoilt_record_is_undecodable_and_says_why(field: str, value: object, reason: str) -> None:
    values: dict[str, Any] = {**RECORD._asdict(), field: value}
    with pytest.raises(Undecodable) as caught:
        decode(JobRecord(**values))
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 400


BAD_ENVELOPES: list[tuple[str | bytes, str]] = [
    ("", "not JSON"),
    ("nonsense", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    ("[" * 200_000, "not JSON"),
    ("[]", "not a JSON object"),
    ("null", "not a JSON object"),
    ("{}", "version None; this jobcontract reads version 1"),
    ('{"v":2}', "version 2; this jobcontract reads version 1"),
    ('{"v":"1"}', "version 1; this"),
    ('{"v":true}', "version True"),
    ('{"v":1.0}', "version 1.0"),
    (json.dumps({"v": "x" * 100_000}), "version xxx"),
    ('{"v":1}', "KeyError: 'id'"),
    (to_envelope(RECORD).replace('"kind"', '"sort"'), "KeyError: 'kind'"),
    (to_envelope(RECORD).replace(RECORD.id, "nonsense"), "ValueError"),
    (to_envelope(RECORD).replace('"run_at":null', '"run_at":7'), "TypeError"),
    (to_envelope(RECORD).replace('"run_at":null', '"run_at":"soon"'), "ValueError"),
    (to_envelope(RECORD).replace('"fingerprint":null', '"fingerprint":"zz"'), "ValueError"),
]


@pytest.mark.parametrize(
    ("envelope", "reason"),
    BAD_ENVELOPES,
    ids=[f"{n}-{reason}" for n, (_, reason) in enumerate(BAD_ENVELOPES)],
)
def test_what_is_no_envelope_is_undecodable_and_says_why(envelope: str | bytes, reason: str) -> None:
    with pytest.raises(Undecodable) as caught:
        from_envelope(envelope)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 400


@given(
    st.fixed_dictionaries(
        {"v": st.just(1)},
        optional={
            name: st.none()
            | st.booleans()
            | st.integers()
            | st.text()
            | st.lists(st.integers())
            | st.dictionaries(st.text(), st.none())
            for name in (*JobRecord._fields, "unknown")
        },
    )
)
def test_any_object_is_a_job_or_undecodable(envelope: dict[str, Any]) -> None:
    """Whoever wrote the message: nothing but `Undecodable` comes out of reading it."""
    with contextlib.suppress(Undecodable):
        decode(from_envelope(json.dumps(envelope)))

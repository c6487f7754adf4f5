"""`Job`: what may be registered, what is refused before any I/O, and that the refusal names the field."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from jobcontract.contract import (
    EARLIEST_RUN_AT,
    LATEST_RUN_AT,
    MAX_HEADERS_BYTES,
    MAX_KEY_BYTES,
    Job,
)
from jobcontract.errors import InvalidJob, JobContractError
from tests.contract.strategies import headers, input_refs, jobs


class Unprintable:
    """A value whose repr raises, as a stranger's class may."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def nested(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


HUGE = 10**5000  # beyond Python's own limit for printing an integer

BAD_FIELDS: list[tuple[str, object, str]] = [
    ("kind", "", "pattern"),
    ("kind", "k" * 129, "pattern"),
    ("kind", "embed document", "pattern"),
    ("kind", "embed\n", "pattern"),
    ("kind", "émbed", "pattern"),
    ("kind", "embed/document", "pattern"),
    ("kind", "\x00", "pattern"),
    ("kind", None, "string"),
    ("kind", 7, "string"),
    ("kind", b"embed", "string"),
    ("kind", HUGE, "string"),
    ("kind", Unprintable(), "string"),
    ("queue", "", "pattern"),
    ("queue", "q" * 65, "pattern"),
    ("queue", "Default", "pattern"),
    ("queue", "a queue", "pattern"),
    ("queue", "default\n", "pattern"),
    ("queue", "a{b}", "pattern"),
    ("queue", "amq.", "amq."),
    ("queue", "amq.direct", "amq."),
    ("queue", None, "string"),
    ("priority", -1, "greater than or equal to 0"),
    ("priority", 10, "less than or equal to 9"),
    ("priority", HUGE, "less than or equal to 9"),
    ("priority", True, "integer"),
    ("priority", False, "integer"),
    ("priority", 1.0, "integer"),
    ("priority", "1", "integer"),
    ("priority", None, "integer"),
    ("max_attempts", 0, "greater than or equal to 1"),
    ("max_attempts", -1, "greater than or equal to 1"),
    ("max_attempts", 1001, "less than or equal to 1000"),
    ("max_attempts", True, "integer"),
    ("max_attempts", "5", "integer"),
    ("run_at", datetime(2026, 11, 30), "timezone"),
    ("run_at", "2026-11-30T02:00:00", "timezone"),
    ("run_at", "2026-11-30", "timezone"),
    ("run_at", "tomorrow", "ISO 8601"),
    ("run_at", "1700000000", "ISO 8601"),
    ("run_at", 1_700_000_000, "ISO 8601"),
    ("run_at", 1.5, "ISO 8601"),
    ("run_at", True, "ISO 8601"),
    ("run_at", datetime.max.replace(tzinfo=UTC), "1970-01-01"),
    ("run_at", "9999-12-31T23:59:59Z", "1970-01-01"),
    ("run_at", datetime(1, 1, 1, tzinfo=UTC), "not 0001-01-01T00:00:00+00:00"),
    ("run_at", LATEST_RUN_AT, "1970-01-01"),
    ("run_at", EARLIEST_RUN_AT - timedelta(microseconds=1), "1970-01-01"),
    ("idempotency_key", "", "1 to 512 bytes"),
    ("idempotency_key", "k" * 513, "1 to 512 bytes"),
    ("idempotency_key", "é" * 257, "1 to 512 bytes"),
    ("idempotency_key", " key", "white space"),
    ("idempotency_key", "key\t", "white space"),
    ("idempotency_key", "key\u3000", "white space"),
    ("idempotency_key", "k\x00y", "NUL"),
    ("idempotency_key", "k\ud800y", "surrogate"),
    ("idempotency_key", 7, "string"),
    ("headers", None, "dictionary"),
    ("headers", {"tenant": 7}, "string"),
    ("headers", {"tenant": None}, "string"),
    ("headers", {7: "tenant"}, "string"),
    ("headers", {"tenant": "a\x00b"}, "NUL"),
    ("headers", {"ten\x00ant": "a"}, "NUL"),
    ("headers", {"tenant": "\udfff"}, "surrogate"),
    ("headers", {"tenant": "x" * MAX_HEADERS_BYTES}, "at most 8192"),
    ("headers", {"tenant": "é" * (MAX_HEADERS_BYTES // 2)}, "at most 8192"),
    ("input_ref", None, "dictionary"),
    ("input_ref", [1, 2], "dictionary"),
    ("input_ref", "text", "dictionary"),
    ("input_ref", {1: "a"}, "string"),
    ("input_ref", {"a": (1, 2)}, "JSON"),
    ("input_ref", {"a": {1, 2}}, "JSON"),
    ("input_ref", {"a": b"bytes"}, "JSON"),
    ("input_ref", {"a": object()}, "JSON"),
    ("input_ref", {"a": datetime(2026, 11, 30, tzinfo=UTC)}, "JSON"),
    ("input_ref", {"a": float("nan")}, "nan, which is not JSON"),
    ("input_ref", {"a": [float("inf")]}, "a[0] is inf, which is not JSON"),
    ("input_ref", {"a": float("-inf")}, "-inf, which is not JSON"),
    ("input_ref", {"a": {"b": ["x", "y\x00"]}}, "a.b[1] holds NUL"),
    ("input_ref", {"a\x00": 1}, "a key of the value holds NUL"),
    ("input_ref", {"a": "\ud800"}, "a holds a lone surrogate"),
    ("input_ref", {"a": {"\udc00": 1}}, "a key of a holds a lone surrogate"),
    ("input_ref", {"a": 10**4300}, "more than 4300 digits"),
    ("input_ref", {"a": -HUGE}, "more than 4300 digits"),
    ("input_ref", {"a": nested(65)}, "deeper than 64"),
    ("input_ref", {"a": nested(100_000)}, "depth"),
    ("id", "not-a-uuid", "UUID"),
    ("id", 7, "UUID"),
    ("id", None, "UUID"),
]


@pytest.mark.parametrize(
    ("field", "value", "reason"), BAD_FIELDS, ids=[f"{field}-{reason}" for field, _, reason in BAD_FIELDS]
)
def test_a_bad_value_is_refused_with_the_name_of_its_field(field: str, value: object, reason: str) -> None:
    values: dict[str, Any] = {"kind": "embed_document", field: value}
    with pytest.raises(InvalidJob) as caught:
        Job(**values)
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert str(caught.value) == f"{field}: {caught.value.reason}"
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_kind_is_required() -> None:
    with pytest.raises(InvalidJob, match="kind: is required"):
        Job()


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("kin", "did you mean 'kind'?"),
        ("idempotencykey", "did you mean 'idempotency_key'?"),
        ("runat", "did you mean 'run_at'?"),
        ("xyzzy", "a job has kind, input_ref"),
        ("x" * 100_000, "a job has kind, input_ref"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_known_one(field: str, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        Job(**{"kind": "k", field: 1})
    assert hint in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_refused_input_is_never_shown() -> None:
    """What is in an input may be personal; what is in a header may be a credential."""
    with pytest.raises(InvalidJob) as of_input:
        Job(kind="k", input_ref={"document": ["canary", b"canary"]})
    with pytest.raises(InvalidJob) as of_headers:
        Job(kind="k", headers={"authorization": "canary\x00"})
    assert "canary" not in str(of_input.value) + str(of_headers.value)


GOOD_FIELDS: list[tuple[str, object]] = [
    ("kind", "k"),
    ("kind", "Az09_.:-" * 16),
    ("queue", "q" * 64),
    ("queue", "a-b_c.d9"),
    ("queue", "amq"),
    ("queue", "amqp.x"),
    ("priority", 0),
    ("priority", 9),
    ("max_attempts", 1),
    ("max_attempts", 1000),
    ("run_at", EARLIEST_RUN_AT),
    ("run_at", LATEST_RUN_AT - timedelta(microseconds=1)),
    ("run_at", None),
    ("idempotency_key", "k"),
    ("idempotency_key", "é" * (MAX_KEY_BYTES // 2)),
    ("idempotency_key", "7:v3 of two words"),
    ("idempotency_key", None),
    ("headers", {}),
    ("headers", {"": ""}),
    ("input_ref", {}),
    ("input_ref", {"": None}),
    ("input_ref", {"a": 10**4299}),
    ("input_ref", {"a": -(10**4299)}),
    ("input_ref", {"a": nested(63)}),
    ("input_ref", {"a": "\\u0000 is six characters"}),
    ("input_ref", {"a": [{"b": [True, False, None, -0.0, 1e22, 2**64]}]}),
    ("id", UUID("01900000-0000-7000-8000-000000000000")),
]


@pytest.mark.parametrize(
    ("field", "value"), GOOD_FIELDS, ids=[f"{field}-{type(value).__name__}" for field, value in GOOD_FIELDS]
)
def test_a_good_value_is_kept_as_it_is(field: str, value: object) -> None:
    values: dict[str, Any] = {"kind": "embed_document", field: value}
    job = Job(**values)
    assert getattr(job, field) == value
    assert json.loads(job.to_record().input_ref) == job.input_ref


def test_run_at_is_kept_in_utc() -> None:
    run_at = datetime(2026, 11, 30, 2, 0, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    job = Job(kind="k", run_at=run_at)
    assert job.run_at == run_at
    assert job.to_record().run_at == datetime(2026, 11, 29, 20, 30, tzinfo=UTC)
    assert job.run_at is not None
    assert job.run_at.tzinfo is UTC


def test_run_at_is_taken_as_iso_8601_text() -> None:
    values: dict[str, Any] = {"run_at": "2026-11-30T03:00:00+01:00"}
    assert Job(kind="k", **values).run_at == datetime(2026, 11, 30, 2, tzinfo=UTC)


def test_a_job_is_frozen() -> None:
    job = Job(kind="k")
    with pytest.raises(ValidationError, match="frozen"):
        job.kind = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_job_is_made_once_and_named_once() -> None:
    first, second = Job(kind="k"), Job(kind="k")
    assert first.id != second.id
    assert first.id.version == 7
    assert first.to_record().id == str(first.id) == first.to_record().id


def test_an_invalid_job_is_one_of_ours_and_a_value_error() -> None:
    with pytest.raises(JobContractError):
        Job(kind="")
    with pytest.raises(ValueError):
        Job(kind="")


def test_an_invalid_job_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(InvalidJob("kind", "is required")))  # noqa: S301 - our own bytes
    assert (type(error), error.field, error.reason, str(error)) == (
        InvalidJob,
        "kind",
        "is required",
        "kind: is required",
    )


def test_pydantics_own_doors_check_the_same() -> None:
    class Order(BaseModel):
        job: Job

    with pytest.raises(ValidationError, match="priority: input should be less than or equal to 9"):
        Job.model_validate({"kind": "k", "priority": 10})
    with pytest.raises(ValidationError, match="priority: input should be less than or equal to 9"):
        Order.model_validate({"job": {"kind": "k", "priority": 10}})
    record = Order.model_validate(
        {"job": {"kind": "k", "input_ref": {"a": 1}}}, context="foreign"
    ).job.to_record()
    assert record.input_ref == '{"a":1}'


def test_a_copy_with_changes_is_checked_and_carries_the_changed_input() -> None:
    job = Job(kind="k", input_ref={"a": 1}, idempotency_key="key")
    changed = job.model_copy(update={"input_ref": {"a": 2}})
    assert changed.to_record().input_ref == '{"a":2}'
    assert changed.to_record().fingerprint != job.to_record().fingerprint
    assert (changed.id, changed.idempotency_key) == (job.id, "key")
    with pytest.raises(InvalidJob, match="priority"):
        job.model_copy(update={"priority": 10})


@given(jobs())
def test_copies_and_texts_of_a_job_are_the_same_job(job: Job) -> None:
    record = job.to_record()
    for twin in (
        copy.copy(job),
        copy.deepcopy(job),
        job.model_copy(),
        job.model_copy(deep=True),
        pickle.loads(pickle.dumps(job)),  # noqa: S301 - our own bytes
        Job.model_validate_json(job.model_dump_json()),
    ):
        assert twin == job
        assert twin.to_record() == record


@given(input_refs(), headers())
def test_the_record_holds_the_input_exactly(input_ref: dict[str, Any], header: dict[str, str]) -> None:
    record = Job(kind="k", input_ref=input_ref, headers=header).to_record()
    assert json.dumps(json.loads(record.input_ref)) == json.dumps(
        input_ref
    )  # also 1 is not 1.0, 0.0 is not -0.0
    assert (json.loads(record.headers) if record.headers else {}) == header


def test_only_keyed_jobs_carry_a_fingerprint() -> None:
    assert Job(kind="k").to_record().fingerprint is None
    fingerprint = Job(kind="k", idempotency_key="a").to_record().fingerprint
    assert fingerprint is not None
    assert len(fingerprint) == 16


@given(st.text(), st.text())
def test_any_text_is_a_key_or_is_refused_as_one(key: str, kind: str) -> None:
    """No text gets through half: it makes a job that can be written as UTF-8, or an `InvalidJob`."""
    refused: str | None = None
    try:
        record = Job(kind=kind or "k", idempotency_key=key, queue="default").to_record()
        assert record.idempotency_key is not None
        assert 1 <= len(record.idempotency_key.encode()) <= MAX_KEY_BYTES
        assert "\x00" not in record.idempotency_key
    except InvalidJob as error:
        refused = error.field
    assert refused in (None, "kind", "idempotency_key")


def test_a_change_of_the_input_from_outside_does_not_reach_the_record() -> None:
    job = Job(kind="k", idempotency_key="key", input_ref={"n": 1})
    record = job.to_record()
    job.input_ref["n"] = float("nan")
    assert job.to_record() == record


@pytest.mark.parametrize("key", [b"x", 7, True])
def test_a_key_is_text_and_nothing_is_made_text(key: object) -> None:
    with pytest.raises(InvalidJob, match="idempotency_key: input should be a valid string"):
        Job(kind="k", idempotency_key=cast("str", key))


def test_a_field_whose_name_is_no_text_is_named_all_the_same() -> None:
    with pytest.raises(InvalidJob) as raised:
        Job(**{"kind": "k", "\ud800x": 1})
    assert raised.value.field == "\\ud800x"
    assert str(raised.value) == "\\ud800x: is not a field of a job: its name holds a lone surrogate"

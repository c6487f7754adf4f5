"""Typed inputs become jobs, and refuse what could not be one."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, SecretStr, ValidationError, computed_field

from jobcontract import ConfigError, InvalidJob, Job, JobInput
from jobcontract.kinds import as_record


class EmbedDocument(JobInput, kind="embed_document"):
    document_id: int
    model_version: str

    def idempotency_key(self) -> str:
        return f"{self.document_id}:{self.model_version}"


class Tenant(BaseModel):
    tenant: UUID


class Export(JobInput, Tenant, kind="export", queue="exports", priority=7, max_attempts=2):
    day: date
    format: str = Field(alias="as")


def make_class(namespace: dict[str, object], **keywords: object) -> None:
    """A class statement whose keywords a type checker would not let pass."""
    types.new_class("Wrong", (JobInput,), keywords, lambda body: body.update(namespace))


def test_an_input_becomes_a_job_of_its_kind_with_the_defaults_of_a_job() -> None:
    job = EmbedDocument(document_id=7, model_version="v3").to_job()

    assert (job.kind, job.input_ref) == ("embed_document", {"document_id": 7, "model_version": "v3"})
    assert job.idempotency_key == "7:v3"
    assert (job.queue, job.priority, job.max_attempts) == ("default", 0, 5)


def test_the_class_gives_queue_priority_and_attempts() -> None:
    tenant = UUID(int=5)
    job = Export.model_validate({"tenant": tenant, "day": date(2026, 11, 30), "as": "csv"}).to_job()

    assert (job.queue, job.priority, job.max_attempts) == ("exports", 7, 2)
    assert job.input_ref == {"tenant": str(tenant), "day": "2026-11-30", "as": "csv"}
    assert job.idempotency_key is None


def test_a_job_may_differ_from_its_class() -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC)
    job = EmbedDocument(document_id=7, model_version="v3").to_job(
        queue="slow", priority=0, run_at=later, max_attempts=1, headers={"tenant": "a"}
    )

    assert (job.queue, job.priority, job.run_at, job.max_attempts) == ("slow", 0, later, 1)
    assert job.headers == {"tenant": "a"}


def test_each_call_makes_another_job() -> None:
    document = EmbedDocument(document_id=7, model_version="v3")

    assert document.to_job().id != document.to_job().id


def test_what_to_job_makes_validates_as_the_input_again() -> None:
    export = Export.model_validate({"tenant": UUID(int=5), "day": date(2026, 11, 30), "as": "csv"})

    assert Export.model_validate_json(export.to_job().input_json) == export


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="model"):
        EmbedDocument.model_validate({"document_id": 7, "model_version": "v3", "model": "x"})


def test_an_input_does_not_change() -> None:
    document = EmbedDocument(document_id=7, model_version="v3")

    with pytest.raises(ValidationError, match="frozen"):
        document.document_id = 8  # pyright: ignore[reportAttributeAccessIssue]


def test_a_value_that_no_store_can_hold_is_refused_before_there_is_a_job() -> None:
    export = Export.model_validate({"tenant": UUID(int=5), "day": date(2026, 11, 30), "as": "\x00"})

    with pytest.raises(InvalidJob, match=r"^input_ref: as holds NUL"):
        export.to_job()


def test_a_kind_is_required() -> None:
    with pytest.raises(ConfigError, match=r'class Nameless\(JobInput, kind="..."\)'):

        class Nameless(JobInput):  # pyright: ignore[reportUnusedClass]
            document_id: int


def test_a_subclass_does_not_inherit_its_kind() -> None:
    with pytest.raises(ConfigError, match="a kind is required"):

        class Special(EmbedDocument):  # pyright: ignore[reportUnusedClass]
            pass


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"kind": ""}, "kind"),
        ({"kind": "a b"}, "kind"),
        ({"kind": "k" * 129}, "kind"),
        ({"kind": "k", "queue": "Upper"}, "queue"),
        ({"kind": "k", "queue": "amq.direct"}, "queue"),
        ({"kind": "k", "priority": 10}, "priority"),
        ({"kind": "k", "priority": True}, "priority"),
        ({"kind": "k", "max_attempts": 0}, "max_attempts"),
    ],
)
def test_a_wrong_class_keyword_is_named_when_the_class_is_made(
    keywords: dict[str, object], field: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^Wrong: {field}"):
        make_class({"__module__": __name__}, **keywords)


@pytest.mark.filterwarnings("ignore:Field name")
@pytest.mark.parametrize("name", ["idempotency_key", "to_job"])
def test_a_field_can_not_take_the_name_of_a_member(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} can't be a field"):
        make_class({"__module__": __name__, "__annotations__": {name: str}}, kind="k")


def test_a_plain_job_needs_no_class() -> None:
    assert Job(kind="embed_document", input_ref={"document_id": 7}).kind == "embed_document"


class Area(JobInput, kind="area"):
    width: int
    days: Json[list[date]]

    @computed_field
    def square(self) -> int:
        return self.width**2


def test_what_pydantic_writes_beside_the_fields_does_not_make_the_input_unreadable() -> None:
    area = Area.model_validate({"width": 3, "days": '["2026-11-30"]'})

    assert area.to_job().input_ref == {"width": 3, "days": '["2026-11-30"]'}
    assert Area.model_validate_json(area.to_job().input_json) == area


class OneWay(JobInput, kind="one_way"):
    read_as: int = Field(default=0, validation_alias="given")


class LeftOut(JobInput, kind="left_out"):
    needed: int = Field(exclude=True)


class Anything(JobInput, kind="anything"):
    value: Any


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (OneWay.model_validate({"given": 1}), "read_as would not be read back from its JSON"),
        (LeftOut(needed=1), "needed would not be read back from its JSON: Field required"),
        (Anything(value=object()), "can't be written as JSON: Unable to serialize"),
        (Anything(value=b"\xff"), "can't be written as JSON: .*utf-8"),
        (Anything(value=float("nan")), "value is nan, which is not JSON"),
    ],
)
def test_an_input_that_no_worker_could_read_is_refused_when_it_becomes_a_job(
    given: JobInput, reason: str
) -> None:
    with pytest.raises(InvalidJob, match=f"^input_ref: {reason}"):
        given.to_job()


class Login(JobInput, kind="login"):
    password: SecretStr


def test_a_secret_is_refused_for_its_mask_would_be_stored() -> None:
    with pytest.raises(
        InvalidJob, match=r"^input_ref: password is a secret, .* a reference to it"
    ) as refusal:
        Login(password=SecretStr("canary")).to_job()
    assert "canary" not in str(refusal.value)


class Tag(BaseModel):
    model_config = ConfigDict(frozen=True)

    names: frozenset[str]


class Tagged(JobInput, kind="tagged"):
    tags: set[str]
    groups: set[frozenset[str]]
    nested: dict[str, list[Tag]]
    numbers: frozenset[int] = Field(default=frozenset(), alias="ids")
    ordered: tuple[str, ...] = ()


def test_sets_are_written_in_one_order_and_what_is_ordered_in_its_own() -> None:
    names = {"delta", "alpha", "charlie", "bravo", "echo"}
    tagged = Tagged(
        tags=names,
        groups={frozenset(names), frozenset({"b", "a"})},
        nested={"x": [Tag(names=frozenset(names))]},
        ids=frozenset({30, 4, 100}),
        ordered=("b", "a"),
    )
    in_order = sorted(names)
    assert tagged.to_job().input_ref == {
        "tags": in_order,
        "groups": [["a", "b"], in_order],
        "nested": {"x": [{"names": in_order}]},
        "ids": [100, 30, 4],
        "ordered": ["b", "a"],
    }
    assert Tagged.model_validate_json(tagged.to_job().input_json) == tagged


def test_a_set_is_the_same_text_in_every_process() -> None:
    script = (
        "from jobcontract import JobInput\n"
        "class Tagged(JobInput, kind='tagged'):\n"
        "    tags: set[str]\n"
        "print(Tagged(tags=set('abcdefgh')).to_job().input_json)\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert texts == {'{"tags":["a","b","c","d","e","f","g","h"]}\n'}


class Keyed(JobInput, kind="keyed", queue="exports", priority=3, max_attempts=7):
    name: str
    sizes: dict[str, float] | None = None
    key: str | None = None

    def idempotency_key(self) -> str | None:
        return self.key


class OwnWay(JobInput, kind="own_way"):
    def to_job(self, **given: Any) -> Job:
        return super().to_job(**given, priority=9)


@pytest.mark.parametrize(
    "made",
    [
        Keyed(name="Zoë"),
        Keyed(name="a", key="ключ"),
        Keyed(name="a", key="k", sizes={"b": 1e16, "a": -0.5}),
        Keyed(name="\x7f\n\u2028"),
        Export.model_validate({"tenant": UUID(int=5), "day": date(2026, 11, 30), "as": "csv"}),
        OwnWay(),
    ],
)
def test_what_is_stored_of_an_input_is_what_is_stored_of_its_job(made: JobInput) -> None:
    short, full = as_record(made), made.to_job().to_record()
    assert short == full._replace(id=short.id)
    assert UUID(short.id).version == 7


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (Keyed(name="a\x00"), "input_ref"),
        (Keyed(name="a", sizes={"a": float("nan")}), "input_ref"),
        *((Keyed(name="a", key=key), "idempotency_key") for key in ("", " a", "a\x00", "a" * 513, "\ud800")),
    ],
)
def test_what_no_store_can_hold_is_refused_in_the_words_of_a_job(made: JobInput, field: str) -> None:
    with pytest.raises(InvalidJob) as of_the_job:
        made.to_job()
    with pytest.raises(InvalidJob) as of_the_record:
        as_record(made)
    assert str(of_the_record.value) == str(of_the_job.value)
    assert str(of_the_record.value).startswith(field)

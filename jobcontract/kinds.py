"""Typed inputs: a kind of job as a pydantic model."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, JsonValue, SecretBytes, SecretStr, ValidationError
from pydantic_core import PydanticSerializationError

from jobcontract.contract import Job, JobRecord, check_key
from jobcontract.errors import ConfigError, InvalidJob
from jobcontract.identifiers import new_job_id_text
from jobcontract.jsontext import dump_flat_json, fingerprint


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """What every job of a typed input starts from: the keywords of its class statement."""

    kind: str
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 5


class JobInput(BaseModel):
    """Base of typed inputs::

        class EmbedDocument(JobInput, kind="embed_document", queue="embeddings"):
            document_id: int
            model_version: str

            def idempotency_key(self) -> str:
                return f"{self.document_id}:{self.model_version}"

    `kind` is required; `queue`, `priority` and `max_attempts` are the defaults of its jobs. A wrong
    one raises `ConfigError` when the class is made. Fields shared by several kinds belong into a plain
    `BaseModel` that each of them inherits too.

    Unknown fields are refused: a worker that is older than its producers would otherwise run a job
    without an option that it does not know. Deploy workers before producers, or say otherwise in the
    class's own `model_config`.
    """

    # NaN as it is, so that the job refuses it: pydantic would make null of it.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    job_defaults: ClassVar[JobDefaults]

    def __init_subclass__(
        cls,
        *,
        kind: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = 5,
        **keywords: Any,  # Any: pydantic's own class keywords (frozen=..., strict=...) pass through
    ) -> None:
        super().__init_subclass__(**keywords)
        if kind is None:
            raise ConfigError(
                f'{cls.__name__}: a kind is required; write class {cls.__name__}(JobInput, kind="...")'
            )
        try:
            Job(kind=kind, queue=queue, priority=priority, max_attempts=max_attempts)
        except InvalidJob as error:
            raise ConfigError(f"{cls.__name__}: {error}") from None
        cls.job_defaults = JobDefaults(kind, queue, priority, max_attempts)

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:  # Any: the signature is pydantic's
        super().__pydantic_init_subclass__()
        for name in ("idempotency_key", "to_job", "job_defaults"):
            if name in cls.model_fields:
                raise ConfigError(
                    f"{cls.__name__}: {name} can't be a field, every JobInput has such a member"
                )

    def idempotency_key(self) -> str | None:
        """The name under which the job is unique in its queue. None, unless a subclass says otherwise."""
        return None

    def to_job(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Job:
        """A new job with this input. What is None comes from the class. Never blocks.

        The input is read back from its JSON at once, as the worker will read it, so that the class's
        validators run here too, on the producer's side: they must be quick, have no side effects, and accept
        what they made. Sets are written in order, so that equal inputs are equal JSON.

        Raises `InvalidJob`, also when the input would not come back from its JSON as it is now.
        """
        defaults = self.job_defaults
        job = Job(
            kind=defaults.kind,
            input_ref=_as_json(self),
            idempotency_key=self.idempotency_key(),
            queue=defaults.queue if queue is None else queue,
            priority=defaults.priority if priority is None else priority,
            run_at=run_at,
            max_attempts=defaults.max_attempts if max_attempts is None else max_attempts,
            headers=dict(headers or {}),
        )
        _check_comes_back(self, job.input_json)
        return job


def as_record(given: JobInput) -> JobRecord:
    """``given.to_job().to_record()`` in a third of the time, for whoever registers many: no `Job` is made and
    looked at again. What the class says was checked with the class, pydantic wrote the input, and the key is
    checked here. Never blocks; raises `InvalidJob`.
    """
    if type(given).to_job is not JobInput.to_job:  # a class that makes its jobs in a way of its own
        return given.to_job().to_record()
    input_ref, key = _as_json(given), given.idempotency_key()
    try:
        text = dump_flat_json(input_ref)
        if key is not None:
            check_key(key)
    except ValueError:
        return given.to_job().to_record()  # which says in words why it can't be stored
    _check_comes_back(given, text)
    says = given.job_defaults
    digest = None if key is None else fingerprint(says.kind, input_ref)
    # By position, which is a tenth of the whole less than by name: id, kind, ..., run_at, ..., headers.
    return JobRecord(
        new_job_id_text(),
        says.kind,
        says.queue,
        says.priority,
        None,
        says.max_attempts,
        key,
        digest,
        text,
        None,
    )


def _as_json(given: JobInput) -> dict[str, JsonValue]:
    try:
        # What model_dump and, below, model_validate_json call: producers do it for each job, and each of the
        # two doors costs more than what is behind it (0.6 us instead of 0.25, 0.8 instead of 0.45).
        dumped: dict[str, JsonValue] = given.__pydantic_serializer__.to_python(
            given, mode="json", by_alias=True, round_trip=True
        )
        for value in dumped.values():
            if isinstance(value, (list, dict)):
                break
        else:
            return dumped  # there is no set in it
        ordered = _with_sets_in_order(dumped, given.model_dump(by_alias=True, round_trip=True))
        return cast("dict[str, JsonValue]", ordered)
    except (PydanticSerializationError, UnicodeDecodeError) as error:
        raise InvalidJob("input_ref", f"can't be written as JSON: {error}") from None


def _check_comes_back(given: JobInput, text: str) -> None:
    """Read `text` as the worker will. What it could not read is the producer's to hear, now."""
    try:
        again = given.__pydantic_validator__.validate_json(text)
    except ValidationError as error:
        finding = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in finding["loc"]) or type(given).__name__
        raise InvalidJob(
            "input_ref", f"{field} would not be read back from its JSON: {finding['msg']}"
        ) from None
    for name, value in given.__dict__.items():
        if isinstance(value, (SecretStr, SecretBytes)) and getattr(again, name) != value:
            raise InvalidJob("input_ref", f"{name} is a secret, which JSON masks; pass a reference to it")


def _with_sets_in_order(dumped: JsonValue, value: object) -> JsonValue:
    """`dumped`, which is `value` as JSON, with the members of each set sorted.

    A set of strings has another order in each process (PYTHONHASHSEED). Written in that order, one input
    would be as many as there are processes to whoever compares its text or its digest.
    """
    if isinstance(dumped, dict) and isinstance(value, dict):
        values = list(cast("dict[object, object]", value).values())
        if len(values) == len(dumped):
            pairs = zip(dumped.items(), values, strict=True)
            return {name: _with_sets_in_order(item, each) for (name, item), each in pairs}
    elif isinstance(dumped, list) and isinstance(value, (list, tuple)):
        members = cast("Sequence[object]", value)
        if len(members) == len(dumped):
            return [_with_sets_in_order(item, each) for item, each in zip(dumped, members, strict=True)]
    elif isinstance(dumped, list) and isinstance(value, (set, frozenset)):
        nested = all(isinstance(each, frozenset) for each in cast("Collection[object]", value))
        return _sorted(_sorted(item) if nested and isinstance(item, list) else item for item in dumped)
    return dumped


def _sorted(members: Iterable[JsonValue]) -> list[JsonValue]:
    return sorted(members, key=lambda member: json.dumps(member, sort_keys=True))

"""What callers pass, checked once for all stores and before any I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, TypeAlias, cast
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from jobcontract.contract import (
    Capabilities,
    ConnectionLease,
    Deduplication,
    Job,
    JobRecord,
    QueueName,
    TimedLease,
)
from jobcontract.errors import InvalidJob, Unsupported
from jobcontract.jsontext import UnstorableText, check_text
from jobcontract.kinds import JobInput
from jobcontract.kinds import as_record as typed_input_as_record

DEFAULT_LEASE = timedelta(minutes=2)
_LONGEST_DELAY = timedelta(days=366 * 10)
_MAX_NOTE_NAME_BYTES = 256
_MAX_NOTE_BYTES = 64 * 1024
_queue_name: TypeAdapter[str] = TypeAdapter(QueueName)


class MakesJob(Protocol):
    """A typed input (`JobInput`): it knows how to become a `Job`."""

    def to_job(self) -> Job:
        """The job that carries this input."""
        ...


Registrable: TypeAlias = Job | MakesJob


def as_record(job: Registrable, position: int) -> JobRecord:
    """What is stored of `job`. `position` names it in the error."""
    if isinstance(job, JobInput):
        return typed_input_as_record(job)
    if isinstance(job, Job):
        return job.to_record()
    maker = getattr(job, "to_job", None)
    if maker is None:
        raise InvalidJob(f"jobs[{position}]", f"must be a Job or a JobInput, not {type(job).__name__}")
    return cast(Job, maker()).to_record()


def check_supported(
    records: Sequence[JobRecord], capabilities: Capabilities, told: Callable[[], str]
) -> None:
    """Raise `Unsupported` for the first record that the store can't take as it is; `told` says which store it
    is.
    """
    most = capabilities.max_input_ref_bytes
    for record in records:
        if record.priority >= capabilities.priority_levels:
            raise Unsupported(
                f"priority {record.priority}: {told()} keeps "
                f"{capabilities.priority_levels} levels apart, 0 to {capabilities.priority_levels - 1}"
            )
        if record.idempotency_key is not None and capabilities.deduplication is Deduplication.NONE:
            raise Unsupported(f"idempotency_key: {told()} does not deduplicate jobs")
        if record.run_at is not None and capabilities.scheduling is None:
            raise Unsupported(f"run_at: {told()} can't schedule jobs")
        if utf8_length(record.input_ref, most) > most:
            raise Unsupported(f"input_ref: {told()} takes at most {most} bytes as JSON")


def utf8_length(text: str, bound: int) -> int:
    """The length of `text` in UTF-8, exact when it exceeds `bound`; short texts are not encoded to be
    measured.
    """
    return len(text) if len(text) * 4 <= bound else len(text.encode())


def check_lease(lease: timedelta | None, limits: TimedLease | ConnectionLease) -> timedelta:
    """The length of a lease that the store gives; None is two minutes, or less where it gives less."""
    if lease is None:
        return min(DEFAULT_LEASE, limits.longest)
    if not isinstance(lease, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidJob("lease", f"must be a timedelta, not {type(lease).__name__}")
    shortest = limits.shortest if isinstance(limits, TimedLease) else timedelta(microseconds=1)
    if lease <= timedelta():
        raise InvalidJob("lease", f"must be longer than nothing, not {lease}")
    if not shortest <= lease <= limits.longest:
        raise Unsupported(
            f"a lease of {lease} is outside of what this store gives: {shortest} to {limits.longest}"
        )
    return lease


def check_limit(limit: int, most: int) -> None:
    """Raise `InvalidJob` unless `limit` is an integer from 1 to `most`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidJob("limit", f"must be an integer from 1 to {most}, not {limit!r}")


def check_queues(queues: Sequence[str]) -> list[str]:
    """The queues, each once. Raises `InvalidJob` for none, or for what is no name."""
    if isinstance(queues, str):
        raise InvalidJob("queues", f"must be a sequence of names, not one string; write [{queues!r}]")
    names = list(dict.fromkeys(queues))
    if not names:
        raise InvalidJob("queues", "must name at least one queue")
    for name in names:
        try:
            _queue_name.validate_python(name)
        except ValidationError:
            raise InvalidJob("queues", f"{name!r} is not a queue name: 1 to 64 of [a-z0-9_.-]") from None
    return names


def check_delay(field: str, delay: timedelta) -> None:
    """Raise `InvalidJob` unless `delay` is a length of time up to ten years."""
    if not isinstance(delay, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidJob(field, f"must be a timedelta, not {type(delay).__name__}")
    if not timedelta() <= delay <= _LONGEST_DELAY:
        raise InvalidJob(field, f"must be between nothing and ten years, not {delay}")


def check_note_name(name: str) -> str:
    """The name of a note. Raises `InvalidJob`."""
    return _check_bytes("name", name, 1, _MAX_NOTE_NAME_BYTES)


def check_note_text(text: str) -> str:
    """The text of a note. Raises `InvalidJob`."""
    return _check_bytes("text", text, 0, _MAX_NOTE_BYTES)


def _check_bytes(field: str, text: str, least: int, most: int) -> str:
    try:
        size = len(check_text(text).encode())
    except UnstorableText as error:
        raise InvalidJob(field, str(error)) from None
    if not least <= size <= most:
        raise InvalidJob(field, f"must have {least} to {most} bytes of UTF-8, not {size}")
    return text


def check_id(job_id: UUID | str) -> str:
    """The id as text, in its one spelling. Raises `InvalidJob`."""
    try:
        return str(job_id if isinstance(job_id, UUID) else UUID(job_id))
    except (ValueError, AttributeError, TypeError):
        raise InvalidJob("job_id", f"{job_id!r} is not a UUID") from None

"""A job as the bytes that Redis holds, and back.

::

    created run_at priority max_attempts kind #key #headers\n
    <key><headers><input_ref>

The first line is for the scripts, which never look behind it but for the key: `created` in milliseconds,
`run_at` in microseconds as the producer gave it, the lengths of key and headers in bytes. What follows is
kept as it came, so that no digit of a number is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from jobcontract.contract import ClaimedRecord, JobRecord, Lease, State
from jobcontract.side_doors import MovedJob, StoredJob

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LEVEL = 2**42
_LEVELS = tuple(str((9 - priority) * _LEVEL) for priority in range(10))


def instant(milliseconds: int) -> datetime:
    """The server's milliseconds as a datetime. Raises `OverflowError` for what no datetime can hold."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def milliseconds(length: timedelta) -> int:
    """`length` for a script; part of a millisecond counts as a whole one, so that nothing comes too early."""
    return -(-length // timedelta(milliseconds=1))


def registration_words(record: JobRecord) -> list[object]:
    """The arguments of register.lua for one job."""
    due = exact = ""
    if record.run_at is not None:
        microseconds = (record.run_at - _EPOCH) // _MICROSECOND
        exact = str(microseconds)
        due = str(-(-microseconds // 1000))  # never claimed before run_at
    key = (record.idempotency_key or "").encode()
    headers = (record.headers or "").encode()
    head = f"{record.priority} {record.max_attempts} {record.kind} {len(key)} {len(headers)}\n".encode()
    return [
        record.id,
        _LEVELS[record.priority],
        due,
        exact,
        head + key + headers + record.input_ref.encode(),
        key,
        record.fingerprint or b"",
    ]


def claimed_record(queue: str, found: bytes, token: str, expires_at: datetime) -> ClaimedRecord:
    """One answer of claim.lua: "id attempt refunded due body"."""
    identifier, attempt, refunded, due, body = found.split(b" ", 4)
    job_id = identifier.decode("ascii", "replace")
    lease = Lease(job_id, queue, token, int(attempt), expires_at, int(refunded))
    return ClaimedRecord(lease, _body(job_id, queue, body, due)[0])


def stored_job(queue: str, found: Sequence[bytes | None]) -> StoredJob:
    """One job as get.lua and jobs.lua tell it."""
    *texts, error, body = found
    identifier, state, attempt, refunded, due, finished, expires = cast("list[bytes]", texts)
    job_id = identifier.decode("ascii", "replace")
    record, created = _body(job_id, queue, cast(bytes, body), due or b"-")
    return StoredJob(
        record=record,
        state=State(state.decode()),
        attempt=int(attempt),
        created_at=created,
        finished_at=_optional_instant(finished),
        lease_expires_at=_optional_instant(expires),
        last_error=None if error is None else error.decode("utf-8", "replace"),
        cursor=job_id,
        refunded=int(refunded),
    )


def departed_job(queue: str, found: Sequence[bytes | None]) -> MovedJob:
    """One job as parts/depart.lua tells it."""
    identifier, was, attempt, refunded, due, finished, error, fingerprint, body = found
    job_id = cast(bytes, identifier).decode("ascii", "replace")
    record, created = _body(job_id, queue, cast(bytes, body), due or b"-")
    return MovedJob(
        record=record._replace(fingerprint=fingerprint or None),
        state=State(cast(bytes, was).decode()),
        attempt=int(attempt or 0),
        refunded=int(refunded or 0),
        created_at=created,
        finished_at=_optional_instant(finished or b""),
        last_error=None if error is None else error.decode("utf-8", "replace"),
    )


def moved_words(job: MovedJob) -> list[object]:
    """The arguments of admit.lua for one job. Its body has its run_at, exactly."""
    job_id, level, due, exact, rest, key, fingerprint = registration_words(job.record)
    body = f"{_milliseconds_since_1970(job.created_at)} {exact} ".encode() + cast(bytes, rest)
    return [
        job_id,
        job.state.value,
        int(cast(str, level)) + int(cast(str, due)),
        job.attempt,
        job.refunded,
        "" if job.last_error is None else f"1{job.last_error}",
        _milliseconds_since_1970(job.finished_at or job.created_at),
        body,
        key if job.record.fingerprint is not None else b"",
        fingerprint,
    ]


def _milliseconds_since_1970(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


def _optional_instant(text: bytes) -> datetime | None:
    return instant(int(text)) if text else None


def _body(job_id: str, queue: str, body: bytes, due: bytes) -> tuple[JobRecord, datetime]:
    """`body` as a record and when it was created; `due` in ms takes the place of its run_at unless it is "-".

    What is no body of ours comes out as a record that is no job.
    """
    head, _, rest = body.partition(b"\n")
    try:
        created, exact, priority, max_attempts, kind, key_length, headers_length = head.decode("ascii").split(
            " "
        )
        run_at = instant(int(due)) if due != b"-" else _EPOCH + timedelta(microseconds=int(exact))
        key = headers = None
        if key_length != "0":
            key = _text(rest[: int(key_length)])
            rest = rest[int(key_length) :]
        if headers_length != "0":
            headers = _text(rest[: int(headers_length)])
            rest = rest[int(headers_length) :]
        record = JobRecord(
            job_id, kind, queue, int(priority), run_at, int(max_attempts), key, None, _text(rest), headers
        )
        return record, instant(int(created))
    except (ValueError, OverflowError):
        return JobRecord(job_id, "", queue, 0, None, 1, None, None, _text(body), None), _EPOCH


def _text(raw: bytes) -> str:
    # Bytes that are no UTF-8 become lone surrogates, which `decode` above the door refuses with a reason.
    return raw.decode("utf-8", "surrogateescape")

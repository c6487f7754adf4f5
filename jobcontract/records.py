"""Jobs between the two sides of the door: decoding what a store gives back, and the envelope that crosses
wires.

What comes from a store is untrusted: a column can be edited by hand, a message can be written by another
program. Each record is decoded on its own, and raises `Undecodable` alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from jobcontract.contract import (
    EARLIEST_RUN_AT,
    ENVELOPE_VERSION,
    LATEST_RUN_AT,
    MAX_KEY_BYTES,
    Job,
    JobRecord,
)
from jobcontract.errors import InvalidJob
from jobcontract.identifiers import read_job_id
from jobcontract.jsontext import MAX_DEPTH


class Undecodable(ValueError):
    """A record or an envelope that is not a job. The message says why, without showing the input."""


def decode(record: JobRecord) -> Job:
    """The job that `record` holds. Raises `Undecodable`."""
    return decode_plain(record) or decode_carefully(record)


def decode_plain(record: JobRecord) -> Job | None:
    """The job of a record that is good at a glance, or None: it may still be good.

    The glance is sufficient, not necessary: ASCII without escapes, a name seen before, numbers in range.
    Whatever it lets pass, `decode_carefully` would decode to the same job, which a test holds it to.
    """
    job_id, kind, queue, priority, run_at, max_attempts, key, _, text, headers = record
    if (
        headers is not None
        or type(run_at) is not datetime
        or run_at.tzinfo is not UTC
        or not EARLIEST_RUN_AT <= run_at < LATEST_RUN_AT
        or type(priority) is not int
        or not 0 <= priority <= 9
        or type(max_attempts) is not int
        or not 1 <= max_attempts <= 1000
        or not (key is None or (type(key) is str and len(key) <= MAX_KEY_BYTES and _is_plain_key(key)))
        or type(text) is not str
        or not text.isascii()
        or "\\" in text
        or (len(text) > MAX_DEPTH and text.count("{") + text.count("[") > MAX_DEPTH)
        or type(kind) is not str
        or type(queue) is not str
    ):
        return None
    try:
        if not _are_names(kind, queue):
            return None
        found: tuple[object, int] = _scan_plain(text)
        identifier = read_job_id(job_id)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    input_ref, end = found
    if type(input_ref) is not dict or end != len(text):  # white space around it is for the careful one
        return None
    return Job.restore_checked(
        text,
        {
            "kind": kind,
            "input_ref": input_ref,
            "idempotency_key": key,
            "queue": queue,
            "priority": priority,
            "run_at": run_at,
            "max_attempts": max_attempts,
            "headers": {},
            "id": identifier,
        },
    )


def _is_plain_key(key: str) -> bool:
    return key.isascii() and key.isprintable() and bool(key) and key[0] != " " and key[-1] != " "


@lru_cache(maxsize=1024)
def _are_names(kind: str, queue: str) -> bool:
    try:
        Job(kind=kind, queue=queue)
    except InvalidJob:
        return False
    return True


def _refuse_float(text: str) -> float:
    # Infinity can be written as 1e999, too. Inputs with fractions take the careful way.
    raise ValueError(f"{text} needs a closer look")


# Without the search of `decode` for white space, which takes as long as a small input itself.
_scan_plain = json.JSONDecoder(parse_float=_refuse_float, parse_constant=_refuse_float).raw_decode


def decode_carefully(record: JobRecord) -> Job:
    try:
        values: dict[str, Any] = {
            "id": UUID(record.id),
            "kind": record.kind,
            "queue": record.queue,
            "priority": record.priority,
            "run_at": record.run_at,
            "max_attempts": record.max_attempts,
            "idempotency_key": record.idempotency_key,
            "input_ref": json.loads(_text(record.input_ref)),
        }
        if record.headers is not None:
            values["headers"] = json.loads(_text(record.headers))
        return Job.restore(record.input_ref, values)
    except InvalidJob as error:
        raise Undecodable(f"the stored job is not valid: {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Undecodable(
            f"the stored job can't be read: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def _text(value: object) -> str:
    # json.loads takes bytes too, in three encodings; a record holds text.
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} stands where JSON text should")
    return value


_quoted = json.encoder.encode_basestring
_ENVELOPE_FIELDS = (
    "id",
    "kind",
    "queue",
    "priority",
    "run_at",
    "max_attempts",
    "idempotency_key",
    "fingerprint",
)


def to_envelope(record: JobRecord, *, run_at: datetime | None = None) -> str:
    """`record` as one line of JSON, `{"v": 1, "id": ..., ...}`, for stores and wires that hold a job as one
    value. `run_at` is that of a record that has none.

    `input_ref` and `headers` are JSON already and are set in as they are, so that no digit of a number is
    touched.
    """
    job_id, kind, queue, priority, known_run_at, max_attempts, key, fingerprint, input_ref, headers = record
    run_at = known_run_at or run_at
    if type(priority) is int and type(max_attempts) is int:
        try:  # what `json.dumps` would write, in a fifth of its time
            at = f'"{run_at.isoformat()}"' if run_at else "null"
            named = "null" if key is None else _quoted(key)
            digest = f'"{fingerprint.hex()}"' if fingerprint else "null"
            return (
                f'{{"v":{ENVELOPE_VERSION},"id":{_quoted(job_id)},"kind":{_quoted(kind)}'
                f',"queue":{_quoted(queue)},"priority":{priority},"run_at":{at},"max_attempts":{max_attempts}'
                f',"idempotency_key":{named},"fingerprint":{digest}'
                f',"input_ref":{input_ref},"headers":{headers or "null"}}}'
            )
        except TypeError:  # a name that is no text: only what others have stored can hold one
            pass
    plain = {
        "v": ENVELOPE_VERSION,
        **{name: getattr(record, name) for name in _ENVELOPE_FIELDS},
        "run_at": run_at.isoformat() if run_at else None,
        "fingerprint": fingerprint.hex() if fingerprint else None,
    }
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return f'{text[:-1]},"input_ref":{input_ref},"headers":{headers or "null"}}}'


_INPUT, _HEADERS = ',"input_ref":', ',"headers":'
_CANONICAL_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_is_canonical_id = re.compile(_CANONICAL_ID).fullmatch
_TEXT, _NUMBER = r'"([^"\\\x00-\x1f]*)"', "(0|[1-9][0-9]{0,8})"
_plain_head = re.compile(
    rf'{{"v":{ENVELOPE_VERSION},"id":"({_CANONICAL_ID})","kind":{_TEXT},"queue":{_TEXT},"priority":{_NUMBER}'
    rf',"run_at":(?:null|{_TEXT}),"max_attempts":{_NUMBER},"idempotency_key":(?:null|{_TEXT})'
    rf',"fingerprint":(?:null|"((?:[0-9a-f]{{2}})+)"),"input_ref":'
).match
_NO_HEADERS = ',"headers":null}'


def from_envelope(text: str | bytes) -> JobRecord:
    """The record in an envelope; in one of ours, with the texts of input and headers as they stand there:
    what they hold, `decode` reads.

    Raises `Undecodable` for anything else, also for a version that is newer than this code.
    """
    try:
        envelope = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        raise Undecodable("the envelope is not JSON: it is not UTF-8") from None
    return read_plain_envelope(envelope) or read_any_envelope(envelope)


def read_plain_envelope(envelope: str) -> JobRecord | None:
    """The record of an envelope that is ours at a glance, or None: it may still be one. As most are: no
    escapes in front of the input, and no headers.
    """
    head = _plain_head(envelope)
    if head is None or not envelope.endswith(_NO_HEADERS, head.end()):
        return None
    job_id, kind, queue, priority, run_at, max_attempts, key, fingerprint = head.groups()
    try:
        instant = datetime.fromisoformat(run_at) if run_at else None
    except ValueError:
        return None
    return JobRecord(
        job_id,
        kind,
        queue,
        int(priority),
        instant,
        int(max_attempts),
        key,
        bytes.fromhex(fingerprint) if fingerprint else None,
        envelope[head.end() : -len(_NO_HEADERS)],
        None,
    )


def read_any_envelope(envelope: str) -> JobRecord:
    # Neither mark can stand inside of a JSON string, where the quotes would be escaped. The first one follows
    # plain values only; the second may come in the input and in the headers too, but what follows it is a
    # JSON value in one place only.
    start = envelope.find(_INPUT)
    end = envelope.rfind(_HEADERS)
    while 0 < start < end and envelope.endswith("}"):
        headers = envelope[end + len(_HEADERS) : -1]
        if _is_json(headers):
            input_ref = envelope[start + len(_INPUT) : end]
            head = _read_object(f"{envelope[:start]}}}")
            return _record(head, input_ref, None if headers == "null" else headers)
        end = envelope.rfind(_HEADERS, 0, end)
    values = _read_object(envelope)  # of another program, which spells JSON in another way
    record = _record(values, _dumped(values, "input_ref"), _dumped(values, "headers"))
    for name in ("input_ref", "headers"):
        if name not in values:
            raise Undecodable(f"the envelope is not a job: KeyError: {name!r}")
    return record if record.headers != "null" else record._replace(headers=None)


def _dumped(values: Mapping[str, Any], name: str) -> str:
    return json.dumps(values.get(name), ensure_ascii=False, separators=(",", ":"))


def _is_json(text: str) -> bool:
    if text == "null":
        return True
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _read_object(text: str) -> Mapping[str, Any]:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"the envelope is not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise Undecodable("the envelope is not a JSON object")
    values = cast("dict[str, Any]", found)
    version = values.get("v")
    if type(version) is not int or version != ENVELOPE_VERSION:  # 1.0 and true are equal to 1
        raise Undecodable(
            f"the envelope has version {str(version)[:40]}; this jobcontract reads version {ENVELOPE_VERSION}"
        )
    return values


def _record(values: Mapping[str, Any], input_ref: str, headers: str | None) -> JobRecord:
    try:
        job_id = values["id"]
        return JobRecord(
            id=job_id if _is_canonical_id(job_id) else str(UUID(job_id)),
            kind=values["kind"],
            queue=values["queue"],
            priority=values["priority"],
            run_at=datetime.fromisoformat(values["run_at"]) if values["run_at"] else None,
            max_attempts=values["max_attempts"],
            idempotency_key=values["idempotency_key"],
            fingerprint=bytes.fromhex(values["fingerprint"]) if values["fingerprint"] else None,
            input_ref=input_ref,
            headers=headers,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Undecodable(f"the envelope is not a job: {type(error).__name__}: {str(error)[:200]}") from None

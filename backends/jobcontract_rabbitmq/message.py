"""A job as a message: the envelope is the body, which is never touched again; its history is in the headers.

===================  ==================================================================================
body                 the envelope, `jobcontract.records`; `run_at` in it is the first one
message_id, type     the job's id and kind, for people who look at the broker
``x-delivery-count`` the broker's: how often this very message was delivered before
``attempts``         how often the job was claimed before this message was published
``refunded``         how many of those do not count
``run_at``           of a job that came back: when it is, or was, due (milliseconds since 1970, our clock)
``error``            the last error
``died_at``          of a dead job: when (milliseconds since 1970, our clock)
``created_at``       of a job that was moved here: when it was registered (milliseconds since 1970)
``copy``             of a job that was moved here: the name of this copy
``filler``           of a message that is no job: it takes the place of one (see `jobcontract_rabbitmq.tap`)
===================  ==================================================================================

All are absent where they would be 0 or empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from secrets import token_hex
from typing import NamedTuple
from uuid import UUID

from jobcontract.contract import JobRecord, State
from jobcontract.records import Undecodable, from_envelope, to_envelope
from jobcontract.side_doors import MovedJob
from jobcontract_rabbitmq.frames import Properties
from jobcontract_rabbitmq.topology import Route

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Message(NamedTuple):
    """What is published, and where."""

    route: Route
    body: bytes
    properties: Properties


class History(NamedTuple):
    """What a job has been through, as its headers tell."""

    attempts: int = 0
    """How often it was claimed."""
    refunded: int = 0
    """How many of those do not count against max_attempts."""
    run_at: datetime | None = None
    """None where the envelope's is still the one."""
    error: str | None = None
    died_at: datetime | None = None
    created_at: datetime | None = None
    """None where the id tells."""
    copy: str = ""
    """The name of this copy of the job, where it came by a move. See `CarriesCopies`."""

    @classmethod
    def of(cls, headers: Mapping[str, object]) -> History:
        """As far as the headers can be read: they come from the broker, and anybody may have written them."""
        if not headers:
            return NEW
        return cls(
            attempts=_count(headers.get("attempts")) + _count(headers.get("x-delivery-count")),
            refunded=_count(headers.get("refunded")),
            run_at=_instant(headers.get("run_at")),
            error=error if isinstance(error := headers.get("error"), str) else None,
            died_at=_instant(headers.get("died_at")),
            created_at=_instant(headers.get("created_at")),
            copy=copy if isinstance(copy := headers.get("copy"), str) else "",
        )

    def claimed(self) -> History:
        """One more attempt."""
        return _FIRST_CLAIM if self is NEW else self._replace(attempts=self.attempts + 1)

    def headers(self) -> Mapping[str, str | int]:
        """For the next message of the job."""
        found: dict[str, str | int] = {}
        if self.attempts:
            found["attempts"] = self.attempts
        if self.refunded:
            found["refunded"] = self.refunded
        if self.error is not None:
            found["error"] = self.error
        if self.copy:
            found["copy"] = self.copy
        for name in ("run_at", "died_at", "created_at"):
            at: datetime | None = getattr(self, name)
            if at is not None:
                found[name] = (at - _EPOCH) // _MILLISECOND
        return found


NEW = History()
_FIRST_CLAIM = History(attempts=1)


class Reading(NamedTuple):
    """A delivered message, read."""

    record: JobRecord
    """Untrusted."""
    history: History
    problem: str | None = None
    """Why there is no job in it; `record` can't be decoded then."""

    @property
    def spent(self) -> int:
        """How many attempts count."""
        return self.history.attempts - self.history.refunded

    @property
    def max_attempts(self) -> int:
        """1 where the record says nothing that could be meant."""
        return max(1, _count(self.record.max_attempts))

    def claimed(self) -> Reading:
        """With one attempt more."""
        return Reading(self.record, self.history.claimed(), self.problem)

    def again(self, route: Route, history: History, body: bytes) -> Message:
        """The next message of the job."""
        kind = self.record.kind if _is_short_text(self.record.kind) else ""
        return Message(route, body, Properties(self.record.id, kind, history.headers()))


def read(body: bytes, headers: Mapping[str, object], message_id: str | None, queue: str) -> Reading:
    """The job in a message. What holds none comes with a record that can't be decoded, under a name that is
    always the same for it.
    """
    history = History.of(headers)
    try:
        record = from_envelope(body)
    except Undecodable as error:
        name = str(_name_of(message_id, body))
        nothing = JobRecord(name, "", queue, 0, history.run_at, 1, None, None, "", None)
        return Reading(nothing, history, str(error))
    return Reading(record if history.run_at is None else record._replace(run_at=history.run_at), history)


def _name_of(message_id: str | None, body: bytes) -> UUID:
    try:
        return UUID(message_id or "")
    except ValueError:
        return UUID(bytes=blake2b(body, digest_size=16).digest(), version=5)


def first_message(record: JobRecord, route: Route, now: datetime) -> Message:
    """The message of a job that is registered. Its run_at is `now` where it says none."""
    return Message(route, to_envelope(record, run_at=now).encode(), Properties(record.id, record.kind))


def carried_message(job: MovedJob, route: Route, copy: str) -> Message:
    """The message of a job that comes from another store, with its past."""
    history = History(
        attempts=job.attempt,
        refunded=job.refunded,
        error=job.last_error,
        died_at=job.finished_at if job.state is State.DEAD else None,
        created_at=job.created_at,
        copy=copy,
    )
    body = to_envelope(job.record).encode()
    return Message(route, body, Properties(job.record.id, job.record.kind, history.headers()))


def filler(route: Route) -> Message:
    """A message that is no job. Whoever gets it drops it."""
    return Message(route, b"", Properties(token_hex(8), "jobcontract.filler", {"filler": 1}))


def is_filler(headers: Mapping[str, object], body: bytes) -> bool:
    """Whether such a message was delivered."""
    return not body and "filler" in headers


def _is_short_text(value: object) -> bool:
    return isinstance(value, str) and len(value.encode(errors="replace")) < 256


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else 0


def _instant(value: object) -> datetime | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 42:  # until 2109
        return _EPOCH + value * _MILLISECOND
    return None

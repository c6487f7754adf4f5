"""The contract: what a job is, what a store promises, and the door between the two.

Producers and handlers are written against `Job`, `Registration` and `Claim`. A store is written against
`Driver`: ten members, plural verbs, a verdict per item. What a store can do beyond that are *side doors*:
protocols of a few methods, which a driver simply has or has not, in `jobcontract.side_doors`. What differs in
degree is data: `Capabilities`, computed from the live server.

The life of a job::

                   register                claim                     complete
        (nothing) ---------> ready ------------------> running ------------------> done
                              |  ^                      |    |
                       cancel |  |  fail, release,      |    | fail (permanent, or attempts are spent)
                              v  |  expiry (rescue)     |    | expiry with the attempts spent (rescue)
                         cancelled +--------------------+    +--------------------> dead
                                                                                     |
                              ready <------------------------------------------------+ requeue (an operator)

`moving` and `moved` are the two states of a job whose home is changing from one store to another: hidden
where it was until it has arrived where it goes, and then the trace that it leaves behind (see
`jobcontract.side_doors.MovesOut`).

The one guard: `complete`, `fail`, `extend` and `release` act only while the claim's token is the job's
current token **and** its lease is unexpired by the store's clock. Both parts are needed: completing by id, by
status or by worker name lets a stale worker finish a job that runs again elsewhere. `rescue` checks expiry in
the same write that moves the job, never in a read before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Self, TypeAlias
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from jobcontract.errors import InvalidJob
from jobcontract.identifiers import new_job_id
from jobcontract.jsontext import UnstorableText, check_text, dump_json, fingerprint

ENVELOPE_VERSION = 1

MAX_KEY_BYTES = 512
MAX_HEADERS_BYTES = 8 * 1024
MAX_CLAIM_LIMIT = 1000
MAX_ERROR_BYTES = 8 * 1024
DEFAULT_INPUT_REF_BYTES = 64 * 1024

# Redis orders by milliseconds in 42 bits beside the priority; the smallest range of the four stores holds for
# all.
EARLIEST_RUN_AT = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_RUN_AT = datetime(2100, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class State(StrEnum):
    """Where a job is in its life. See the drawing in this module's docstring."""

    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    MOVING = "moving"
    MOVED = "moved"


# ------------------------------------------------------------------------------------------------------------
# What producers write
# ------------------------------------------------------------------------------------------------------------


def _refuse_number(value: object) -> object:
    # Lax pydantic takes 5 and "5" for five seconds after 1970; as a run_at that is a mistake, not an instant.
    if isinstance(value, datetime) or value is None or (isinstance(value, str) and _DATE.match(value)):
        return value
    raise PydanticCustomError("run_at", "must be a datetime with a time zone or its ISO 8601 text")


Kind: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\-]{1,128}\z", strict=True)]
QueueName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_.\-]{1,64}\z", strict=True)]
StrictCount: TypeAlias = Annotated[int, Field(strict=True)]  # neither True nor "3"


class Job(BaseModel):
    """A unit of work: what to do (`kind`), on what (`input_ref`), and under which name it is unique.

    Frozen. Raises `InvalidJob`, which names the field, when it is made from bad values (pydantic's own doors,
    such as `model_validate` or a field of another model, raise its `ValidationError` with the same sentence).
    A `Job` that exists can be stored by every store, up to the store's declared limits. Made in memory;
    nothing blocks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    kind: Kind
    """Which handler runs the job: 1 to 128 of ``[A-Za-z0-9_.:-]``."""
    input_ref: dict[str, JsonValue] = Field(default_factory=dict)
    """A reference to the input and options, never the document itself. At most 64 KiB as JSON (configurable).
    """
    idempotency_key: Annotated[str, Field(strict=True)] | None = None
    """At most one job exists per (queue, key) while the first one's record lives. 1 to 512 bytes of UTF-8."""
    queue: QueueName = "default"
    """1 to 64 of ``[a-z0-9_.-]``; never begins with ``amq.``."""
    priority: Annotated[StrictCount, Field(ge=0, le=9)] = 0
    """0 to 9; larger is sooner."""
    run_at: Annotated[AwareDatetime | None, BeforeValidator(_refuse_number)] = None
    """Not before this instant, by the store's clock; None is now. Aware, in [1970, 2100)."""
    max_attempts: Annotated[StrictCount, Field(ge=1, le=1000)] = 5
    """How many claims may be spent before the job is dead. 1 to 1000."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Trace context, tenant and the like. At most 8 KiB as JSON."""
    id: UUID = Field(default_factory=new_job_id)
    """UUIDv7 made by the producer: the same on every store, every copy, every message."""

    _input_json: str = PrivateAttr(default="")

    def __init__(self, **fields: Any) -> None:  # Any: pydantic's signature; the fields are the types
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise _invalid_job(error) from None

    @field_validator("queue")
    @classmethod
    def _queue_is_ours(cls, queue: str) -> str:
        if queue.startswith("amq."):
            raise PydanticCustomError("queue", "must not begin with 'amq.', which RabbitMQ keeps for itself")
        return queue

    @field_validator("idempotency_key")
    @classmethod
    def _key_is_storable(cls, key: str | None) -> str | None:
        try:
            return None if key is None else check_key(key)
        except ValueError as error:
            raise PydanticCustomError("key", "{reason}", {"reason": str(error)}) from None

    @field_validator("run_at")
    @classmethod
    def _run_at_in_range(cls, run_at: datetime | None) -> datetime | None:
        if run_at is None:
            return None
        if not EARLIEST_RUN_AT <= run_at < LATEST_RUN_AT:
            raise PydanticCustomError(
                "run_at", "must lie in [1970-01-01, 2100-01-01), the range every store can order"
            )
        return run_at.astimezone(UTC)

    @field_validator("headers")
    @classmethod
    def _headers_are_storable(cls, headers: dict[str, str]) -> dict[str, str]:
        try:
            size = len(dump_json(headers).encode()) if headers else 0
        except UnstorableText as error:
            raise PydanticCustomError("headers", "{reason}", {"reason": str(error)}) from None
        if size > MAX_HEADERS_BYTES:
            raise PydanticCustomError(
                "headers",
                "has {size} bytes as JSON; at most {most} are allowed",
                {"size": size, "most": MAX_HEADERS_BYTES},
            )
        return headers

    @model_validator(mode="after")
    def _input_is_storable(self) -> Self:
        try:
            text = dump_json(self.input_ref)
        except UnstorableText as error:
            raise PydanticCustomError("input_ref", "input_ref: {reason}", {"reason": str(error)}) from None
        private = self.__pydantic_private__  # not by its name, for the same reason as in `input_json`
        assert private is not None
        private["_input_json"] = text
        return self

    @classmethod
    def restore(cls, input_json: str, fields: Mapping[str, object]) -> Self:
        """The job that a store gave back, which keeps the text `input_json` of its input as it was stored."""
        job = cls(**fields)
        job._input_json = input_json
        return job

    @classmethod
    def restore_checked(cls, input_json: str, fields: dict[str, object]) -> Self:
        """`restore` for `fields` that are all there and known to be good, without looking at them again.

        Validation is two thirds of what a claimed job costs a worker (12 us of decoding against 4), and
        nearly every stored job is as plain as it was when it was registered: see `jobcontract.records`.
        """
        job = _new(cls)
        # What pydantic's own model_construct sets, without its search for defaults and aliases.
        _put(job, "__dict__", fields)
        _put(job, "__pydantic_fields_set__", _ALL_FIELDS)
        _put(job, "__pydantic_extra__", None)
        _put(job, "__pydantic_private__", {"_input_json": input_json})
        return job

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with the fields of `update`, checked like any job. Raises `InvalidJob`."""
        if not update:
            return super().model_copy(deep=deep)
        kept = {name: getattr(self, name) for name in self.model_fields_set - update.keys()} | {"id": self.id}
        return type(self)(**(kept | dict(update)))

    @property
    def input_json(self) -> str:
        """`input_ref` as the JSON text that goes to a store, or that came from one."""
        # Not through the private attribute's own access, which is two failed look-ups away (5 us).
        private = self.__pydantic_private__
        assert private is not None
        text: str = private["_input_json"]
        return text

    def to_record(self) -> JobRecord:
        """The flat form in which the job goes to a store. Never blocks."""
        return JobRecord(
            id=str(self.id),
            kind=self.kind,
            queue=self.queue,
            priority=self.priority,
            run_at=self.run_at,
            max_attempts=self.max_attempts,
            idempotency_key=self.idempotency_key,
            # Of the text, not of `input_ref`: a dict can be changed from outside, a frozen job can't.
            fingerprint=None
            if self.idempotency_key is None
            else fingerprint(self.kind, json.loads(self.input_json)),
            input_ref=self.input_json,
            headers=dump_json(self.headers) if self.headers else None,
        )


def check_key(key: str) -> str:
    """`key` itself, if it can be an idempotency key. Raises `ValueError` with what it must be."""
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"must be a string, not {type(key).__name__}")
    check_text(key)
    if not 1 <= len(key.encode()) <= MAX_KEY_BYTES:
        raise ValueError(f"must have 1 to {MAX_KEY_BYTES} bytes of UTF-8")
    if key != key.strip():
        raise ValueError("must not begin or end with white space")
    return key


_new, _put = object.__new__, object.__setattr__
_ALL_FIELDS = set(Job.model_fields)  # shared by restored jobs; nothing changes it, for a job is frozen


def _invalid_job(error: ValidationError) -> InvalidJob:
    """The first finding of pydantic as one sentence. The input's value is shown only where it can't be a
    payload.
    """
    finding = error.errors(include_url=False, include_context=False)[0]
    path = [_brief(str(part)) for part in finding["loc"]]
    message = finding["msg"]
    if not path and finding["type"] == "string_unicode":  # the name of a field, which pydantic can't place
        return InvalidJob(
            _brief(ascii(finding["input"])[1:-1]), "is not a field of a job: its name holds a lone surrogate"
        )
    if not path:  # the model validator names its field itself
        name, _, message = message.partition(": ")
        return InvalidJob(name, message)
    if finding["type"] == "extra_forbidden":
        from difflib import get_close_matches  # rarely needed, and not cheap to import

        near = get_close_matches(path[0], Job.model_fields, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; a job has {', '.join(Job.model_fields)}"
        return InvalidJob(path[0], f"is not a field of a job{hint}")
    if path[0] in ("input_ref", "headers"):
        where = ".".join(path[1:2])
        return InvalidJob(path[0], f"{message}{f' (at {where!r})' if where else ''}")
    if not message[:2].isupper():  # "UUID input ..."
        message = message[:1].lower() + message[1:]
    if finding["type"] == "missing":
        return InvalidJob(path[0], "is required")
    return InvalidJob(path[0], f"{message}, not {_shown(finding['input'])}")


def _shown(value: object) -> str:
    # An integer of more than 4300 digits has no repr, and a stranger's __repr__ may raise anything.
    try:
        return _brief(value.isoformat() if isinstance(value, datetime) else repr(value))
    except Exception:
        return f"this {type(value).__name__}"


def _brief(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True, slots=True)
class Registration:
    """What became of a registration.

    A duplicate key is an answer, not an error: `created` is False and `job_id` is the job that holds the key.
    `conflict` says that this job has another kind or input than the one that was registered now, so that a
    reused key is never swallowed in silence.
    """

    job_id: UUID
    created: bool
    state: State | None = State.READY
    """The state of the job that `job_id` names, as the registration saw it. None where the store can't look
    it up.
    """
    conflict: bool = False


# ------------------------------------------------------------------------------------------------------------
# What crosses the door to a driver: flat, store-ready, untrusted on the way back
# ------------------------------------------------------------------------------------------------------------


class JobRecord(NamedTuple):
    """A job as stores hold it. On the way in it comes from a valid `Job`; on the way out it may hold
    anything.

    A driver copies these values between its columns and never interprets `input_ref` and `headers`.
    """

    id: str
    kind: str
    queue: str
    priority: int
    run_at: datetime | None
    """UTC. On the way in None means "now, by the store's clock"; on the way out a store always knows it."""
    max_attempts: int
    idempotency_key: str | None
    fingerprint: bytes | None
    """16 bytes over kind and input, for keyed jobs only. A driver need not give it back."""
    input_ref: str
    """JSON text."""
    headers: str | None
    """JSON text, or None when there are none."""


class Lease(NamedTuple):
    """The right to run one job until `expires_at`, as a driver gave it. All that the fenced verbs need."""

    job_id: str
    queue: str
    token: str
    """Random per claim (or connection epoch and delivery tag). Never shown to people, never logged."""
    attempt: int
    """1 for the first claim; grows with every claim of the job, also with those that spend no attempt."""
    expires_at: datetime
    """UTC, by the store's clock."""
    refunded: int = 0
    """How many of the earlier attempts were given back (`release`) and do not count against max_attempts."""


class ClaimedRecord(NamedTuple):
    """One job as `Driver.claim` hands it over; decoded above the door, one by one."""

    lease: Lease
    record: JobRecord


class Failure(NamedTuple):
    """One attempt that failed. The delay and the text are ready: backoff, cap and sanitising happened above
    the door.
    """

    lease: Lease
    error: str
    """At most `MAX_ERROR_BYTES` of UTF-8, without NUL and lone surrogates."""
    retry_in: timedelta
    permanent: bool


class Verdict(NamedTuple):
    """What a fenced verb did with one item. `applied` False is a lost lease: nothing changed."""

    applied: bool
    state: State | None = None
    """The job's state now; None when the lease was lost."""
    at: datetime | None = None
    """With `extend` the new expiry, with a job that went back to ready its new run_at. UTC, the store's
    clock.
    """


LOST = Verdict(applied=False)


class Rescued(NamedTuple):
    """What one round of `rescue` did: how many jobs went back to ready, how many died."""

    ready: int
    dead: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that is ours to run until `expires_at`. Give it to `complete`, `fail`, `extend` or `release`."""

    job: Job
    lease: Lease

    @property
    def attempt(self) -> int:
        """1 for the first claim. Monotonic per job, and therefore fit to be a fencing number in other
        systems.
        """
        return self.lease.attempt

    @property
    def spent(self) -> int:
        """How many attempts count against max_attempts, this one included: what was released does not."""
        return self.lease.attempt - self.lease.refunded

    @property
    def token(self) -> str:
        """The fencing token of this claim."""
        return self.lease.token

    @property
    def expires_at(self) -> datetime:
        """When the lease ends unless it is extended, by the store's clock."""
        return self.lease.expires_at

    def __repr__(self) -> str:  # without the token and the input
        return f"Claim({self.job.kind} {self.job.id}, attempt {self.attempt}, until {self.expires_at})"


# ------------------------------------------------------------------------------------------------------------
# What a store can do
# ------------------------------------------------------------------------------------------------------------


class Deduplication(StrEnum):
    """How long an idempotency key is held."""

    RETENTION = "retention"
    """By the store itself, for as long as the job's record lives."""
    OUTBOX = "outbox"
    """By the outbox in front of the store; a job that is registered past the outbox is not deduplicated."""
    NONE = "none"


class Durability(StrEnum):
    """What survives when a registration was acknowledged, from most to least."""

    FSYNC = "fsync"
    """The job survives the loss of power of each node."""
    QUORUM = "quorum"
    """A majority of nodes holds the job: it survives the loss of a minority."""
    WINDOW = "window"
    """The process may be killed. A loss of power takes what was acknowledged since the last sync, a second or
    more of it: in measured runs 6 % of the acknowledged jobs with Redis' ``appendfsync everysec``, 0.8 % with
    PostgreSQL's ``synchronous_commit = off``, 0.6 % with SQLite's ``synchronous = NORMAL``.
    """
    MEMORY = "memory"
    """Gone with the process."""


class Transactional(StrEnum):
    """What `register(job, connection=...)` does."""

    SAME = "same"
    """Writes the job itself in the caller's transaction."""
    OUTBOX = "outbox"
    """Writes an outbox row in the caller's transaction; the relay publishes it."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TimedLease:
    """A claim holds until a time that the caller chooses."""

    shortest: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True)
class ConnectionLease:
    """A claim holds for as long as its connection lives, `longest` at most.

    Its `Lease.expires_at` is `longest` after the claim; `Driver.extend` only says whether the claim is
    current. A job whose connection ended comes again by itself, and `Driver.rescue` has no part in it.
    """

    longest: timedelta


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Jobs with a future `run_at` can be registered."""

    resolution: timedelta
    longest: timedelta | None = None
    """How far ahead; None is as far as a job can say. What is further raises `Unsupported`, from the driver:
    only it knows the store's clock.
    """


Feature: TypeAlias = Literal[
    "cancel", "deduplication", "fsync", "lookup", "move", "notes", "pause", "priorities", "prune",
    "requeue", "scheduling", "stats", "timed_lease", "transactions",
]  # fmt: skip
FEATURES: tuple[Feature, ...] = (
    "cancel", "deduplication", "fsync", "lookup", "move", "notes", "pause", "priorities", "prune",
    "requeue", "scheduling", "stats", "timed_lease", "transactions",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this store, as it is configured now, can do. Values read from the live server, not opinions.

    One declaration serves three readers: the user (`jobctl backends`), the conformance suite (a declared
    capability must have run its tests, an absent one must raise `Unsupported` and leave no trace), and the
    migration plan (which diffs two of them).
    """

    store: str
    """Product and version, as people would say it: "PostgreSQL 15.18"."""
    deduplication: Deduplication
    lease: TimedLease | ConnectionLease
    scheduling: Scheduling | None
    priority_levels: int
    """How many different priorities are kept apart: priorities 0 .. levels - 1 are accepted. 1 to 10."""
    durability: Durability
    transactional: Transactional
    max_register_batch: int
    """The most jobs that one `Driver.register` takes; `Backend` cuts larger batches."""
    max_input_ref_bytes: int
    """The largest `input_ref` as JSON, in bytes, that the store takes."""
    side_doors: frozenset[Feature] = field(default_factory=frozenset[Feature])
    """Which of lookup, cancel, requeue, prune, pause, stats, notes, move the driver has (`side_doors_of`)."""
    notes: tuple[str, ...] = ()
    """Sentences for people: a setting of this server that weakens a promise, and what would change it."""

    def has(self, feature: Feature) -> bool:
        """Whether `feature` is given by this store now."""
        match feature:
            case "deduplication":
                return self.deduplication is not Deduplication.NONE
            case "fsync":
                return self.durability is Durability.FSYNC
            case "priorities":
                return self.priority_levels > 1
            case "scheduling":
                return self.scheduling is not None
            case "timed_lease":
                return isinstance(self.lease, TimedLease)
            case "transactions":
                return self.transactional is not Transactional.NONE
            case _:
                return feature in self.side_doors

    def lacking(self, required: Collection[Feature]) -> list[Feature]:
        """Those of `required` that this store lacks, in alphabetical order."""
        return sorted(feature for feature in required if not self.has(feature))


# ------------------------------------------------------------------------------------------------------------
# The door
# ------------------------------------------------------------------------------------------------------------


class Driver(Protocol):
    """A store, as its author writes it. `Backend` is the only caller.

    What holds for every method:

    - *Called from any thread, and from several at once.* A driver brings its own pool or lock.
    - *Arguments are valid.* `Backend` has checked them against the contract and `capabilities`; a driver
      checks nothing twice.
    - *Plural, with a verdict per item, in the order of the arguments.* An empty sequence is never passed. One
      bad item never takes the others along. The same job is never passed twice in one call.
    - *Durable when it returns*, to the declared durability, except where a method says otherwise.
    - *Bounded.* A call returns or raises `StoreUnavailable` within the driver's own deadline, also when the
      server is stopped or the network is silent.
    - *No policy.* A driver neither logs, nor retries, nor sleeps, nor decides a delay. After
      `StoreUnavailable` it is usable again as soon as the server is: it drops broken connections and opens
      new ones on the next call.
    - *Errors.* `StoreUnavailable` when trying again can help (connection lost, deadline, deadlock,
      serialization failure, out of connections), `InstallationError` when what `Installation.install` makes
      is not there or of another version, otherwise `StoreError` with one sentence. `ConfigError` when
      a setting is wrong. Never a client library's own exception, and never a password.
    - *Time is the server's.* No instant that comes from the clock of the client is ever compared with one in
      the store.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What the live server can do. The first access may block for a round trip; cached afterwards."""
        ...

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        """Store jobs; all of them or, when it raises, possibly none.

        Safe to repeat: a record whose id is known (ready, running, finished) is answered with
        ``created=False``, and never makes a second job. A taken (queue, key) is answered with the job that
        holds it. When the holder's transaction is still open the call waits for its end, and inserts if it
        rolls back. Two records of one call with the same (queue, key): the first wins. (None of this where
        `Capabilities.deduplication` is NONE; a record that has a key all the same was compared by an outbox,
        and its key travels along for the handler.) Wakes waiting workers when a job is
        due now.
        """
        ...

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        """Take at most `limit` due jobs, for `lease`, by priority, then run_at, then id (best effort).

        Never waits for a job to arrive or for a locked row. Skips paused queues and jobs whose run_at is
        ahead. Committed before it returns; each claimed job has a new token and its attempt grew by one.
        Values that can't be decoded are handed over raw.
        """
        ...

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        """Running to done. Fenced: `LOST` where the token is not current or the lease ran out."""
        ...

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        """Running to ready at now + retry_in, or to dead when permanent or when the attempts are spent.
        Fenced.

        Keeps the error as the job's last error, and everything else of the job, also when dead.
        """
        ...

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        """The lease ends at now + `lease`; the token stays. Fenced: an expired lease is not revived."""
        ...

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        """Running to ready at now + `delay`, and the claim does not count against max_attempts. Fenced.

        The attempt number keeps growing (it is a fencing number); what is given back is the attempt's cost.
        """
        ...

    def rescue(self, limit: int) -> Rescued:
        """Expired leases, at most `limit` of them, back to ready (due now), or to dead when the attempts are
        spent.

        Every worker calls it now and then, several at once. Expiry is checked by the write itself, against
        the store's clock. It never waits for a locked row, and rows that it can't move never hide those
        behind them. Also repairs what only the store can break.
        """
        ...

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """Block until work may be there, `timeout` at the longest. True is a hint, False is a timeout;
        neither is the truth.

        A job that was registered after the caller's last `claim` and before this call makes it return at
        once. Survives the restart of the server: then it returns early or late, but within `timeout`, and
        does not raise.
        """
        ...

    def close(self) -> None:
        """Give back what is held: connections, threads. Wakes a `wait` under way. Safe to call twice."""
        ...

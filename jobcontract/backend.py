"""What users hold: one `Backend` per store, the same for every store.

Everything that must not differ between stores happens here, once, above the door: validation, the choice of a
delay, decoding of what comes back, the verdict on one item turned into an exception, and telemetry. A driver
below moves records.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from jobcontract import telemetry
from jobcontract.arguments import (
    Registrable,
    as_record,
    check_delay,
    check_id,
    check_lease,
    check_limit,
    check_note_name,
    check_note_text,
    check_queues,
    check_supported,
    utf8_length,
)
from jobcontract.backoff import DEFAULT_BACKOFF
from jobcontract.connections import bind, run_steps
from jobcontract.contract import (
    DEFAULT_INPUT_REF_BYTES,
    MAX_CLAIM_LIMIT,
    MAX_ERROR_BYTES,
    Capabilities,
    Claim,
    Driver,
    Failure,
    Feature,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    State,
    Verdict,
)
from jobcontract.errors import (
    InvalidJob,
    JobContractError,
    LeaseLost,
    StoreError,
    StoreUnavailable,
    Unsupported,
)
from jobcontract.jsontext import storable
from jobcontract.records import Undecodable, decode
from jobcontract.side_doors import (
    Ailment,
    Cancellation,
    DeadLetters,
    Diagnosis,
    Dialect,
    Expectations,
    Follows,
    Installation,
    JoinsTransactions,
    Lookup,
    Notes,
    NotesRead,
    OutboxStats,
    Page,
    Pausing,
    Pruning,
    QueueStats,
    Requeue,
    Statistics,
    Step,
    Steps,
    ThroughOutbox,
)
from jobcontract.status import JobStatus
from jobcontract.stopping import NOTE, StopRequests

log = logging.getLogger(__name__)

DEFAULT_QUEUES = ("default",)
_job_id_of: Callable[[Lease], str] = attrgetter("job_id")
_id_of: Callable[[JobRecord], str] = attrgetter("id")
FINISHED_STATES = frozenset({State.DONE, State.DEAD, State.CANCELLED})

Result = TypeVar("Result")
Item = TypeVar("Item")


class Backend:
    """A store of jobs. Made by `get_backend`; opens its connections on first use; safe to share between
    threads.

    Safe to create before a fork, too: a child process opens connections of its own. Every verb blocks for at
    most the store's deadline, raises `StoreUnavailable` when trying again can help, and `InvalidJob` or
    `Unsupported` before any I/O.

    Close it with `close`, or use it as a context manager.
    """

    def __init__(
        self,
        name: str,
        open_driver: Callable[[], Driver],
        *,
        max_input_ref_bytes: int = DEFAULT_INPUT_REF_BYTES,
    ) -> None:
        """`open_driver` makes the driver, at first use and again in each forked child; it contacts nothing by
        itself.
        """
        self.name = name
        self._open_driver = open_driver
        self._max_input_ref_bytes = max_input_ref_bytes
        self._opening = threading.Lock()
        self._opened: tuple[int, Driver] | None = None

    # -- What the store can do ---------------------------------------------------------------------

    @property
    def driver(self) -> Driver:
        """The door itself, for those who extend jobcontract. Applications use the verbs below."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            with self._opening:
                opened = self._opened
                if opened is None or opened[0] != os.getpid():
                    # After a fork the parent's driver is left alone: closing it would say goodbye on the
                    # parent's sockets.
                    opened = self._opened = (os.getpid(), self._open_driver())
        return opened[1]

    @property
    def capabilities(self) -> Capabilities:
        """What this store, as it is configured now, can do. Contacts the server once."""
        return self._perform("capabilities", 1, lambda: self.driver.capabilities)

    def require(self, features: Collection[Feature]) -> None:
        """Raise `Unsupported` unless the store has all `features`: at start, not at three in the morning."""
        lacking = self.capabilities.lacking(features)
        if lacking:
            raise Unsupported(
                f"{self._told()} lacks {', '.join(lacking)}; "
                "choose another backend, or see `jobctl backends` for the setting that would change it"
            )

    # -- Producing ---------------------------------------------------------------------------------

    def register(self, job: Registrable, *, connection: object | None = None) -> Registration:
        """Store one job; durable when it returns, as the store's capabilities declare.

        With `connection` (psycopg, SQLAlchemy Connection or Session, Django, sqlite3) the job commits or
        vanishes with the caller's open transaction. Safe to repeat with the same `Job`. A taken idempotency
        key is answered with ``created=False``.
        """
        return self.register_many([job], connection=connection)[0]

    def register_many(
        self, jobs: Iterable[Registrable], *, connection: object | None = None
    ) -> list[Registration]:
        """Store jobs, in batches as large as the store takes; answers come in the order of `jobs`.

        All jobs are checked before the first is sent. Without `connection` each batch commits by itself: when
        this raises `StoreUnavailable`, repeat it with the same jobs, and those that were stored are answered
        as they are.
        """
        with telemetry.registering(self.name):
            if connection is None:
                records = telemetry.carry(self._checked_records(jobs))
                store: Callable[[Sequence[JobRecord]], list[Registration]] = self._register
            else:
                bound = bind(connection)
                records, steps = self.registration_in_transaction(jobs, bound.dialect, bound.client)
                store = lambda batch: run_steps(bound, steps(batch))  # noqa: E731
            if not records:
                return []
            most = self.capabilities.max_register_batch
            return self._in_rounds("register", records, most, _id_of, store, _repeated_registration)

    def check(self, jobs: Iterable[Registrable]) -> None:
        """Raise what `register_many` would raise for `jobs` before it sends the first. Stores nothing.

        Contacts the store once, for its capabilities.
        """
        self._checked_records(jobs)

    def registration_in_transaction(
        self, jobs: Iterable[Registrable], dialect: Dialect, client: object
    ) -> tuple[list[JobRecord], Callable[[Sequence[JobRecord]], Steps[list[Registration]]]]:
        """What `register_many` sends on a caller's connection of `dialect`, which is `client`'s: the checked
        records, and the steps for a batch of them.

        For a face that drives the steps itself (`jobcontract.aio`). Raises what `register_many` raises before
        any statement.
        """
        driver = self.driver
        if not isinstance(driver, JoinsTransactions):
            raise Unsupported(
                f"{self._told()} can't write a job in the caller's "
                "transaction; register after the commit, without `connection`"
            )
        if dialect != driver.dialect:
            raise InvalidJob(
                "connection",
                f"is a {dialect} connection, and {self.capabilities.store} needs one of {driver.dialect}",
            )
        records = telemetry.carry(self._checked_records(jobs))
        joining = driver.joining_steps(client)

        def steps(batch: Sequence[JobRecord]) -> Steps[list[Registration]]:
            yield from joining  # which is over when the first batch has run it
            return (yield from driver.register_steps(batch))

        return records, steps

    # -- Running -----------------------------------------------------------------------------------

    def claim(
        self, *, queues: Sequence[str] = DEFAULT_QUEUES, limit: int = 1, lease: timedelta | None = None
    ) -> list[Claim]:
        """Take at most `limit` (1 to 1000) due jobs of `queues` for `lease` (None: 2 minutes, or what the
        store gives).

        Never waits for a job. By priority, then run_at, then id, as well as concurrent claimers allow. A
        stored job that can't be decoded goes to the dead jobs with the reason and is not returned.
        """
        check_limit(limit, MAX_CLAIM_LIMIT)
        names = check_queues(queues)
        length = check_lease(lease, self.driver.capabilities.lease)
        claimed = self._perform("claim", limit, lambda: self.driver.claim(names, limit, length))
        claims: list[Claim] = []
        broken: list[Failure] = []
        for lease_, record in claimed:
            try:
                claims.append(Claim(decode(record), lease_))
            except Undecodable as error:
                broken.append(
                    Failure(
                        lease_, storable(str(error), max_bytes=MAX_ERROR_BYTES), timedelta(), permanent=True
                    )
                )
        if broken:
            self._bury(broken)
        return claims

    def complete(self, claim: Claim) -> None:
        """The job is done. Raises `LeaseLost`, and changes nothing, unless the claim is current and its lease
        unexpired.
        """
        _raise_when_lost(claim, self.complete_many([claim])[0])

    def complete_many(self, claims: Sequence[Claim]) -> list[Verdict]:
        """`complete` for each claim, with a verdict for each instead of an exception."""
        return self._settle("complete", [claim.lease for claim in claims], self.driver.complete)

    def fail(
        self,
        claim: Claim,
        error: str | BaseException,
        *,
        retry_in: timedelta | None = None,
        permanent: bool = False,
    ) -> Verdict:
        """The attempt failed. The job is ready again after `retry_in`, or dead when `permanent` or when its
        attempts are spent.

        `retry_in` None is exponential backoff with jitter. `error` is kept, sanitised and cut to 8 KiB.
        Raises `LeaseLost`.
        """
        verdict = self.fail_many([self.failure(claim, error, retry_in=retry_in, permanent=permanent)])[0]
        _raise_when_lost(claim, verdict)
        return verdict

    def failure(
        self,
        claim: Claim,
        error: str | BaseException,
        *,
        retry_in: timedelta | None = None,
        permanent: bool = False,
    ) -> Failure:
        """What `fail_many` takes: `error` made storable, the delay chosen. No I/O."""
        if retry_in is None:
            retry_in = DEFAULT_BACKOFF.delay(claim.spent)
        check_delay("retry_in", retry_in)
        text = error if isinstance(error, str) else _describe(error)
        return Failure(claim.lease, storable(text, max_bytes=MAX_ERROR_BYTES), retry_in, permanent)

    def fail_many(self, failures: Sequence[Failure]) -> list[Verdict]:
        """`fail` for each, with a verdict for each instead of an exception."""
        return self._in_rounds(
            "fail",
            failures,
            MAX_CLAIM_LIMIT,
            lambda failure: failure.lease.job_id,
            self.driver.fail,
            _lost,
        )

    def extend(self, claim: Claim, lease: timedelta | None = None) -> Claim:
        """The lease ends `lease` from now. The claim with its new expiry; its token stays. Raises
        `LeaseLost`.
        """
        verdict = self.extend_many([claim], lease)[0]
        _raise_when_lost(claim, verdict)
        return Claim(claim.job, claim.lease._replace(expires_at=verdict.at or claim.expires_at))

    def extend_many(self, claims: Sequence[Claim], lease: timedelta | None = None) -> list[Verdict]:
        """`extend` for each claim, with a verdict (whose `at` is the new expiry) for each instead of an
        exception.
        """
        length = check_lease(lease, self.driver.capabilities.lease)
        return self._settle(
            "extend", [claim.lease for claim in claims], lambda leases: self.driver.extend(leases, length)
        )

    def release(self, claims: Sequence[Claim], *, delay: timedelta = timedelta()) -> list[Verdict]:
        """Give back jobs that did not run: ready again after `delay`, and no attempt is spent."""
        check_delay("delay", delay)
        return self._settle(
            "release", [claim.lease for claim in claims], lambda leases: self.driver.release(leases, delay)
        )

    def wait(self, queues: Sequence[str] = DEFAULT_QUEUES, timeout: timedelta = timedelta(seconds=1)) -> bool:
        """Block until work may be there, `timeout` at the longest. A hint: claim, whatever it says."""
        names = check_queues(queues)
        check_delay("timeout", timeout)
        return self._perform("wait", 1, lambda: self.driver.wait(names, timeout))

    def rescue(self, limit: int = 100) -> Rescued:
        """Take back at most `limit` (1 to 1000) expired leases. Workers do this by themselves."""
        check_limit(limit, MAX_CLAIM_LIMIT)
        return self._perform("rescue", limit, lambda: self.driver.rescue(limit))

    # -- Looking and mending: side doors, `Unsupported` where the store has none -------------------

    def get(self, job_id: UUID | str) -> JobStatus | None:
        """The job, wherever it is in its life, or None."""
        door = self.driver
        if not isinstance(door, Lookup):
            raise self._lacking("lookup")
        identifier = check_id(job_id)
        stored = self._perform("get", 1, lambda: door.get(identifier))
        return None if stored is None else JobStatus.of(stored)

    def jobs(
        self,
        *,
        queue: str | None = None,
        state: State | None = None,
        kind: str | None = None,
        idempotency_key: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> list[JobStatus]:
        """A page of jobs, newest first; `cursor` is that of the last job of the page before."""
        door = self.driver
        if not isinstance(door, Lookup):
            raise self._lacking("lookup")
        check_limit(limit, MAX_CLAIM_LIMIT)
        if queue is not None:
            check_queues([queue])
        page = Page(queue, state, kind, idempotency_key, limit, cursor)
        return [JobStatus.of(stored) for stored in self._perform("jobs", limit, lambda: door.jobs(page))]

    def stats(self) -> list[QueueStats]:
        """Every queue that has jobs or is paused, in numbers."""
        door = self.driver
        if not isinstance(door, Statistics):
            raise self._lacking("stats")
        return self._perform("stats", 1, door.stats)

    def outbox_stats(self) -> OutboxStats | None:
        """What waits in the outbox in front of this store; None where there is none."""
        door = self.driver
        return (
            self._perform("outbox_stats", 1, door.outbox_stats) if isinstance(door, ThroughOutbox) else None
        )

    def diagnose(self, expected: Expectations = Expectations()) -> list[Ailment]:  # noqa: B008  # immutable
        """What is wrong with the store (`jobctl doctor`); nothing for a healthy one, or one that can't
        tell.
        """
        door = self.driver
        if not isinstance(door, Diagnosis):
            return []
        return self._perform("diagnose", 1, lambda: door.diagnose(expected))

    def clock(self) -> datetime | None:
        """The store's clock now, in UTC; None where it can't be read."""
        door = self.driver
        return self._perform("clock", 1, door.clock) if isinstance(door, Diagnosis) else None

    def cancel(self, job_id: UUID | str) -> State | None:
        """Ready to cancelled. The job's state afterwards: `State.CANCELLED` where it worked. None for an
        unknown id.
        """
        return self.cancel_many([job_id])[0]

    def cancel_many(self, job_ids: Sequence[UUID | str]) -> list[State | None]:
        """`cancel` for each."""
        door = self.driver
        if not isinstance(door, Cancellation):
            raise self._lacking("cancel")
        return self._by_id("cancel", job_ids, door.cancel)

    def stop(self, job_id: UUID | str) -> State | None:
        """Ask the worker that runs the job to stop it: its handler's context is cancelled within a second or
        two, and when the handler heeds that, the job is dead. The job's state now: `State.RUNNING` where it
        was asked for. None for an unknown id.
        """
        return self.stop_many([job_id])[0]

    def stop_many(self, job_ids: Sequence[UUID | str]) -> list[State | None]:
        """`stop` for each."""
        if not isinstance(self.driver, Notes):
            raise self._lacking("lookup" if not isinstance(self.driver, Lookup) else "notes")
        found = [self.get(job_id) for job_id in job_ids]
        running = {str(each.id): each.attempt for each in found if each and each.state is State.RUNNING}
        while running:
            read = self.read_notes([NOTE])
            text = read.values.get(NOTE)
            requests = StopRequests.read(text).with_these(running, read.now)
            if self.write_note(NOTE, requests.model_dump_json(), expected=text):
                break
        return [each.state if each else None for each in found]

    def requeue(self, job_id: UUID | str) -> State | None:
        """Dead or cancelled to ready, with its attempts to spend again. The job's state afterwards; None for
        an unknown id.
        """
        return self.requeue_many([job_id])[0]

    def requeue_many(self, job_ids: Sequence[UUID | str]) -> list[State | None]:
        """`requeue` for each."""
        door = self.driver
        if not isinstance(door, Requeue):
            raise self._lacking("requeue")
        return self._by_id("requeue", job_ids, door.requeue)

    def dead_jobs(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> list[JobStatus]:
        """A page of the dead jobs, newest first: `jobs`, and on a store that looks up nothing else too."""
        door = self.driver
        # An outbox looks up what waits in it, and the dead are behind it.
        if not isinstance(door, DeadLetters):
            return self.jobs(queue=queue, kind=kind, state=State.DEAD, limit=limit, cursor=cursor)
        check_limit(limit, MAX_CLAIM_LIMIT)
        if queue is not None:
            check_queues([queue])
        page = Page(queue, State.DEAD, kind, None, limit, cursor)
        return [JobStatus.of(stored) for stored in self._perform("dead", limit, lambda: door.dead(page))]

    def revive_many(self, job_ids: Sequence[UUID | str]) -> list[State | None]:
        """`requeue_many`, and on a store that can do so with its dead jobs only too; None for all others
        then.
        """
        door = self.driver
        if isinstance(door, Requeue) or not isinstance(door, DeadLetters):
            return self.requeue_many(job_ids)

        def revive(identifiers: Sequence[str]) -> list[State | None]:
            return [State.READY if revived else None for revived in door.revive(identifiers)]

        return self._by_id("revive", job_ids, revive)

    def prune(
        self,
        older_than: timedelta,
        *,
        states: Collection[State] = FINISHED_STATES,
        limit: int = MAX_CLAIM_LIMIT,
    ) -> int:
        """Forget at most `limit` finished jobs, and their keys, that finished longer than `older_than` ago.
        How many it were.
        """
        door = self.driver
        if not isinstance(door, Pruning):
            raise self._lacking("prune")
        check_limit(limit, MAX_CLAIM_LIMIT)
        check_delay("older_than", older_than)
        wrong = set(states) - FINISHED_STATES
        if wrong or not states:
            raise InvalidJob("states", f"must be among {', '.join(sorted(FINISHED_STATES))}")
        return self._perform("prune", limit, lambda: door.prune(older_than, frozenset(states), limit))

    def pause(self, queue: str) -> None:
        """Claims skip `queue` until `resume`. Jobs can still be registered, and running ones finish."""
        door = self.driver
        if not isinstance(door, Pausing):
            raise self._lacking("pause")
        (name,) = check_queues([queue])
        self._perform("pause", 1, lambda: door.pause(name))

    def resume(self, queue: str) -> None:
        """Undo `pause`."""
        door = self.driver
        if not isinstance(door, Pausing):
            raise self._lacking("pause")
        (name,) = check_queues([queue])
        self._perform("resume", 1, lambda: door.resume(name))

    def read_notes(self, names: Sequence[str]) -> NotesRead:
        """The notes of these names (small texts that outlive every process), and the store's clock."""
        door = self.driver
        if not isinstance(door, Notes):
            raise self._lacking("notes")
        checked = list(dict.fromkeys(check_note_name(name) for name in names))
        if not checked:
            raise InvalidJob("names", "must name at least one note")
        return self._perform("read_notes", len(checked), lambda: door.read_notes(checked))

    def write_note(self, name: str, text: str, *, expected: str | None) -> bool:
        """Write `text` if the note says `expected` now (None: if there is none); whether it did.

        When it raises `StoreUnavailable`, the note may have been written: read it again.
        """
        door = self.driver
        if not isinstance(door, Notes):
            raise self._lacking("notes")
        checked = check_note_name(name), check_note_text(text)
        return self._perform("write_note", 1, lambda: door.write_note(*checked, expected))

    def install(self, *, dry_run: bool = False) -> list[Step]:
        """Create or upgrade what the store needs (`jobctl init`). Idempotent. The steps that were, or would
        be, taken.
        """
        driver = self.driver
        if not isinstance(driver, Installation):
            return []
        return self._perform("install", 1, lambda: driver.install(dry_run=dry_run))

    def close(self) -> None:
        """Close the connections. Safe to call twice; the next verb opens new ones."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Backend({self.name!r})"

    # -- The mechanism -----------------------------------------------------------------------------

    def _perform(self, verb: str, count: int, operation: Callable[[], Result]) -> Result:
        """The one place through which every call to the store goes."""
        if not log.isEnabledFor(logging.DEBUG):
            return operation()
        started, outcome = time.perf_counter(), "ok"
        try:
            return operation()
        except JobContractError as error:
            outcome = type(error).__name__
            raise
        finally:
            seconds = time.perf_counter() - started
            log.debug(
                "%s on %s: %s in %.1f ms",
                verb,
                self.name,
                outcome,
                seconds * 1000,
                extra={
                    "verb": verb,
                    "backend": self.name,
                    "outcome": outcome,
                    "seconds": seconds,
                    "items": count,
                },
            )

    def _register(self, batch: Sequence[JobRecord]) -> list[Registration]:
        try:
            return self.driver.register(batch)
        except StoreUnavailable as first:
            # Once more, at once, on a connection that is not the one that broke: after a restart of the
            # server each pooled connection is stale, and registering the same ids again is safe. A store that
            # is down fails again, and that is the caller's to know.
            try:
                return self.driver.register(batch)
            except StoreUnavailable as error:
                error.nothing_written &= first.nothing_written
                raise

    def _settle(
        self, verb: str, leases: Sequence[Lease], operation: Callable[[Sequence[Lease]], list[Verdict]]
    ) -> list[Verdict]:
        return self._in_rounds(verb, leases, MAX_CLAIM_LIMIT, _job_id_of, operation, _lost)

    def _by_id(
        self,
        verb: str,
        job_ids: Sequence[UUID | str],
        operation: Callable[[Sequence[str]], list[State | None]],
    ) -> list[State | None]:
        identifiers = [check_id(job_id) for job_id in job_ids]
        return self._in_rounds(verb, identifiers, MAX_CLAIM_LIMIT, str, operation, lambda _, first: first)

    def _in_rounds(
        self,
        verb: str,
        items: Sequence[Item],
        size: int,
        job: Callable[[Item], str],
        operation: Callable[[Sequence[Item]], list[Result]],
        repeated: Callable[[Item, Result], Result],
    ) -> list[Result]:
        """`operation` on at most `size` items at a time, and never on two of one job: the same item again is
        answered by `repeated`, another one of the job (a stale claim and the current one) has a later turn.
        """

        def answers_to(turn: Sequence[Item]) -> list[Result]:
            results: list[Result] = []
            for batch in _chunks(turn, size):
                try:
                    results.extend(self._perform(verb, len(batch), partial(operation, batch)))
                except StoreUnavailable as error:
                    error.nothing_written &= not results
                    raise
            if len(results) != len(turn):
                raise StoreError(
                    f"the driver of {self.name!r} gave {len(results)} answers to {verb} of {len(turn)}"
                )
            return results

        if len(items) == 1 or len({job(item) for item in items}) == len(items):
            return answers_to(items)
        answers: dict[Item, Result] = {}
        waiting: list[Item] = list(dict.fromkeys(items))
        while waiting:
            turn: dict[str, Item] = {}
            for item in waiting:
                turn.setdefault(job(item), item)
            answers.update(zip(turn.values(), answers_to(list(turn.values())), strict=True))
            waiting = [item for item in waiting if item not in answers]
        seen: set[Item] = set()
        results: list[Result] = []
        for item in items:
            results.append(repeated(item, answers[item]) if item in seen else answers[item])
            seen.add(item)
        return results

    def _bury(self, failures: list[Failure]) -> None:
        """Claimed jobs that can't be decoded go to the dead. It must not cost their good neighbours."""
        for failure in failures:
            log.error(
                "job %s can't be decoded and goes to the dead jobs: %s",
                failure.lease.job_id,
                failure.error,
                extra={"job_id": failure.lease.job_id, "queue": failure.lease.queue},
            )
        try:
            self.fail_many(failures)
        except StoreError:
            log.exception("undecodable jobs could not be buried; their leases run out and they come again")

    def _told(self) -> str:
        """Which store it is, for people."""
        driver = self.driver
        name = driver.home() if isinstance(driver, Follows) else self.name
        return f"{self.capabilities.store} (backend {name!r})"

    def _lacking(self, feature: Feature) -> Unsupported:
        return Unsupported(f"{self._told()} has no {feature}; see `jobctl backends`")

    def _checked_records(self, jobs: Iterable[Registrable]) -> list[JobRecord]:
        """The jobs as records, all checked against the limits of the configuration and of the store."""
        most = self._max_input_ref_bytes
        records = [as_record(job, position) for position, job in enumerate(jobs)]
        for record in records:
            size = utf8_length(record.input_ref, most)
            if size > most:
                raise InvalidJob(
                    "input_ref",
                    f"has {size} bytes as JSON; at most {most} are allowed (max_input_ref_bytes): "
                    "pass a reference, not the document",
                )
        if records:
            try:
                check_supported(records, self.capabilities, self._told)
            except StoreUnavailable as error:
                error.nothing_written = True  # it was only asked what it can do
                raise
        return records


def _repeated_registration(record: JobRecord, first: Registration) -> Registration:
    del record  # the very same job, twice in one call
    return Registration(first.job_id, created=False, state=first.state, conflict=first.conflict)


def _lost(item: object, first: Verdict) -> Verdict:
    del item, first  # the first of the two used the claim up
    return Verdict(applied=False)


def _raise_when_lost(claim: Claim, verdict: Verdict) -> None:
    if not verdict.applied:
        raise LeaseLost(
            f"the lease on job {claim.job.id} (attempt {claim.attempt}) is lost: it ran out, "
            "was settled already, or the job was claimed again; nothing was changed"
        )


def _describe(error: BaseException) -> str:
    """`error` as "Type: text", also when its own __str__ raises."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"(its text can't be had: {type(broken).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _chunks(items: Sequence[Item], size: int) -> Iterable[Sequence[Item]]:
    if len(items) <= size:
        return [items] if items else []
    return (items[start : start + size] for start in range(0, len(items), size))

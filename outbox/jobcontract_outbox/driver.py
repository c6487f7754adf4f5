"""The driver that producers and workers get for a store with an outbox: it registers here, and does the
rest there.

A composition of the contract: it knows two drivers, and neither store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar, cast
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from jobcontract.contract import (
    Capabilities,
    ClaimedRecord,
    Deduplication,
    Driver,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    Scheduling,
    State,
    Transactional,
    Verdict,
)
from jobcontract.durations import format_duration
from jobcontract.errors import ConfigError, InvalidJob, StoreError, StoreUnavailable
from jobcontract.records import Undecodable, from_envelope
from jobcontract.side_doors import (
    OUTBOX_COUNTED_UP_TO,
    Ailment,
    Cancellation,
    CarriesCopies,
    DeadLetters,
    Diagnosis,
    Dialect,
    Expectations,
    HostsTables,
    Installation,
    Located,
    Lookup,
    Notes,
    NotesRead,
    OutboxStats,
    Page,
    Pausing,
    Pruning,
    QueueStats,
    Requeue,
    Statement,
    Statistics,
    Step,
    Steps,
    StoredJob,
    side_doors_of,
)
from jobcontract_outbox.copies import CopiesDoor
from jobcontract_outbox.instants import read_instant
from jobcontract_outbox.registering import Registering
from jobcontract_outbox.schema import Schema
from jobcontract_outbox.statements import Statements, drive, single
from jobcontract_outbox.status import read_status

Result = TypeVar("Result")

_RESOLUTION = timedelta(seconds=2)
"""How late a scheduled job may be published by an idle relay."""
_RECALLED_FOR = 30.0
"""Seconds for which the capabilities of a target that is away are believed before it is asked again."""
_PAGE, _PAGES = 1000, 10
_LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_capabilities: TypeAdapter[Capabilities] = TypeAdapter(Capabilities)


def open_outbox(target: Driver, host: Driver, target_name: str, host_name: str) -> OutboxDriver:
    """`target` behind an outbox in the database of `host`. Contacts nothing.

    Raises `ConfigError` when `host` can't hold one. Has the side doors that `target` has, two of its own, and
    the notes of `host`.
    """
    if not isinstance(host, HostsTables):
        raise ConfigError(
            f"backends.{target_name}.outbox: the store of {host_name!r} can't hold an outbox; "
            "name a PostgreSQL backend, or a SQLite one in a file"
        )
    doors = [door for protocol, door in _DOORS if isinstance(target, protocol)]
    if isinstance(host, Notes):
        doors.append(_NotesDoor)
    made = type("OutboxDriver", (*doors, OutboxDriver), {})
    return cast(OutboxDriver, made(target, host, target_name, host_name))


class OutboxDriver:
    """`Driver` with `Installation`, `JoinsTransactions`, `Cancellation`, `Lookup`, `ThroughOutbox` and
    `Diagnosis`.
    """

    def __init__(self, target: Driver, host: Driver, target_name: str, host_name: str) -> None:
        self.target = target
        """The store that workers use."""
        self.target_name = target_name
        self.host = host
        """The store that registrations go to."""
        self._tables = cast(HostsTables, host)  # `open_outbox` has looked
        self._statements = Statements(self._tables)
        self.schema = Schema(self._tables, host_name, self._statements)
        self._registering = Registering(self._tables, host_name, target_name, self._statements)
        self._checked = False
        self._recalled: tuple[Capabilities, float] | None = None

    # -- Registering: here -----------------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect:
        """As `JoinsTransactions.dialect`: the outbox's database."""
        return self._tables.dialect

    @property
    def capabilities(self) -> Capabilities:
        """Those of the target, with what the outbox adds. While the target is away: what it was when it was
        seen last, for registering must not depend on it.
        """
        if self._recalled is not None and time.monotonic() < self._recalled[1]:
            return self._added_to(self._recalled[0])
        try:
            found = self.target.capabilities
        except StoreUnavailable:
            recalled = self._recall()
            if recalled is None:
                raise
            self._recalled = recalled, time.monotonic() + _RECALLED_FOR
            return self._added_to(recalled)
        self._recalled = None
        return self._added_to(found)

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        """As `Driver.register`, into the outbox: it does not contact the target."""
        with self._tables.transaction() as transaction:
            if not self._checked:
                self.schema.check(transaction)
                self._checked = True
            return drive(transaction, self._registering.steps(records))

    def joining_steps(self, client: object) -> Steps[None]:
        """As `MeetsCallers.joining_steps`, of the outbox's database."""
        return self._tables.joining_steps(client)

    def register_steps(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        """As `JoinsTransactions.register_steps`."""
        return (yield from self._registering.steps(records))

    def install(self, *, dry_run: bool = False) -> list[Step]:
        """As `Installation.install`: the outbox's database, the outbox, the target."""
        steps = self.schema.install(dry_run=dry_run)
        if isinstance(self.target, Installation):
            steps += self.target.install(dry_run=dry_run)
        if not dry_run:
            self.remember()
        return steps

    def remember(self) -> None:
        """Keep what the target can do, for the time when it is away. Contacts both."""
        document = _capabilities.dump_json(self.target.capabilities).decode()
        with self._tables.transaction() as transaction:
            transaction.run(self._statements("remember_target", self.target_name, document))

    # -- Jobs that wait here ---------------------------------------------------------------------------

    def cancel(self, job_ids: Sequence[str]) -> list[State | None]:
        """As `Cancellation.cancel`: of a job that waits here, and else of the target, if it can.

        A job that was published to a target that can't cancel is `State.MOVED`.
        """
        with self._tables.transaction() as transaction:
            if self.dialect == "postgresql":
                transaction.run(self._statements("cancel", self.target_name, list(job_ids)))
            else:
                taken = transaction.run(
                    self._statements("cancel", self.target_name, json.dumps(list(job_ids)))
                )
                if taken:
                    ids = json.dumps([job_id for (job_id,) in taken])
                    transaction.run(self._statements("mark_cancelled", ids))
            states = {job_id: State(state) for job_id, state in transaction.run(self._states(job_ids))}
        elsewhere = [each for each in job_ids if states.get(each) not in (State.CANCELLED, State.READY)]
        if elsewhere and isinstance(self.target, Cancellation):
            asked = zip(elsewhere, self.target.cancel(elsewhere), strict=True)
            states |= {job_id: state for job_id, state in asked if state is not None}
        return [states.get(each) for each in job_ids]

    def get(self, job_id: str) -> StoredJob | None:
        """As `Lookup.get`: of a job that waits here, and else of the target, if it can."""
        with self._tables.transaction() as transaction:
            row = single(transaction, self._statements("get", self.target_name, job_id))
        if row is not None:
            return self._stored(job_id, *row)
        return self.target.get(job_id) if isinstance(self.target, Lookup) else None

    def jobs(self, page: Page) -> list[StoredJob]:
        """As `Lookup.jobs`: those that wait here, and those of the target, if it can list them."""
        arrived = self.target.jobs(page) if isinstance(self.target, Lookup) else []
        if any(each.cursor != each.record.id for each in arrived):
            return arrived  # its pages have an order of their own, and ours don't fit in between
        found = {each.record.id: each for each in (*self._waiting(page), *arrived)}
        return [found[job_id] for job_id in sorted(found, reverse=True)][: page.limit]

    def _waiting(self, page: Page) -> list[StoredJob]:
        """A filter by kind or key looks at no more than the newest 10,000."""
        if page.state not in (None, State.READY):
            return []
        found: list[StoredJob] = []
        cursor = _cursor(page.cursor)
        for _ in range(_PAGES):
            with self._tables.transaction() as transaction:
                rows = transaction.run(self._statements("page", self.target_name, cursor, _PAGE))
            stored = [self._stored(*row) for row in rows]
            found += [each for each in stored if _fits(each.record, page)]
            if len(rows) < _PAGE or len(found) >= page.limit:
                break
            cursor = stored[-1].record.id
        return found[: page.limit]

    # -- Looking after it ------------------------------------------------------------------------------

    def outbox_stats(self) -> OutboxStats:
        """As `ThroughOutbox.outbox_stats`."""
        return read_status(self._tables, self.schema, self._statements, self.target_name)

    def diagnose(self, expected: Expectations) -> list[Ailment]:
        """As `Diagnosis.diagnose`: of the outbox, and of the target. The outbox's database is a backend of
        its own, and has its own diagnosis.
        """
        found = self._ailments(self.outbox_stats(), expected.patience)
        if isinstance(self.target, Diagnosis):
            try:
                found += self.target.diagnose(expected)
            except StoreUnavailable as error:  # what was found here is the worse for it
                found.append(Ailment("unreachable", str(error), "start it, or mend the way to it"))
        return found

    def clock(self) -> datetime | None:
        """As `Diagnosis.clock`, of the target."""
        try:
            return self.target.clock() if isinstance(self.target, Diagnosis) else None
        except StoreError:  # the diagnosis says so
            return None

    def _ailments(self, stats: OutboxStats, patience: timedelta) -> list[Ailment]:
        found: list[Ailment] = []
        if stats.oldest is not None and stats.oldest > patience:
            found.append(
                Ailment(
                    "outbox",
                    f"{_many(stats.pending)} jobs wait in the outbox, and the oldest has been due for "
                    f"{format_duration(timedelta(seconds=round(stats.oldest.total_seconds())))}",
                    f"run `jobctl relay --target {self.target_name}`; where one runs, its log says what "
                    f"holds it up",
                )
            )
        if stats.parked:
            found.append(
                Ailment(
                    "parked",
                    f"{_many(stats.parked)} jobs are parked in the outbox: their target refused them again "
                    f"and again",
                    f"`jobctl relay parked list --target {self.target_name}`, then retry or drop them",
                )
            )
        return found

    # -- All else: there -------------------------------------------------------------------------------

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        """As `Driver.claim`, of the target."""
        return self.target.claim(queues, limit, lease)

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        """As `Driver.complete`, of the target."""
        return self.target.complete(leases)

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        """As `Driver.fail`, of the target."""
        return self.target.fail(failures)

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        """As `Driver.extend`, of the target."""
        return self.target.extend(leases, lease)

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        """As `Driver.release`, of the target."""
        return self.target.release(leases, delay)

    def rescue(self, limit: int) -> Rescued:
        """As `Driver.rescue`, of the target."""
        return self.target.rescue(limit)

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """As `Driver.wait`, of the target."""
        return self.target.wait(queues, timeout)

    def close(self) -> None:
        """Closes both drivers."""
        try:
            self.target.close()
        finally:
            self.host.close()

    # -- The mechanism ---------------------------------------------------------------------------------

    def _added_to(self, target: Capabilities) -> Capabilities:
        keeps_keys = target.deduplication is Deduplication.RETENTION
        return replace(
            target,
            transactional=Transactional.OUTBOX,
            deduplication=Deduplication.RETENTION if keeps_keys else Deduplication.OUTBOX,
            scheduling=Scheduling(_RESOLUTION),
            side_doors=side_doors_of(self),
            notes=(
                *target.notes,
                "Jobs are registered in an outbox, and reach this store when `jobctl relay` runs; until then "
                "they can be cancelled.",
            ),
        )

    def _recall(self) -> Capabilities | None:
        with self._tables.transaction() as transaction:
            self.schema.check(transaction)
            row = single(transaction, self._statements("recall_target", self.target_name))
        try:
            return None if row is None else _capabilities.validate_json(row[0])
        except ValidationError:  # of another version
            return None

    def _states(self, job_ids: Sequence[str]) -> Statement:
        ids: object = list(job_ids) if self.dialect == "postgresql" else json.dumps(list(job_ids))
        return self._statements("states", self.target_name, ids)

    def _stored(
        self, job_id: str, envelope: str, available_at: object, created_at: object, last_error: str | None
    ) -> StoredJob:
        try:
            record = from_envelope(envelope)._replace(run_at=read_instant(available_at))
        except Undecodable as error:
            record = JobRecord(job_id, "", "", 0, None, 1, None, None, str(error), None)
        created: datetime = read_instant(created_at)
        return StoredJob(record, State.READY, 0, created, None, None, last_error, job_id)


def _many(count: int) -> str:
    return f"more than {OUTBOX_COUNTED_UP_TO:,}" if count > OUTBOX_COUNTED_UP_TO else f"{count:,}"


def _cursor(cursor: str | None) -> str:
    try:
        return str(UUID(cursor or _LAST))
    except ValueError:
        raise InvalidJob("cursor", "is not the cursor of a job") from None


def _fits(record: JobRecord, page: Page) -> bool:
    return (
        page.queue in (None, record.queue)
        and page.kind in (None, record.kind)
        and page.idempotency_key in (None, record.idempotency_key)
    )


class _StatisticsDoor:
    target: Statistics

    def stats(self) -> list[QueueStats]:
        """As `Statistics.stats`, of the target."""
        return self.target.stats()


class _RequeueDoor:
    target: Requeue

    def requeue(self, job_ids: Sequence[str]) -> list[State | None]:
        """As `Requeue.requeue`, of the target."""
        return self.target.requeue(job_ids)


class _PruningDoor:
    target: Pruning

    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int:
        """As `Pruning.prune`, of the target."""
        return self.target.prune(older_than, states, limit)


class _PausingDoor:
    target: Pausing

    def pause(self, queue: str) -> None:
        """As `Pausing.pause`, of the target."""
        self.target.pause(queue)

    def resume(self, queue: str) -> None:
        """As `Pausing.resume`, of the target."""
        self.target.resume(queue)


class _LocatedDoor:
    target: Located

    @property
    def location(self) -> str:
        """As `Located.location`, of the target."""
        return self.target.location


class _DeadLettersDoor:
    target: DeadLetters

    def dead(self, page: Page) -> list[StoredJob]:
        """As `DeadLetters.dead`, of the target."""
        return self.target.dead(page)

    def revive(self, job_ids: Sequence[str]) -> list[bool]:
        """As `DeadLetters.revive`, of the target."""
        return self.target.revive(job_ids)


class _NotesDoor:
    host: Notes

    def read_notes(self, names: Sequence[str]) -> NotesRead:
        """As `Notes.read_notes`, beside the outbox: where the keys are."""
        return self.host.read_notes(names)

    def write_note(self, name: str, text: str, expected: str | None) -> bool:
        """As `Notes.write_note`, likewise."""
        return self.host.write_note(name, text, expected)


_DOORS: tuple[tuple[type, type], ...] = (
    (Statistics, _StatisticsDoor),
    (Requeue, _RequeueDoor),
    (Pruning, _PruningDoor),
    (Pausing, _PausingDoor),
    (DeadLetters, _DeadLettersDoor),
    (Located, _LocatedDoor),
    (CarriesCopies, CopiesDoor),
)

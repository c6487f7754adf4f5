"""Acme: a driver for jobcontract, written by a stranger. Jobs live in the memory of one process.

``acme://NAME`` is the store called NAME; who opens the same name shares it. It has keys, a schedule and
priorities, can be paused and cancels jobs; it has no lookup, no statistics, and forgets nothing.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

from jobcontract.config import StoreOptions, StoreSettings
from jobcontract.contract import (
    LOST,
    Capabilities,
    ClaimedRecord,
    Deduplication,
    Driver,
    Durability,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    Scheduling,
    State,
    TimedLease,
    Transactional,
    Verdict,
)
from jobcontract.errors import ConfigError
from jobcontract.side_doors import side_doors_of

Item = TypeVar("Item")


@dataclass(slots=True)
class StoredJob:
    """One job, wherever it is in its life."""

    record: JobRecord
    run_at: datetime
    state: State = State.READY
    attempt: int = 0
    refunded: int = 0
    lease: Lease | None = None

    @property
    def order(self) -> tuple[int, datetime, str]:
        return (-self.record.priority, self.run_at, self.record.id)

    @property
    def is_spent(self) -> bool:
        return self.attempt - self.refunded >= self.record.max_attempts

    def leave(self, state: State, run_at: datetime | None = None) -> Verdict:
        self.state, self.lease = state, None
        self.run_at = run_at or self.run_at
        return Verdict(applied=True, state=state, at=run_at)


@dataclass(slots=True)
class Store:
    """What all clients of one name share. `changed` is its lock, too."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    jobs: dict[str, StoredJob] = field(default_factory=dict[str, StoredJob])
    keys: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    paused: set[str] = field(default_factory=set[str])


_stores: dict[str, Store] = {}


class AcmeDriver:
    """The verbs of `jobcontract.contract.Driver`, and two of its side doors."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            store="Acme 1.0",
            deduplication=Deduplication.RETENTION,
            lease=TimedLease(shortest=timedelta(milliseconds=1), longest=timedelta(days=1)),
            scheduling=Scheduling(resolution=timedelta(microseconds=1)),
            priority_levels=10,
            durability=Durability.MEMORY,
            transactional=Transactional.NONE,
            max_register_batch=1000,
            max_input_ref_bytes=1024 * 1024,
            side_doors=side_doors_of(self),
        )

    # Producing ----------------------------------------------------------------------------------------------

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        with self._store.changed:
            answers = [self._register(record) for record in records]
            self._store.changed.notify_all()
        return answers

    def _register(self, record: JobRecord) -> Registration:
        key = None if record.idempotency_key is None else (record.queue, record.idempotency_key)
        holder_id = record.id if key is None else self._store.keys.get(key, record.id)
        holder = self._store.jobs.get(record.id) or self._store.jobs.get(holder_id)
        if holder is not None:
            differs = holder.record.fingerprint != record.fingerprint
            return Registration(UUID(holder.record.id), created=False, state=holder.state, conflict=differs)
        if key is not None:
            self._store.keys[key] = record.id
        self._store.jobs[record.id] = StoredJob(record, record.run_at or _now())
        return Registration(UUID(record.id), created=True)

    # Running ------------------------------------------------------------------------------------------------

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        with self._store.changed:
            return [self._claim(job, lease) for job in sorted(self._due(queues), key=_by_order)[:limit]]

    def _claim(self, job: StoredJob, length: timedelta) -> ClaimedRecord:
        job.state, job.attempt = State.RUNNING, job.attempt + 1
        job.lease = Lease(
            job.record.id, job.record.queue, secrets.token_hex(16), job.attempt, _now() + length, job.refunded
        )
        return ClaimedRecord(job.lease, job.record._replace(run_at=job.run_at))

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        return self._settle(leases, lambda lease: lease, lambda job, _: job.leave(State.DONE))

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        def settle(job: StoredJob, failure: Failure) -> Verdict:
            if failure.permanent or job.is_spent:
                return job.leave(State.DEAD)
            return job.leave(State.READY, _now() + failure.retry_in)

        return self._settle(failures, lambda failure: failure.lease, settle)

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        def settle(job: StoredJob, held: Lease) -> Verdict:
            job.lease = held._replace(expires_at=_now() + lease)
            return Verdict(applied=True, state=State.RUNNING, at=job.lease.expires_at)

        return self._settle(leases, lambda held: held, settle)

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        def settle(job: StoredJob, _: Lease) -> Verdict:
            job.refunded += 1
            return job.leave(State.READY, _now() + delay)

        return self._settle(leases, lambda lease: lease, settle)

    def _settle(
        self,
        items: Sequence[Item],
        lease_of: Callable[[Item], Lease],
        settle: Callable[[StoredJob, Item], Verdict],
    ) -> list[Verdict]:
        with self._store.changed:
            verdicts = [
                LOST if (job := self._held(lease_of(item))) is None else settle(job, item) for item in items
            ]
            self._store.changed.notify_all()
        return verdicts

    def _held(self, lease: Lease) -> StoredJob | None:
        """The guard: the job, if the token is its current one and the lease unexpired."""
        job = self._store.jobs.get(lease.job_id)
        if (
            job is None
            or job.lease is None
            or job.lease.token != lease.token
            or job.lease.expires_at <= _now()
        ):
            return None
        return job

    def rescue(self, limit: int) -> Rescued:
        ready = dead = 0
        with self._store.changed:
            for job in list(self._store.jobs.values()):
                if ready + dead == limit:
                    break
                if job.lease is None or job.lease.expires_at > _now():
                    continue
                if job.is_spent:
                    job.leave(State.DEAD)
                    dead += 1
                else:
                    job.leave(State.READY, _now())
                    ready += 1
            self._store.changed.notify_all()
        return Rescued(ready, dead)

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        deadline = time.monotonic() + timeout.total_seconds()
        with self._store.changed:
            while not self._closed:
                left = deadline - time.monotonic()
                if self._due(queues):
                    return True
                if left <= 0:
                    return False
                self._store.changed.wait(min(left, 0.1))  # a job may fall due while nothing changes
        return False

    def close(self) -> None:
        with self._store.changed:
            self._closed = True
            self._store.changed.notify_all()

    def _due(self, queues: Sequence[str]) -> list[StoredJob]:
        now = _now()
        return [
            job
            for job in self._store.jobs.values()
            if job.state is State.READY
            and job.run_at <= now
            and job.record.queue in queues
            and job.record.queue not in self._store.paused
        ]

    # Side doors ---------------------------------------------------------------------------------------------

    def cancel(self, job_ids: Sequence[str]) -> list[State | None]:
        with self._store.changed:
            found = [self._store.jobs.get(job_id) for job_id in job_ids]
            for job in found:
                if job is not None and job.state is State.READY:
                    job.leave(State.CANCELLED)
            return [None if job is None else job.state for job in found]

    def pause(self, queue: str) -> None:
        with self._store.changed:
            self._store.paused.add(queue)

    def resume(self, queue: str) -> None:
        with self._store.changed:
            self._store.paused.discard(queue)
            self._store.changed.notify_all()


class FaultyDriver(AcmeDriver):
    """Settles by the job alone: what was wrong with most queues before leases had tokens."""

    def _held(self, lease: Lease) -> StoredJob | None:
        job = self._store.jobs.get(lease.job_id)
        return job if job is not None and job.state is State.RUNNING else None


def open_driver(settings: StoreSettings) -> Driver:
    """The entry point for ``acme://`` URLs. Opens nothing yet."""
    return AcmeDriver(_store(settings))


def open_faulty_driver(settings: StoreSettings) -> Driver:
    """The entry point for ``acme-faulty://`` URLs."""
    return FaultyDriver(_store(settings))


def _store(settings: StoreSettings) -> Store:
    settings.read_options(StoreOptions)  # there are none: whatever is set is an error
    if len(settings.url.hosts) != 1 or settings.url.path:
        raise ConfigError(f"backend {settings.name!r}: an acme URL is acme://NAME")
    return _stores.setdefault(str(settings.url.hosts[0]), Store())


def _now() -> datetime:
    return datetime.now(UTC)


def _by_order(job: StoredJob) -> tuple[int, datetime, str]:
    return job.order

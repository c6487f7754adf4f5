"""The contract as a small program: what a store answers, call after call, with nobody else there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from jobcontract.contract import Failure, Job, Lease, State


@dataclass(slots=True)
class ModelJob:
    """One job, as far as the contract determines it."""

    job: Job
    state: State = State.READY
    future: bool = False
    """Ready, but not due within the test."""
    attempt: int = 0
    refunded: int = 0
    token: str | None = None
    """The current token while it is running."""
    expired: bool = False
    failed_with: str | None = None
    """The last error, where the contract says its text: not after an expiry."""

    @property
    def id(self) -> str:
        return str(self.job.id)

    @property
    def spent(self) -> int:
        return self.attempt - self.refunded

    def holds(self, lease: Lease) -> bool:
        """The guard: the token is current and the lease unexpired."""
        return self.state is State.RUNNING and self.token == lease.token and not self.expired

    def leave(self, state: State, *, future: bool = False) -> State:
        """Out of running, into `state`."""
        self.state, self.future, self.token, self.expired = state, future, None, False
        return state


@dataclass(slots=True)
class Model:
    """All jobs of one store, and its paused queues."""

    jobs: dict[str, ModelJob] = field(default_factory=dict[str, ModelJob])
    paused: set[str] = field(default_factory=set[str])
    deduplicates: bool = True

    def register(self, job: Job, *, future: bool) -> tuple[ModelJob, bool, bool]:
        """The job that holds the id or the key, whether it was created, and whether it conflicts."""
        known = self.jobs.get(str(job.id))
        if known is not None:
            return known, False, False
        if job.idempotency_key is not None:
            for holder in self.jobs.values():
                if (holder.job.queue, holder.job.idempotency_key) == (job.queue, job.idempotency_key):
                    differs = (holder.job.kind, holder.job.input_ref) != (job.kind, job.input_ref)
                    return holder, False, differs
        made = self.jobs[str(job.id)] = ModelJob(job, future=future)
        return made, True, False

    def claimable(self, queues: Sequence[str]) -> list[ModelJob]:
        """The jobs that a claim may take."""
        return [
            each
            for each in self.jobs.values()
            if each.state is State.READY
            and not each.future
            and each.job.queue in queues
            and each.job.queue not in self.paused
        ]

    def claim(self, lease: Lease) -> None:
        """The store gave out `lease`."""
        claimed = self.jobs[lease.job_id]
        claimed.state, claimed.token = State.RUNNING, lease.token
        claimed.attempt += 1

    def complete(self, lease: Lease) -> State | None:
        """The state afterwards; None when the lease is lost."""
        found = self.jobs.get(lease.job_id)
        return found.leave(State.DONE) if found is not None and found.holds(lease) else None

    def fail(self, failure: Failure) -> State | None:
        found = self.jobs.get(failure.lease.job_id)
        if found is None or not found.holds(failure.lease):
            return None
        found.failed_with = failure.error
        if failure.permanent or found.spent >= found.job.max_attempts:
            return found.leave(State.DEAD)
        return found.leave(State.READY, future=failure.retry_in > timedelta())

    def release(self, lease: Lease, delay: timedelta) -> State | None:
        found = self.jobs.get(lease.job_id)
        if found is None or not found.holds(lease):
            return None
        found.refunded += 1
        return found.leave(State.READY, future=delay > timedelta())

    def extend(self, lease: Lease) -> bool:
        found = self.jobs.get(lease.job_id)
        return found is not None and found.holds(lease)

    def rescue(self) -> tuple[int, int]:
        """How many went back to ready, and how many died."""
        ready = dead = 0
        for each in self.jobs.values():
            each.failed_with = None if each.expired else each.failed_with
            if each.expired and each.spent < each.job.max_attempts:
                each.leave(State.READY)
                ready += 1
            elif each.expired:
                each.leave(State.DEAD)
                dead += 1
        return ready, dead

    def cancel(self, job_id: str) -> State | None:
        found = self.jobs.get(job_id)
        if found is not None and found.state is State.READY:
            found.leave(State.CANCELLED)
        return None if found is None else found.state

    def requeue(self, job_id: str) -> State | None:
        found = self.jobs.get(job_id)
        if found is None:
            return None
        if found.state in (State.DEAD, State.CANCELLED):
            found.refunded = found.attempt
            found.failed_with = None
            found.leave(State.READY)
        elif found.state is State.READY:
            found.future = False
        return found.state

    def prune(self, states: set[State]) -> int:
        forgotten = [each.id for each in self.jobs.values() if each.state in states]
        for identifier in forgotten:
            del self.jobs[identifier]
        return len(forgotten)

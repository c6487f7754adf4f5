"""Run what is due, here and now: a worker without threads, leases and waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from jobcontract.backend import Backend
from jobcontract.context import JobContext
from jobcontract.contract import Claim, Failure, Job, State
from jobcontract.errors import ConfigError
from jobcontract.execute import Completed, Failed, Outcome, execute, execute_async
from jobcontract.handlers import Handler, Handlers

_LEASE = timedelta(hours=1)


@dataclass(slots=True)
class Drained:
    """What came of the jobs that `drain` ran, in their order."""

    jobs: list[Job] = field(default_factory=list[Job])
    """One entry for each run."""
    errors: list[str] = field(default_factory=list[str])
    """The errors of the runs that failed, as they are kept with the jobs."""
    completed: int = 0
    failed: int = 0
    """Attempts that failed, those of the dead included."""
    dead: int = 0
    released: int = 0
    """Runs that ended with `Snooze`."""


def drain(
    backend: Backend,
    handlers: Handlers,
    *,
    queues: Sequence[str] | None = None,
    scheduled: bool = False,
    most: int = 1000,
) -> Drained:
    """Run all due jobs of `queues` (None: of all), and those that they register, one after the other.

    Handlers run in this thread, async ones in an event loop of their own; limits and timeouts do not hold.
    With `scheduled` jobs that are due later, retries among them, are due now. Raises `ConfigError` for a job
    of a kind that has no handler, and after `most` runs.
    """
    drained = Drained()
    while claims := _claim(backend, queues, scheduled=scheduled):
        (claim,) = claims
        handler = handlers.get(claim.job.kind)
        if handler is None or len(drained.jobs) >= most:
            backend.release(claims)
            if handler is None:
                known = ", ".join(handlers.kinds) or "nothing"
                raise ConfigError(f"no handler for kind {claim.job.kind!r}: these handle {known}")
            raise ConfigError(f"there are jobs left after {most} runs: does each of them make another one?")
        drained.jobs.append(claim.job)
        _settle(backend, claim, _run(claim, handler), drained)
    return drained


def _claim(backend: Backend, queues: Sequence[str] | None, *, scheduled: bool) -> list[Claim]:
    names = list(queues) if queues is not None else [each.queue for each in backend.stats()]
    if not names:
        return []
    found = backend.claim(queues=names, limit=1, lease=_LEASE)
    if found or not scheduled:
        return found
    waiting = [each.id for each in backend.jobs(state=State.READY, limit=1000) if each.queue in names]
    if not waiting:
        return []
    backend.requeue_many(waiting)
    return backend.claim(queues=names, limit=1, lease=_LEASE)


def _run(claim: Claim, handler: Handler) -> Outcome:
    limits = (claim.job.max_attempts, handler.max_attempts or claim.job.max_attempts)
    context = JobContext(claim, max_attempts=min(limits))
    if handler.is_async:
        return asyncio.run(execute_async(claim, handler, context))
    return execute(claim, handler, context)


def _settle(backend: Backend, claim: Claim, outcome: Outcome, drained: Drained) -> None:
    match outcome:
        case Completed():
            backend.complete(claim)
            drained.completed += 1
        case Failed():
            failure = Failure(claim.lease, outcome.error, outcome.retry_in, outcome.permanent)
            (verdict,) = backend.fail_many([failure])
            drained.failed += 1
            drained.dead += verdict.state is State.DEAD
            drained.errors.append(outcome.error)
        case _:
            backend.release([claim], delay=outcome.delay)
            drained.released += 1

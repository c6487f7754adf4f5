"""One look at a store in numbers: its queues, and the outbox in front of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from jobcontract.backend import Backend
from jobcontract.side_doors import OutboxStats, QueueStats, Statistics, ThroughOutbox


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen."""

    queues: list[QueueStats] | None
    """By name; None where the store does not count jobs."""
    outbox: OutboxStats | None
    """None where there is no outbox."""


def observe(backend: Backend) -> Observation:
    """Look at `backend` once. Raises what the store raises; `Unsupported` when there is nothing to see."""
    outbox = backend.outbox_stats()
    if isinstance(backend.driver, ThroughOutbox) and not isinstance(backend.driver, Statistics):
        return Observation(None, outbox)
    return Observation(backend.stats(), outbox)


class Rates:
    """How many jobs per second each queue completes: as its store says, or from two looks."""

    def __init__(self) -> None:
        self._done: dict[str, int] = {}
        self._at = 0.0

    def of(self, seen: Observation) -> dict[str, float]:
        """By queue; one whose store only counts is missing at the first look. Call it once per look."""
        queues = seen.queues or []
        now = time.monotonic()
        done = {each.queue: each.done for each in queues if each.done is not None}
        # What is pruned meanwhile is not work undone.
        rates = {
            name: max(0, done[name] - self._done[name]) / (now - self._at)
            for name in done.keys() & self._done.keys()
        }
        self._done, self._at = done, now
        return rates | {
            each.queue: each.done_per_second for each in queues if each.done_per_second is not None
        }

    def forget(self) -> None:
        """The last look is too long ago, or failed."""
        self._done = {}

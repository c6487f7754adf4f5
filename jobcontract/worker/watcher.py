"""The watcher: keeps the time of what is held. It never talks to the store, so that no store can delay it."""

from __future__ import annotations

import logging
import time

from jobcontract.context import LEASE_LOST, TIMED_OUT
from jobcontract.durations import format_duration
from jobcontract.execute import timed_out
from jobcontract.handlers import Handlers
from jobcontract.worker.buffer import Buffer
from jobcontract.worker.hold import Hold, Holdings
from jobcontract.worker.settle import NOT_STARTED, Settler

log = logging.getLogger("jobcontract.worker")

LONGEST_IN_BUFFER = 1.0
"""Seconds after which a claimed job that no hand has started is given back, for an idle worker elsewhere."""
_TICK = 0.25


class Watcher:
    """Ends runs that take too long, stops those whose lease ran out, and gives back what nobody starts."""

    def __init__(
        self, handlers: Handlers, holdings: Holdings, buffer: Buffer, settler: Settler, shortest_lease: float
    ) -> None:
        self._holdings = holdings
        self._buffer = buffer
        self._settler = settler
        timeouts = [one.timeout.total_seconds() for one in handlers if one.timeout is not None]
        self._tick = max(0.005, min([_TICK, shortest_lease / 20, *(timeout / 20 for timeout in timeouts)]))

    def turn(self) -> float:
        """Look once."""
        now = time.monotonic()
        for hold in self._holdings.all():
            if hold.started_at is not None and hold.finished_at is None:
                self._look_at(hold, hold.started_at, now)
        for hold in self._buffer.withdraw(now - LONGEST_IN_BUFFER):
            self._settler.put(hold, NOT_STARTED)
        return self._tick

    def _look_at(self, hold: Hold, started_at: float, now: float) -> None:
        timeout = hold.handler.timeout
        if timeout is not None and now - started_at >= timeout.total_seconds():
            self._settler.put(hold, timed_out(hold.claim, hold.handler))
            hold.cancel(TIMED_OUT)
            self._say(
                hold,
                f"did not return within {format_duration(timeout)}",
                keeps_slot=not hold.handler.is_async,
            )
        elif now >= hold.deadline and not hold.context.cancelled:
            # No renewal got through in time. Whether the store gave the job away is not known, but it may
            # have.
            hold.cancel(LEASE_LOST)
            self._say(
                hold, "could not be renewed within its lease and may run elsewhere by now", keeps_slot=True
            )

    def _say(self, hold: Hold, what: str, *, keeps_slot: bool) -> None:
        log.warning(
            "job %s (%s), attempt %d, %s%s",
            hold.claim.job.id,
            hold.claim.job.kind,
            hold.claim.attempt,
            what,
            "; its slot stays taken until it returns" if keeps_slot else "",
            extra={
                "job_id": str(hold.claim.job.id),
                "kind": hold.claim.job.kind,
                "queue": hold.claim.job.queue,
                "attempt": hold.claim.attempt,
            },
        )

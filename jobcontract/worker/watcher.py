"""The watcher: keeps the time of what is held. It never talks to the store, so that no store can delay it."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from jobcontract.context import LEASE_LOST, TIMED_OUT
from jobcontract.durations import format_duration
from jobcontract.execute import timed_out
from jobcontract.handlers import Handlers
from jobcontract.worker.buffer import Buffer
from jobcontract.worker.hold import MOST_IDS, Hold, Holdings, describe
from jobcontract.worker.limits import SLOT_LOST
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
        lapsed: list[Hold] = []
        for hold in self._holdings.all():
            if hold.started_at is None or hold.finished_at is not None:
                continue
            timeout = hold.handler.timeout
            if timeout is not None and now - hold.started_at >= timeout.total_seconds():
                self._time_out(hold, timeout)
            elif now >= hold.deadline and not hold.context.cancelled:
                lapsed.append(hold)
            elif hold.slot_until is not None and now >= hold.slot_until:
                hold.cancel(SLOT_LOST)
        if lapsed:
            self._stop(lapsed)
        for hold in self._buffer.withdraw(now - LONGEST_IN_BUFFER):
            self._settler.put(hold, NOT_STARTED)
        return self._tick

    def _time_out(self, hold: Hold, timeout: timedelta) -> None:
        self._settler.put(hold, timed_out(hold.claim, hold.handler))
        hold.cancel(TIMED_OUT)
        log.warning(
            "job %s (%s), attempt %d, did not return within %s%s",
            hold.claim.job.id,
            hold.claim.job.kind,
            hold.claim.attempt,
            format_duration(timeout),
            "" if hold.handler.is_async else "; its slot stays taken until it does",
            extra=describe(hold.claim),
        )

    def _stop(self, lapsed: list[Hold]) -> None:
        """No renewal got through in time. The store may have given the jobs away, or not."""
        for hold in lapsed:
            hold.cancel(LEASE_LOST)
        log.warning(
            "the leases of %d running jobs could not be renewed in time, among them that of job %s; "
            "they may run elsewhere by now, and are told to stop",
            len(lapsed),
            lapsed[0].claim.job.id,
            extra={"job_ids": [str(hold.claim.job.id) for hold in lapsed[:MOST_IDS]]},
        )

"""The renewer: leases are renewed at a third of their length, in batches, off the handlers' threads."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from datetime import timedelta

from jobcontract.backend import Backend
from jobcontract.backoff import Backoff
from jobcontract.context import LEASE_LOST
from jobcontract.contract import MAX_CLAIM_LIMIT, Claim, TimedLease, Verdict
from jobcontract.errors import LeaseLost
from jobcontract.worker.hold import Hold, Holdings, describe

log = logging.getLogger("jobcontract.worker")


class Renewer:
    """Renews what is held, running or not yet started or waiting to be settled.

    Safe in threads, and meant to be taken turns with by two: when a call hangs, or has to open a connection
    to a store that became slow, the other one goes on, and tries the same leases again after a sixth of their
    length. Renewing twice does no harm.
    """

    def __init__(self, backend: Backend, holdings: Holdings, shortest_lease: timedelta) -> None:
        self._backend = backend
        self._holdings = holdings
        self._tick = shortest_lease.total_seconds() / 12
        self._timed: bool | None = None
        self._choosing = threading.Lock()

    @property
    def patience(self) -> Backoff:
        """How long to wait after a failure: several tries must fit into what is left of a lease."""
        return Backoff(
            base=timedelta(seconds=min(0.2, self._tick)),
            cap=timedelta(seconds=min(5, 2 * self._tick)),
            jitter=0.5,
        )

    def turn(self) -> float:
        """Renew what is due. How long until the next one is."""
        if self._timed is None:
            self._timed = isinstance(self._backend.capabilities.lease, TimedLease)
        if not self._timed:
            return self._tick  # held by the connection: there is nothing to renew
        failure: Exception | None = None
        for lease, holds in self._due().items():
            for start in range(0, len(holds), MAX_CLAIM_LIMIT):
                try:
                    self._renew(holds[start : start + MAX_CLAIM_LIMIT], lease)
                except Exception as error:  # the next group may fare better
                    failure = error
        if failure is not None:
            raise failure
        return self._pause()

    def _due(self) -> dict[float, list[Hold]]:
        """What to renew now, by the length of the lease; for a moment it is nobody else's to renew."""
        due: dict[float, list[Hold]] = defaultdict(list)
        with self._choosing:
            now = time.monotonic()
            for hold in self._holdings.all():
                # Those that are due soon come along: leases of about one age share a statement.
                if hold.renew_at <= now + hold.lease / 12 and _worth_renewing(hold, now):
                    hold.renew_at = now + hold.lease / 6
                    due[hold.lease].append(hold)
        return due

    def extend(self, claim: Claim, lease: timedelta | None) -> None:
        """`JobContext.extend`: now, in the caller's thread, and to `lease` from now on."""
        hold = self._holdings.of(claim)
        if hold is None or hold.lost:
            raise LeaseLost(f"the lease on job {claim.job.id}, attempt {claim.attempt}, is lost")
        asked_at = time.monotonic()
        seconds = hold.lease if lease is None else lease.total_seconds()
        self._backend.extend(claim, timedelta(seconds=seconds))
        hold.granted(asked_at, seconds)

    def _renew(self, holds: list[Hold], lease: float) -> None:
        asked_at = time.monotonic()
        verdicts = self._backend.extend_many([hold.claim for hold in holds], timedelta(seconds=lease))
        for hold, verdict in zip(holds, verdicts, strict=True):
            self._note(hold, verdict, asked_at, lease)

    def _note(self, hold: Hold, verdict: Verdict, asked_at: float, lease: float) -> None:
        if verdict.applied:
            hold.granted(asked_at, lease)
            return
        if hold.finished_at is not None:
            return  # its outcome overtook us; what the settler is told about it counts
        hold.lost = True
        hold.cancel(LEASE_LOST)
        if hold.started_at is not None:
            log.warning(
                "the lease of job %s (%s), attempt %d, is lost while it runs; it may run elsewhere by now",
                hold.claim.job.id,
                hold.claim.job.kind,
                hold.claim.attempt,
                extra=describe(hold.claim),
            )

    def _pause(self) -> float:
        """Until the next renewal, but not longer than a fresh claim may be left unseen."""
        now = time.monotonic()
        soonest = min((hold.renew_at for hold in self._holdings.all()), default=now + self._tick)
        return min(self._tick, max(0.01, soonest - now))


def _worth_renewing(hold: Hold, now: float) -> bool:
    if hold.lost:
        return False
    # An outcome that the store refuses for the length of a lease is not coming through. Renewing on would
    # keep the job claimed for ever; without, the rescue gives it another try.
    return hold.finished_at is None or now < hold.finished_at + hold.lease

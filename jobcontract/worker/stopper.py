"""The stopper: looks now and then whether somebody wants a running job to stop."""

from __future__ import annotations

import logging
import time

from jobcontract.backend import Backend
from jobcontract.context import STOPPED
from jobcontract.errors import StoreError, StoreUnavailable
from jobcontract.stopping import NOTE, StopRequests
from jobcontract.worker.hold import Holdings, describe

log = logging.getLogger("jobcontract.worker")

_INTERVAL = 1.0


class Stopper:
    """Reads the requests once a second, while a job has run for as long. Short jobs cost nothing."""

    def __init__(self, backend: Backend, holdings: Holdings) -> None:
        self._backend = backend
        self._holdings = holdings
        self._possible: bool | None = None

    def turn(self) -> float:
        """Look once, if there is reason to. How long to pause before the next time."""
        before = time.monotonic() - _INTERVAL
        running = [
            hold
            for hold in self._holdings.all()
            if hold.started_at is not None
            and hold.started_at < before
            and hold.finished_at is None
            and not hold.context.cancelled
        ]
        if not running:
            return _INTERVAL
        if self._possible is None:
            self._possible = self._backend.capabilities.has("notes")
        if self._possible:
            requests = self._read()
            for hold in running:
                if requests.asks_for(str(hold.claim.job.id), hold.claim.attempt):
                    log.warning(
                        "job %s (%s), attempt %d, is told to stop, as an operator asked",
                        hold.claim.job.id,
                        hold.claim.job.kind,
                        hold.claim.attempt,
                        extra=describe(hold.claim),
                    )
                    hold.cancel(STOPPED)
        return _INTERVAL

    def _read(self) -> StopRequests:
        try:
            return StopRequests.read(self._backend.read_notes([NOTE]).values.get(NOTE))
        except StoreUnavailable:
            raise
        except StoreError as error:  # an older schema, or no right to read: nothing else depends on it
            self._possible = False
            log.warning("running jobs can't be stopped by operators here: %s", error)
            return StopRequests()

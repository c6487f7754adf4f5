"""The rescuer: every worker looks for expired leases now and then, its own dead neighbours' among them."""

from __future__ import annotations

import logging
import random
from datetime import timedelta

from jobcontract.backend import Backend

log = logging.getLogger("jobcontract.worker")

_LIMIT = 200


class Rescuer:
    """Calls `rescue` once per interval on average; again at once while there is more."""

    def __init__(self, backend: Backend, interval: timedelta) -> None:
        self._backend = backend
        self._interval = interval.total_seconds()
        self._first = True

    def turn(self) -> float:
        """One round. How long to pause before the next."""
        if self._first:  # a fleet that starts together shall not look together
            self._first = False
            return self._interval * random.random()
        rescued = self._backend.rescue(_LIMIT)
        if rescued.ready or rescued.dead:
            log.warning(
                "rescued %d expired leases: %d jobs are ready again, %d are dead",
                rescued.ready + rescued.dead,
                rescued.ready,
                rescued.dead,
                extra={"ready": rescued.ready, "dead": rescued.dead},
            )
        if rescued.ready + rescued.dead >= _LIMIT:
            return 0
        # Promise 7 counts on a look within the interval, so the jitter only makes it sooner.
        return self._interval * random.uniform(0.5, 1)

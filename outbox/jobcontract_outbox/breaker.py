"""Leaves a target alone that can't take jobs, and tries it again later, and each time later still."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from jobcontract.backoff import Backoff

PATIENCE = Backoff(base=timedelta(milliseconds=500), cap=timedelta(seconds=30), jitter=0.5)


class Breaker:
    """Closed while the target takes jobs; open for a while after each fault. One thread's."""

    def __init__(self, patience: Backoff = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._faults = 0
        self._until = 0.0
        self.reason = ""
        """The last fault; empty while closed."""

    @property
    def closed(self) -> bool:
        """Whether all was well the last time."""
        return self._faults == 0

    def remaining(self) -> float:
        """For how many seconds the target is to be left alone; not positive when it may be tried."""
        return 0.0 if self.closed else self._until - self._clock()

    def failed(self, reason: str) -> float:
        """Open, for longer than the last time. For how many seconds."""
        self._faults += 1
        self.reason = reason
        pause = self._patience.delay(self._faults).total_seconds()
        self._until = self._clock() + pause
        return pause

    def worked(self) -> bool:
        """Close. Whether it was open."""
        was_open = not self.closed
        self._faults, self.reason = 0, ""
        return was_open

"""What the log says about a store that can't be reached: one line when it begins, one when it is over."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta

from jobcontract.durations import format_duration
from jobcontract.errors import JobContractError

log = logging.getLogger("jobcontract.worker")


class StoreHealth:
    """Shared by the loops of a worker: many of them fail at once, and each retries; one of them speaks."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._since = 0.0

    def failed(self, verb: str, error: Exception) -> None:
        """`verb` could not be done, and will be tried again."""
        with self._lock:
            first = not self._failing
            self._failing.add(verb)
            if not first:
                return
            self._since = time.monotonic()
        log.warning(
            "backend %s fails to %s; trying again until it works: %s",
            self._backend,
            verb,
            error,
            extra={"backend": self._backend, "verb": verb, "error_type": type(error).__name__},
            # Our own errors say all in their sentence; anything else is a fault of ours.
            exc_info=None if isinstance(error, JobContractError) else error,
        )

    def worked(self, verb: str) -> None:
        """`verb` was done, or there is nothing left to do for it."""
        if not self._failing:  # the usual case costs no lock
            return
        with self._lock:
            if verb not in self._failing:
                return
            self._failing.discard(verb)
            if self._failing:
                return
            seconds = time.monotonic() - self._since
        log.warning(
            "backend %s works again after %s",
            self._backend,
            format_duration(timedelta(seconds=seconds)),
            extra={"backend": self._backend, "verb": verb, "seconds": seconds},
        )

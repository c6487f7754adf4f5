"""The loops of a worker: threads that do one thing in turns and survive whatever the store does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from jobcontract.backoff import Backoff
from jobcontract.worker.health import StoreHealth

log = logging.getLogger("jobcontract.worker")

PATIENCE = Backoff(base=timedelta(milliseconds=200), cap=timedelta(seconds=5), jitter=0.5)
"""How long a loop waits after a turn that failed."""

Turn = Callable[[], float]
"""One round of work; how many seconds to pause before the next. Raises what the store raises."""


class Loop(threading.Thread):
    """Takes turns until it is stopped. A turn that raises is taken again, after a pause that grows.

    No exception ends it: a supervisor thread that dies of a long outage is a worker that looks alive.
    """

    def __init__(
        self,
        verb: str,
        turn: Turn,
        health: StoreHealth,
        *,
        patience: Backoff = PATIENCE,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """`prepare` is called once, in the thread, before the first turn; it raises nothing."""
        super().__init__(name=f"jobcontract-{verb}", daemon=True)
        self._verb = verb
        self._turn = turn
        self._health = health
        self._patience = patience
        self._prepare = prepare
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Take no further turn. Returns at once; `join` waits for the turn under way."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def run(self) -> None:
        if self._prepare is not None:
            self._prepare()
        failures = 0
        while not self._stopping.is_set():
            try:
                pause = self._turn()
            except Exception as error:
                failures += 1
                if self._stopping.is_set():
                    return
                self._health.failed(self._verb, error)
                pause = self._patience.delay(failures).total_seconds()
            else:
                failures = 0
                self._health.worked(self._verb)
            if pause > 0:
                self._stopping.wait(pause)

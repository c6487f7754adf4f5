"""Schedulers without a worker: one thread per store, until a signal ends them."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType

from jobcontract.errors import ConfigError, InstallationError, Unsupported
from jobcontract.schedules.scheduler import Scheduler
from jobcontract.worker.health import StoreHealth
from jobcontract.worker.loops import Loop

log = logging.getLogger("jobcontract.schedules")

_TIDY = 5.0
"""Seconds to wait for a turn that is under way."""
_DEAFNESS = 0.5


def run_schedulers(schedulers: Mapping[str | None, Scheduler]) -> None:
    """Run `schedulers`, by the name of their backend, until SIGTERM or SIGINT. Blocks; for the main thread.

    A store that is away does not end it. Raises `Unsupported` or `ConfigError` when one of the stores can't
    have schedules.
    """
    stop = threading.Event()
    fatal: list[Exception] = []

    def turn(scheduler: Scheduler) -> float:
        try:
            return scheduler.turn()
        except (ConfigError, InstallationError, Unsupported) as error:  # trying again can't help
            fatal.append(error)
            stop.set()
            return 3600

    loops = [
        Loop("schedule", partial(turn, each), StoreHealth(name or "default"))
        for name, each in schedulers.items()
    ]
    with _set_by_signals(stop):
        log.info("running schedules")
        for loop in loops:
            loop.start()
        while not stop.wait(_DEAFNESS):
            pass
        for loop in loops:
            loop.stop()
        for loop in loops:
            loop.join(_TIDY)
        log.info("stopped")
    if fatal:
        raise fatal[0]


@contextmanager
def _set_by_signals(event: threading.Event) -> Generator[None]:
    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        event.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

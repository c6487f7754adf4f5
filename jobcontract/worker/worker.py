"""The worker: its parts, put together, and the ways in which it stops.

::

    claimer --claims--> buffer --jobs--> hands (threads, event loop) --outcomes--> settler --> store
       ^                  |                                                          |
       +----- demand -----+              holdings: all that is held          complete, fail, release
                                          ^                  ^
                      renewer: leases ----+                  +---- watcher: timeouts, lapsed leases

Each arrow is crossed in batches where the jobs come in batches. Five threads talk to the store (claimer,
settler, two renewers, rescuer; with schedules also a scheduler), and none of them waits for another: renewals
go on while a claim or a settlement hangs.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import Enum, auto
from itertools import count
from types import FrameType
from uuid import UUID

from jobcontract.backend import Backend
from jobcontract.context import SHUTDOWN
from jobcontract.durations import format_duration
from jobcontract.errors import (
    ConfigError,
    InstallationError,
    InvalidJob,
    StoreError,
    StoreUnavailable,
    Unsupported,
)
from jobcontract.execute import Released
from jobcontract.handlers import Handlers
from jobcontract.schedules.schedule import Schedule
from jobcontract.schedules.scheduler import Scheduler
from jobcontract.worker.buffer import Buffer
from jobcontract.worker.claimer import Claimer
from jobcontract.worker.hands import Hands
from jobcontract.worker.health import StoreHealth
from jobcontract.worker.hold import Holdings
from jobcontract.worker.limits import WorkerLimits
from jobcontract.worker.loops import Loop, Turn
from jobcontract.worker.options import WorkerOptions
from jobcontract.worker.renewer import Renewer
from jobcontract.worker.rescuer import Rescuer
from jobcontract.worker.settle import NOT_STARTED, Settler, Tally
from jobcontract.worker.stopper import Stopper
from jobcontract.worker.watcher import Watcher

log = logging.getLogger("jobcontract.worker")

_NOBODY = UUID(int=0)
_LAST_WORDS = 1.0
"""Seconds that cancelled handlers get to return before their jobs are released."""
_TIDY = 1.0
"""Seconds to wait for threads that may hang in a call to a silent store. They hold nothing any more, and end
with the process.
"""
LONGEST_DEAFNESS = 0.5
"""Seconds that the main thread blocks at a time. A signal that comes right before it blocks interrupts
nothing: Python runs its handler when the thread comes back.
"""
_FLUSH = 5.0
"""Seconds for the last settlements. What the store can't be told by then, the rescue will find."""


class _Order(Enum):
    STOP = auto()
    STOP_NOW = auto()
    DRAINED = auto()
    FATAL = auto()


class Worker:
    """Runs the jobs of a backend's queues with an application's handlers, in this process.

    Built once, run once. `run` returns when the worker was stopped (by `stop`, SIGTERM or SIGINT) or, with
    `until_empty`, when there is nothing left to do. A store that is away, whenever that is, does not end it;
    one that refuses from the start does, and so does one whose installation does not fit this code.
    """

    def __init__(
        self,
        backend: Backend,
        handlers: Handlers,
        options: WorkerOptions | None = None,
        *,
        schedules: Sequence[Schedule] = (),
    ) -> None:
        """Contacts nothing. Raises `ConfigError` when there is nothing to handle.

        The jobs of `schedules` are inserted into `backend` as they fall due, whichever kinds are handled.
        """
        if not len(handlers):
            raise ConfigError("the worker has no handlers: register at least one with @handlers.handler(...)")
        self._options = options = options or WorkerOptions()
        self._backend = backend
        self._handlers = handlers
        leases = [options.lease, *(one.lease for one in handlers if one.lease is not None)]
        limits = {one.kind: one.concurrency for one in handlers if one.concurrency is not None}
        # A queue whose put is reentrant: a signal handler may interrupt anything, also another put.
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._fatal: Exception | None = None
        self._health = StoreHealth(backend.name)
        self._holdings = Holdings()
        self._buffer = Buffer(options.concurrency, options.batch, limits)
        self._settler = Settler(backend, self._holdings, self._health)
        self._hands = Hands(options.concurrency, self._buffer, self._settler)
        renewer = Renewer(backend, self._holdings, min(leases))
        rescuer = Rescuer(backend, options.rescue_interval)
        watcher = Watcher(handlers, self._holdings, self._buffer, self._settler, min(leases).total_seconds())
        self._limits = WorkerLimits(
            backend,
            handlers,
            options.lease,
            self._buffer,
            self._holdings,
            self._settler,
            self._hands.reinforce,
        )
        self._claimer = Claimer(
            backend,
            handlers,
            options,
            self._buffer,
            self._holdings,
            self._settler,
            limits=self._limits,
            extend=renewer.extend,
            on_put=self._hands.reinforce,
            on_drained=lambda: self._orders.put(_Order.DRAINED),
        )
        greet = self._greet
        renew = self._unless_hopeless(renewer.turn)
        self._claim_loop = Loop(
            "claim", self._unless_hopeless(self._claimer.turn), self._health, prepare=greet
        )
        self._rescue_loop = Loop("rescue", self._unless_hopeless(rescuer.turn), self._health, prepare=greet)
        self._keepers = [
            Loop("renew", renew, self._health, patience=renewer.patience, prepare=greet),
            Loop("renew", renew, self._health, patience=renewer.patience, prepare=greet),
            Loop("watch", watcher.turn, self._health),
            Loop("stop", Stopper(backend, self._holdings).turn, self._health, prepare=greet),
        ]
        if self._limits.needed:
            self._holdings.on_gone = self._limits.gone
            turn = self._unless_hopeless(self._limits.turn)
            self._keepers.append(Loop("limit", turn, self._health, patience=renewer.patience, prepare=greet))
        self._schedule_loops: list[Loop] = []
        if schedules:
            turn = self._unless_hopeless(Scheduler(backend, schedules).turn)
            self._schedule_loops = [Loop("schedule", turn, self._health, prepare=greet)]

    def stop(self) -> None:
        """Stop as the first SIGTERM does: claim no more, finish within the grace, release the rest. Returns
        at once; may be called from any thread, also before `run`.
        """
        self._orders.put(_Order.STOP)

    def stop_now(self) -> None:
        """Stop as the second SIGTERM does: release what is held now. Returns at once."""
        self._orders.put(_Order.STOP_NOW)

    def run(self) -> Tally:
        """Work until stopped; how many jobs ended which way. Blocks.

        In the main thread SIGTERM and SIGINT stop it: the first as `stop`, the second as `stop_now`. Raises,
        after an orderly stop, what trying again can't mend, and nothing else: `ConfigError`, `Unsupported` or
        `InvalidJob` when the store finds a setting wrong, `InstallationError` when what is installed in it is
        missing or of another version, any `StoreError` but `StoreUnavailable` of a store that refused
        each claim from the start, and `RuntimeError` when one of the worker's own threads ended.
        """
        started = time.monotonic()
        with self._signals():
            self._say_started()
            self._settler.start(self._greet)
            for loop in (*self._keepers, self._rescue_loop, *self._schedule_loops):
                loop.start()
            if self._orders.empty():
                self._claim_loop.start()
            self._shut_down(at_once=self._next_order() is _Order.STOP_NOW)
        tally = self._settler.tally
        log.info(
            "worker stopped after %s: %d completed, %d failed (%d dead), %d released, %d lost",
            format_duration(timedelta(seconds=time.monotonic() - started)),
            tally.completed,
            tally.failed,
            tally.dead,
            tally.released,
            tally.lost,
        )
        if self._fatal is not None:
            raise self._fatal
        return tally

    def _say_started(self) -> None:
        log.info(
            "worker started: backend %s, queues %s, concurrency %d, kinds %s",
            self._backend.name,
            ", ".join(self._options.queues),
            self._options.concurrency,
            ", ".join(self._handlers.kinds),
            extra={
                "backend": self._backend.name,
                "queues": list(self._options.queues),
                "kinds": self._handlers.kinds,
                "pid": os.getpid(),
            },
        )

    def _greet(self) -> None:
        """Have the store open a connection for this thread, while all of them ask at once: to open one to a
        store that has become slow can take longer than a lease, and would then be in the way of a renewal.
        """
        with suppress(Exception):  # what is wrong will be met, and said, by the first turn
            self._backend.get(_NOBODY)

    # -- Stopping ----------------------------------------------------------------------------------

    def _shut_down(self, *, at_once: bool) -> None:
        self._claim_loop.stop()
        for loop in (self._rescue_loop, *self._schedule_loops):
            loop.stop()
        for hold in self._buffer.close():
            self._settler.put(hold, NOT_STARTED)
        if not at_once:
            log.info("stopping: %d jobs are held", len(self._holdings))
            at_once = self._let_finish(self._options.grace.total_seconds())
        running = [hold for hold in self._holdings.all() if hold.finished_at is None]
        for hold in running:
            hold.cancel(SHUTDOWN)
        if running and not at_once:
            self._buffer.wait_until_idle(_LAST_WORDS)
        self._await_claim(_FLUSH)
        for hold in self._holdings.all():
            if hold.finished_at is None:
                self._settler.put(hold, Released(timedelta(), SHUTDOWN))
        if not self._settler.close(_FLUSH):
            log.warning(
                "the store could not be told about %d jobs in time; they run again after their leases",
                self._settler.backlog,
            )
        for loop in self._keepers:
            loop.stop()
        with suppress(Exception):  # what can't be freed now runs out
            self._limits.close()
        self._hands.close()
        deadline = time.monotonic() + _TIDY
        for loop in (*self._keepers, self._rescue_loop, *self._schedule_loops):
            loop.join(max(0.0, deadline - time.monotonic()))

    def _let_finish(self, grace: float) -> bool:
        """Wait for the handlers, `grace` seconds at the longest. True when an order says to stop at once."""
        deadline = time.monotonic() + grace
        while (left := deadline - time.monotonic()) > 0:
            # Orders come through a queue and idleness through a condition: look at each in short turns.
            if self._buffer.wait_until_idle(min(left, 0.05)):
                return False
            try:
                order = self._orders.get_nowait()
            except queue.Empty:
                continue
            if order is _Order.STOP_NOW:
                log.warning("stopping now: jobs that still run are released")
                return True
        return False

    def _await_claim(self, timeout: float) -> None:
        """A claim under way may bring jobs; they are released at once, if they come in time. The claimer's
        thread itself may be in a wait for work, which holds nothing, and ends by itself.
        """
        deadline = time.monotonic() + timeout
        while self._claimer.claiming and time.monotonic() < deadline:
            self._claim_loop.join(0.02)

    # -- Orders ------------------------------------------------------------------------------------

    def _next_order(self) -> _Order:
        while True:
            try:
                return self._orders.get(timeout=LONGEST_DEAFNESS)
            except queue.Empty:
                self._miss_threads()

    def _miss_threads(self) -> None:
        """Stop when a thread has ended, which none does by itself: no exception ends one. But `SystemExit`
        does, or whatever else is not an `Exception`, and without a word.
        """
        loops = (self._claim_loop, *self._keepers, self._rescue_loop, *self._schedule_loops)
        for thread in (self._settler.thread, *(loop for loop in loops if not loop.stopping)):
            if not thread.is_alive():
                ended = f"the worker's thread {thread.name} ended, a fault of the driver or of jobcontract"
                self._give_up(RuntimeError(f"{ended}; the jobs that it holds run again after their leases"))
                return

    def _unless_hopeless(self, turn: Turn) -> Turn:
        """`turn`, whose errors end the worker where trying again can't help.

        A store that has worked and then refuses (a rotated password, a full disk) is waited for: what was
        right can become so again.
        """

        def take() -> float:
            try:
                return turn()
            except (ConfigError, Unsupported, InvalidJob, InstallationError) as error:
                return self._give_up(error)
            except StoreError as error:
                if self._claimer.has_claimed or isinstance(error, StoreUnavailable):
                    raise
                return self._give_up(error)

        return take

    def _give_up(self, error: Exception) -> float:
        if self._fatal is None:
            self._fatal = error
        self._orders.put(_Order.FATAL)
        self._claim_loop.stop()
        self._rescue_loop.stop()
        return _TIDY

    @contextmanager
    def _signals(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        seen = count(1)

        def order(number: int, frame: FrameType | None) -> None:
            del number, frame
            self._orders.put(_Order.STOP if next(seen) == 1 else _Order.STOP_NOW)

        before = {number: signal.signal(number, order) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

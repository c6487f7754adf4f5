"""The hands: the threads and the event loop in which handlers run."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from jobcontract.execute import Outcome, execute, execute_async, outcome_of
from jobcontract.worker.buffer import Buffer
from jobcontract.worker.hold import Hold
from jobcontract.worker.settle import NOT_STARTED, Settler

log = logging.getLogger("jobcontract.worker")


class Hands:
    """At most `most` threads for synchronous handlers, and one event loop for all asynchronous ones.

    Threads are daemons: a handler that never returns must not keep a worker from exiting. They are started
    when jobs wait and no hand is free, so that an application of async handlers has one or two.
    """

    def __init__(self, most: int, buffer: Buffer, settler: Settler) -> None:
        self._most = most
        self._buffer = buffer
        self._settler = settler
        self._count = 0
        self._counting = threading.Lock()
        self._event_loop = EventLoop(buffer, settler, on_free=self.reinforce)

    def reinforce(self) -> None:
        """Start another hand if jobs wait that none is free to take. Cheap when there is nothing to do."""
        if self._count < self._most and self._buffer.starving:
            self._add()

    def close(self) -> None:
        """After `Buffer.close`: the threads end by themselves as their handlers return; the event loop ends
        now.
        """
        self._event_loop.close()

    def _add(self) -> None:
        with self._counting:
            if self._count >= self._most:
                return
            self._count += 1
            number = self._count
        threading.Thread(target=self._work, name=f"jobcontract-hand-{number}", daemon=True).start()

    def _work(self) -> None:
        buffer = self._buffer
        hold = buffer.take()
        while hold is not None:
            if hold.handler.is_async:
                self._event_loop.start(hold)
                hold = buffer.take()
            else:
                self.reinforce()
                hold = buffer.exchange(hold, self._run(hold))

    def _run(self, hold: Hold) -> float | None:
        """How long the handler took, in seconds; None when it was too late to start it."""
        started = time.monotonic()
        if not may_start(hold, started):
            self._settler.put(hold, NOT_STARTED)
            return None
        hold.started_at = started
        # A context of its own: what a handler puts into context variables is not for the thread's next job.
        outcome = contextvars.Context().run(execute, hold.claim, hold.handler, hold.context)
        self._settler.put(hold, outcome)
        return time.monotonic() - started


class EventLoop:
    """The thread in which the coroutines of async handlers run, started with the first of them."""

    def __init__(self, buffer: Buffer, settler: Settler, on_free: Callable[[], None]) -> None:
        self._buffer = buffer
        self._settler = settler
        self._on_free = on_free
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._tasks: set[asyncio.Task[Outcome]] = set()  # asyncio itself holds its tasks weakly only

    def start(self, hold: Hold) -> None:
        """Run the async handler of `hold`, which has its slot. Does not wait for it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._run_loop, name="jobcontract-asyncio", daemon=True).start()
            loop = self._loop
        loop.call_soon_threadsafe(self._begin, hold, loop)

    def close(self) -> None:
        """Cancel what runs, and stop. Returns at once."""
        with self._lock:
            self._closing = True
            loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel_and_stop, loop)

    def _run_loop(self) -> None:
        loop = self._loop
        assert loop is not None
        try:
            while not self._closing:
                _run_until_stopped(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _begin(self, hold: Hold, loop: asyncio.AbstractEventLoop) -> None:
        started = time.monotonic()
        if not may_start(hold, started):
            self._settler.put(hold, NOT_STARTED)
            self._free(hold, None)
            return
        hold.started_at = started
        task = loop.create_task(execute_async(hold.claim, hold.handler, hold.context))
        self._tasks.add(task)
        task.add_done_callback(partial(self._finish, hold, started))
        hold.interrupt = partial(_cancel, loop, task)
        if hold.context.cancelled:  # it was set before there was anything to interrupt
            task.cancel()

    def _finish(self, hold: Hold, started: float, task: asyncio.Task[Outcome]) -> None:
        self._tasks.discard(task)
        finished = time.monotonic()
        if task.cancelled():  # before its first step: the coroutine itself never saw it
            outcome = outcome_of(asyncio.CancelledError(), hold.claim, hold.handler, hold.context)
        else:
            outcome = task.result()
        self._settler.put(hold, outcome)
        self._free(hold, finished - started)

    def _free(self, hold: Hold, seconds: float | None) -> None:
        self._buffer.free(hold, seconds)
        self._on_free()

    def _cancel_and_stop(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in self._tasks:
            task.cancel()
        # Two turns later: the first delivers the cancellations.
        loop.call_soon(loop.call_soon, loop.stop)


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """The loop belongs to all handlers, and one that stops it must not end the others.

    asyncio lets `SystemExit` and `KeyboardInterrupt` of a task (one that a handler made, or `asyncio.gather`
    for it) end the loop, after it has told whoever awaits that task.
    """
    try:
        loop.run_forever()
    except BaseException as error:
        log.error("a task of an async handler raised %s; the event loop goes on", type(error).__name__)


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Outcome]) -> None:
    try:
        loop.call_soon_threadsafe(task.cancel)
    except RuntimeError:
        log.debug("the event loop is closed; its task ended with it")


def may_start(hold: Hold, now: float) -> bool:
    """Whether the lease of a buffered job still holds, as far as can be known here."""
    return not hold.lost and not hold.settled and now < hold.deadline

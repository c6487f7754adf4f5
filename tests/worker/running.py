"""A worker in a thread of the test, and patience for what it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from jobcontract import Backend, Handlers, Job, State
from jobcontract.worker import Tally, Worker, WorkerOptions

Result = TypeVar("Result")

PROMPT = WorkerOptions(
    poll_interval=timedelta(milliseconds=200),
    rescue_interval=timedelta(milliseconds=200),
    lease=timedelta(seconds=10),
    grace=timedelta(seconds=10),
)
"""Options for tests: as usual, but soon."""


def eventually(look: Callable[[], Result | None], *, within: float = 20.0) -> Result:
    """Look again and again until there is something to see, and give that. Fails after `within` seconds."""
    deadline = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < deadline, f"still {found!r} after {within:g} s"
        time.sleep(0.005)
    return found


class RunningWorker:
    """A worker that runs while the block does; told to stop now at its end, unless it has stopped before."""

    def __init__(self, backend: Backend, handlers: Handlers, options: WorkerOptions = PROMPT) -> None:
        self._worker = Worker(backend, handlers, options)
        self._tally: Tally | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._tally = self._worker.run()
        except BaseException as error:
            self._failure = error

    @property
    def runs(self) -> bool:
        """Whether it still does."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """As the first SIGTERM."""
        self._worker.stop()

    def stop_now(self) -> None:
        """As the second SIGTERM."""
        self._worker.stop_now()

    def join(self, *, within: float = 20.0) -> Tally:
        """Wait for its end; what it did. Raises what it raised."""
        self._thread.join(within)
        assert not self._thread.is_alive(), f"the worker still runs after {within:g} s"
        if self._failure is not None:
            raise self._failure
        assert self._tally is not None
        return self._tally

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_now()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the worker does not stop"
        if self._failure is not None and error is None:
            raise self._failure


def state_of(backend: Backend, job: Job) -> State | None:
    """Where the job is in its life."""
    status = backend.get(job.id)
    return None if status is None else status.state


def await_state(backend: Backend, job: Job, state: State, *, within: float = 20.0) -> Any:
    """Wait until the job is there; its status."""

    def look() -> Any:
        status = backend.get(job.id)
        return status if status is not None and status.state is state else None

    return eventually(look, within=within)

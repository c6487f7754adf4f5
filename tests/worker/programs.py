"""A worker process for tests that kill, stop and signal one: ``python -m tests.worker.programs URL POINT``.

At POINT in the life of the first job it says so on its standard output and waits for a line of input:

``claimed``    the store gave the job, no handler was called;
``running``    inside the handler;
``finished``   the handler has returned, the store does not know;
``completed``  the store has taken the outcome.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from jobcontract import Backend, Claim, Handlers, get_backend
from jobcontract.config import Settings
from jobcontract.contract import Verdict
from jobcontract.worker import Worker, WorkerOptions, follow_supervisor

handlers = Handlers()
waits_in_handler = threading.Event()


def say_and_wait(point: str) -> None:
    """Tell the test where we are; go on when it says so, or when it is gone."""
    print(point, flush=True)
    sys.stdin.readline()


@handlers.handler("job")
def handle(input: object) -> None:
    """The job of these tests."""
    if waits_in_handler.is_set():
        say_and_wait("running")


@handlers.handler("crash")
def crash(input: object) -> None:
    """Ends the process as a fault in a C library would."""
    import os

    os.abort()


class Halting(Backend):
    """A backend that halts at a point, as a debugger would."""

    def __init__(self, backend: Backend, point: str) -> None:
        super().__init__(backend.name, lambda: backend.driver)
        self._point = point

    def claim(self, **arguments: Any) -> list[Claim]:
        claims = super().claim(**arguments)
        if claims and self._point == "claimed":
            say_and_wait("claimed")
        return claims

    def complete_many(self, claims: Sequence[Claim]) -> list[Verdict]:
        if self._point == "finished":
            say_and_wait("finished")
        verdicts = super().complete_many(claims)
        if self._point == "completed":
            say_and_wait("completed")
        return verdicts


def main(url: str, point: str, lease: str = "1.0", grace: str = "10") -> None:
    """Work until signalled."""
    if point == "running":
        waits_in_handler.set()
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    options = WorkerOptions(
        concurrency=2,
        lease=timedelta(seconds=float(lease)),
        grace=timedelta(seconds=float(grace)),
        poll_interval=timedelta(milliseconds=200),
        rescue_interval=timedelta(milliseconds=300),
    )
    worker = Worker(Halting(get_backend(url, settings=Settings()), point), handlers, options)
    follow_supervisor(worker)
    print("started", flush=True)
    worker.run()


if __name__ == "__main__":
    run: Callable[..., None] = main
    run(*sys.argv[1:])

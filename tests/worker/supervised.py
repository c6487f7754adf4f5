"""A supervisor and its children: ``python -m tests.worker.supervised PROCESSES URL ["until empty"]``."""

from __future__ import annotations

import logging
import os
import sys
import threading
from datetime import timedelta

from jobcontract import ConfigError, Handlers, JobContext, get_backend
from jobcontract.config import Settings
from jobcontract.worker import Supervisor, Worker, WorkerOptions, follow_supervisor, is_supervised

handlers = Handlers()


@handlers.handler("job", lease="2s")
def handle(input: object) -> None:
    """Does nothing. Its lease is what another process waits for when this one dies with it."""


@handlers.handler("crash", lease="500ms")
def crash(input: object) -> None:
    """Ends the process as a fault in a C library would."""
    os.abort()


@handlers.handler("stubborn", lease="5m")
def stubborn(input: object, context: JobContext) -> None:
    """Does not listen."""
    threading.Event().wait(60)


def work(url: str, until_empty: bool) -> None:
    """What each child does."""
    options = WorkerOptions(
        concurrency=2,
        poll_interval=timedelta(milliseconds=200),
        rescue_interval=timedelta(milliseconds=300),
        grace=timedelta(minutes=5),
        until_empty=until_empty,
    )
    worker = Worker(get_backend(url, settings=Settings()), handlers, options)
    follow_supervisor(worker)
    worker.run()


def main(processes: str, url: str, *flags: str) -> int:
    """Supervise, or be supervised."""
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    until_empty = "until empty" in flags
    if not is_supervised():
        command = [sys.executable, "-m", "tests.worker.supervised", processes, url, *flags]
        return Supervisor(command, int(processes), until_empty).run()
    try:
        work(url, until_empty)
    except ConfigError as error:
        logging.error("%s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

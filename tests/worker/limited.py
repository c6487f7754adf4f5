"""A worker process under limits: ``python -m tests.worker.limited URL FILE NAME OPTIONS SECONDS GRACE``.

Each run of a handler writes two lines into FILE, "start|end NAME job key time", the second one when it ends.
OPTIONS are the terms of the handler, as JSON; a run takes SECONDS.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from datetime import timedelta

from jobcontract import Handlers, JobContext, get_backend
from jobcontract.config import Settings
from jobcontract.worker import Worker, WorkerOptions


def main(url: str, file: str, name: str, terms: str, seconds: str, grace: str) -> None:
    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    handlers = Handlers()

    @handlers.handler("limited", **json.loads(terms))
    def handle(input: object, context: JobContext) -> None:
        def note(event: str) -> None:
            key = context.headers.get("concurrency-key", "-")
            os.write(log, f"{event} {name} {context.job_id} {key} {time.time()}\n".encode())

        note("start")
        context.cancelled.wait(float(seconds))
        note("end")
        context.check_cancelled()

    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    options = WorkerOptions(
        concurrency=8,
        lease=timedelta(seconds=2),
        grace=timedelta(seconds=float(grace)),
        poll_interval=timedelta(milliseconds=200),
        rescue_interval=timedelta(milliseconds=300),
    )
    worker = Worker(get_backend(url, settings=Settings()), handlers, options)
    print("started", flush=True)
    worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

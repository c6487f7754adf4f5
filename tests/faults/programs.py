"""The processes of a run: ``python -m tests.faults.programs ROLE FOLDER NAME``. Each writes its own history.

``producer``  registers what its plan says, and repeats what was not acknowledged, until it is;
``worker``    a worker as applications have it, with handlers that write down their start and their end;
``relay``     publishes what waits in the outbox.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from jobcontract_outbox import Relay, RelayOptions
from jobcontract_outbox.ends import find_ends

from jobcontract import Backend, Handlers, JobContext, get_backend
from jobcontract.backoff import Backoff
from jobcontract.contract import Job
from jobcontract.errors import Dead, Retry, Snooze, StoreError
from jobcontract.url import StoreURL
from jobcontract.worker import Worker, WorkerOptions
from tests.faults.history import Outcome, Recorder
from tests.faults.plan import Batch, Plan, now
from tests.faults.recording import describe_job, record, tell_registrations
from tests.faults.run_file import OUTBOX, STORE, RunFile, read_settings

RELAY_BATCH = 100
SOON = Backoff(base=timedelta(milliseconds=50), cap=timedelta(milliseconds=500))


class Program:
    """What all of them have."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.run_file = RunFile.read(folder)
        self.recorder = Recorder(folder, name)

    def backend(self, history_name: str = STORE) -> Backend:
        """The store, recorded."""
        opened = get_backend(STORE, settings=read_settings(self.folder))
        return Backend(STORE, lambda: record(opened.driver, self.recorder, history_name))


# -- The producer ------------------------------------------------------------------------------------------


class Producer(Program):
    """Registers until its plan is done."""

    def main(self) -> None:
        run = self.run_file
        store = OUTBOX if run.outbox else STORE
        plan = Plan(
            f"{run.seed}/{self.name}",
            run.jobs,
            keys=run.keys,
            future=run.future,
            transactions=bool(run.transactions),
            hold=run.hold,
            slow=run.slow,
            slow_share=run.slow_share,
        )
        with self.backend(store) as backend:
            for batch in plan.batches():
                self._register(backend, batch, store)
                time.sleep(run.pace)

    def _register(self, backend: Backend, batch: Batch, store: str) -> None:
        """The same jobs, until somebody says that they are stored, or rolled back."""
        jobs = batch.jobs(now())
        while True:
            try:
                if batch.intends == "alone":
                    backend.register_many(jobs)
                else:
                    self._in_transaction(backend, batch, jobs, store)
            except (StoreError, psycopg.Error, sqlite3.OperationalError):  # a full disk, too
                time.sleep(0.05)
            else:
                return

    def _in_transaction(self, backend: Backend, batch: Batch, jobs: list[Job], store: str) -> None:
        """One transaction, with a business row for each job."""
        asked = {"jobs": [describe_job(job.to_record()) for job in jobs], "intends": batch.intends}
        with self.recorder.operation("transaction", asked, store=store) as answer:
            answer.outcome = Outcome.FAIL  # until the commit is sent
            with _connection(self.run_file.transactions) as connection:
                _insert_business_rows(connection, jobs)
                found = backend.register_many(jobs, connection=connection)
                time.sleep(batch.holds)
                if batch.intends == "rollback":
                    connection.rollback()
                else:
                    answer.outcome = Outcome.UNKNOWN
                    connection.commit()
                answer.outcome = Outcome.OK
                answer.answered = tell_registrations(found)


@contextlib.contextmanager
def _connection(url: str) -> Generator[Any]:
    if url.startswith("sqlite"):
        path = StoreURL.parse(url).path.removeprefix("/")
        with contextlib.closing(sqlite3.connect(path, timeout=5)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
    else:
        connected = psycopg.connect(url, connect_timeout=3, options="-c statement_timeout=5s")
        with contextlib.closing(connected):
            yield connected


def _insert_business_rows(connection: Any, jobs: list[Job]) -> None:
    place = "?" if isinstance(connection, sqlite3.Connection) else "%s"
    statement = f"INSERT INTO business (id) VALUES ({place}) ON CONFLICT DO NOTHING"
    for job in jobs:
        connection.execute(statement, (str(job.id),))


# -- The worker --------------------------------------------------------------------------------------------


class WorkerProgram(Program):
    """Works until SIGTERM."""

    def main(self) -> None:
        run = self.run_file
        options = WorkerOptions(
            concurrency=8,
            batch=50,
            lease=timedelta(seconds=run.lease),
            grace=timedelta(seconds=5),
            poll_interval=timedelta(milliseconds=500),
            rescue_interval=timedelta(seconds=run.rescue),
        )
        with self.backend() as backend:
            Worker(backend, self._handlers(), options).run()

    def _handlers(self) -> Handlers:
        handlers = Handlers()

        @handlers.handler("work", backoff=SOON)
        def work(input: dict[str, Any], context: JobContext) -> None:
            self._write_down("start", context)
            _act(input, context)
            self._write_down("end", context)

        return handlers

    def _write_down(self, verb: str, context: JobContext) -> None:
        claim = context.claim
        self.recorder.note(verb, id=str(claim.job.id), attempt=claim.attempt, token=claim.token)
        self.recorder.sync()


def _act(input: dict[str, Any], context: JobContext) -> None:
    context.cancelled.wait(input.get("ms", 0) / 1000)
    context.check_cancelled()
    match input.get("fate"):
        case "retry" if context.spent < min(3, context.max_attempts):
            raise Retry("once more", after=timedelta(milliseconds=100))
        case "raise" if context.spent < 3:
            raise RuntimeError("it broke: \x00 \ud800")
        case "snooze" if context.attempt == 1:
            raise Snooze(timedelta(milliseconds=100))
        case "die":
            raise Dead("for good")
        case _:
            pass


# -- The relay ---------------------------------------------------------------------------------------------


class RelayProgram(Program):
    """Publishes until SIGTERM."""

    def main(self) -> None:
        stop = threading.Event()

        def obey(number: int, frame: object) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, obey)
        relay = Relay(find_ends(read_settings(self.folder)), RelayOptions(batch=RELAY_BATCH))
        for loop in relay.loops:
            record(loop.opened.target, self.recorder, STORE)
        relay.start()
        while not stop.wait(0.1):
            pass
        relay.stop()
        relay.close()


ROLES: dict[str, type[Producer | WorkerProgram | RelayProgram]] = {
    "producer": Producer,
    "worker": WorkerProgram,
    "relay": RelayProgram,
}


def main(role: str, folder: str, name: str) -> None:
    """Be one of them."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    program = ROLES[role](Path(folder), name)
    if program.run_file.bad:
        from tests.faults.broken import break_product  # which knows all that there is

        break_product(program.run_file.bad)
    program.main()


if __name__ == "__main__":
    main(*sys.argv[1:])

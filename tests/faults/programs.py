"""The processes of a run: ``python -m tests.faults.programs ROLE FOLDER NAME``. Each writes its own history.

``producer``  registers what its plan says, and repeats what was not acknowledged, until it is;
``worker``    a worker as applications have it, with handlers that write down their start and their end;
``scheduler`` registers work that recurs;
``relay``     publishes what waits in the outbox;
``stale``     names the store that jobs move away from, as a client that was never restarted does;
``coordinator``  is `jobctl` with the arguments in `COMMAND`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from typing import Any, SupportsIndex, TypeAlias

import psycopg
from jobcontract_migrate import ends, open_routed
from jobcontract_outbox import Relay, RelayOptions
from jobcontract_outbox.ends import find_ends

from jobcontract import Backend, Handlers, JobContext, get_backend
from jobcontract.backoff import Backoff
from jobcontract.cli import main as jobctl
from jobcontract.config import Settings, StoreSettings
from jobcontract.contract import Driver, Job
from jobcontract.errors import Dead, Retry, Snooze, StoreError
from jobcontract.registry import open_store
from jobcontract.schedules import Scheduler, load_schedules
from jobcontract.url import StoreURL
from jobcontract.worker import Worker, WorkerOptions
from tests.faults.history import Outcome, Recorder
from tests.faults.plan import Batch, Plan, now
from tests.faults.recording import (
    ROUTE,
    describe_job,
    record,
    record_below,
    record_route,
    tell_registrations,
)
from tests.faults.run_file import NEW, OLD, OUTBOX, STORE, RunFile, enough, read_settings

COMMAND = "FAULTS_COMMAND"
RELAY_BATCH = 100
SLOWLY = 0.3
"""Seconds between two batches of a producer that has done what it had to."""
SOON = Backoff(base=timedelta(milliseconds=50), cap=timedelta(milliseconds=500))


class Program:
    """What all of them have."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.run_file = RunFile.read(folder)
        self.recorder = Recorder(folder, name)

    @property
    def registers_at(self) -> str:
        """The history's name for what this run's registrations go to."""
        if self.run_file.moves:
            return ROUTE
        return OUTBOX if self.run_file.outbox else STORE

    def backend(self, history_name: str = STORE) -> Backend:
        """The store, recorded; where jobs move, as somebody who follows."""
        if self.run_file.moves:
            return follow(read_settings(self.folder), self.recorder)
        opened = get_backend(STORE, settings=read_settings(self.folder))
        return Backend(STORE, lambda: record(opened.driver, self.recorder, history_name))


# -- The producer ------------------------------------------------------------------------------------------


class Producer(Program):
    """Registers what its plan says, and goes on slowly until no more faults come: each has to find jobs."""

    def main(self) -> None:
        run, store = self.run_file, self.registers_at
        plan = Plan(
            f"{run.seed}/{self.name}",
            run.jobs,
            keys=run.keys,
            future=run.future,
            transactions=bool(run.transactions),
            hold=run.hold,
            hold_share=run.hold_share,
            slow=run.slow,
            slow_share=run.slow_share,
            endless=True,
        )
        made = 0
        with self.backend(store) as backend:
            for batch in plan.batches():
                if made >= run.jobs and enough(self.folder).exists():
                    break
                self._register(backend, batch, store)
                made += len(batch.drafts)
                time.sleep(run.pace if made < run.jobs else max(run.pace, SLOWLY))

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
            try:
                _act(input, context)
            except BaseException as reason:
                self._write_down("end badly", context, reason=type(reason).__name__)
                raise
            self._write_down("end", context)

        return handlers

    def _write_down(self, verb: str, context: JobContext, **more: str) -> None:
        claim = context.claim
        self.recorder.note(
            verb,
            id=str(claim.job.id),
            key=claim.job.idempotency_key,
            attempt=claim.attempt,
            token=claim.token,
            wall=time.time(),
            **more,
        )
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
        stop = stop_on_sigterm()
        relay = Relay(find_ends(read_settings(self.folder)), RelayOptions(batch=RELAY_BATCH))
        for loop in relay.loops:
            record(loop.opened.target, self.recorder, NEW if self.run_file.moves else STORE)
        relay.start()
        while not stop.wait(0.1):
            pass
        relay.stop()
        relay.close()


def stop_on_sigterm() -> threading.Event:
    """Set when it comes."""
    stop = threading.Event()

    def obey(number: int, frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, obey)
    return stop


# -- The scheduler -----------------------------------------------------------------------------------------


class SchedulerProgram(Program):
    """Registers what recurs until SIGTERM, as each worker does that has schedules. (Not in the workers: they
    work until nothing is left, and this never ends.)
    """

    def main(self) -> None:
        stop = stop_on_sigterm()
        with self.backend(self.registers_at) as backend:
            scheduler = Scheduler(backend, load_schedules(read_settings(self.folder)))
            pause = 0.0
            while not stop.wait(pause):
                try:
                    pause = min(scheduler.turn(), 0.5)
                except StoreError:
                    pause = 0.2


# -- A migration -------------------------------------------------------------------------------------------


class StaleProgram(Program):
    """Registers and works at the old store until SIGTERM, whatever has become of it. What is refused is
    dropped.
    """

    PACE = 0.1

    def main(self) -> None:
        stop = stop_on_sigterm()
        opened = get_backend(OLD, settings=read_settings(self.folder))
        plan = Plan(
            f"{self.run_file.seed}/{self.name}", 1, keys=False, future=False, transactions=False, endless=True
        )
        with Backend(OLD, lambda: record(opened.driver, self.recorder, OLD)) as backend:
            for batch in plan.batches():
                if stop.wait(self.PACE):
                    break
                with contextlib.suppress(StoreError):
                    backend.register(batch.jobs(now())[0])
                with contextlib.suppress(StoreError):
                    self._work(backend)

    def _work(self, backend: Backend) -> None:
        for claim in backend.claim(limit=1, lease=timedelta(seconds=30)):
            for verb in ("start", "end"):
                self.recorder.note(verb, id=str(claim.job.id), attempt=claim.attempt, token=claim.token)
                self.recorder.sync()
            backend.complete(claim)


class CoordinatorProgram(Program):
    """`jobctl`, with the stores that it moves jobs between recorded."""

    def main(self) -> None:
        command = os.environ[COMMAND].split()

        def open_recorded(store: StoreSettings, settings: Settings) -> Driver:
            return record_below(open_store(store, settings), self.recorder, store.name)

        setattr(ends, "open_store", open_recorded)  # noqa: B010
        os.chdir(self.folder)
        sys.argv = ["jobctl", *command]
        code: object = 0
        with self.recorder.operation("step", {"command": command}) as answer:
            try:
                jobctl()
            except SystemExit as end:
                code = end.code or 0
            answer.answered = {"code": code}
        raise SystemExit(code)


def follow(settings: Settings, recorder: Recorder) -> Backend:
    """What `get_backend()` gives where a control store is configured, recorded: what it answers, and what
    each store lets in.
    """

    def open_recorded(store: StoreSettings) -> Driver:
        return record_below(open_store(store, settings), recorder, store.name)

    default = settings.store(None)
    return Backend(
        default.name, lambda: record_route(open_routed(settings, default, open_recorded), recorder)
    )


AnyProgram: TypeAlias = (
    Producer | WorkerProgram | RelayProgram | SchedulerProgram | StaleProgram | CoordinatorProgram
)
ROLES: dict[str, type[AnyProgram]] = {
    "producer": Producer,
    "worker": WorkerProgram,
    "scheduler": SchedulerProgram,
    "relay": RelayProgram,
    "stale": StaleProgram,
    "coordinator": CoordinatorProgram,
}


def _sleep(seconds: float | SupportsIndex, /) -> None:
    threading.Event().wait(float(seconds))


def main(role: str, folder: str, name: str) -> None:
    """Be one of them."""
    if "FAKETIME" in os.environ:
        # libfaketime 0.9.10 refuses clock_nanosleep to an instant of a clock that it leaves alone, which is
        # how Python sleeps. All other waits work.
        time.sleep = _sleep
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    program = ROLES[role](Path(folder), name)
    if program.run_file.bad:
        from tests.faults.broken import break_product  # which knows all that there is

        break_product(program.run_file.bad)
    program.main()


if __name__ == "__main__":
    main(*sys.argv[1:])

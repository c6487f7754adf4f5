"""How fast `jobctl migrate` moves jobs, and what producers and workers feel of it.

    python -m benchmarks.migration_rates [--jobs 20000] [--pairs postgres-redis,postgres-rabbitmq]

For each pair of stores, on private servers: so many ready jobs that nobody works on, and beside them a
producer of one job every 20 ms with a worker who runs it, both of which follow. `jobctl migrate` runs as a
process of its own. Printed are the jobs that it moved per second of the state "moving", the memory that it
had after a quarter, half, three quarters and all of its time, and for the time before, during and after it
how long a registration took, and how long until its job started (p50 and p99, in milliseconds).

``--jobs 1000000`` shows whether the memory stays flat; give it half an hour for each pair.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from jobcontract_migrate.control import Control

from jobcontract import Backend, Job, get_backend
from jobcontract.config import Settings, load_settings
from jobcontract.errors import StoreUnavailable
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

PAIRS = "postgres-redis,postgres-rabbitmq,rabbitmq-postgres,redis-postgres,sqlite-postgres,postgres-sqlite"
EVERY = 0.02
QUIET = 5.0
"""Seconds that are measured before and after."""
LEASE = timedelta(seconds=30)
_BATCH = 1000


class Sample(NamedTuple):
    """One job of the producer: which phase it was registered in, and the two times, in seconds."""

    phase: str
    registering: float
    starting: float


def main() -> None:
    """Measure each pair and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--pairs", default=PAIRS)
    arguments = parser.parse_args()
    print(f"{arguments.jobs:,} jobs; register and start: p50/p99 in ms before, during and after the move")
    for pair in str(arguments.pairs).split(","):
        measure(pair, arguments.jobs)


def measure(pair: str, count: int) -> None:
    """Move `count` jobs from the one store to the other, and print a line."""
    kinds = pair.split("-")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {
            name: url(stack, kind, name, folder) for name, kind in zip(("old", "new"), kinds, strict=True)
        }
        urls["control"] = f"sqlite:///{folder}/control.db"
        settings = configure(folder, urls)
        with get_backend("old", settings=settings) as old, get_backend(settings=settings) as routed:
            old.install()
            routed.install()
            for start in range(0, count, _BATCH):
                old.register_many(
                    Job(kind="bulk", queue="bulk", input_ref={"number": number})
                    for number in range(start, min(start + _BATCH, count))
                )
        traffic = stack.enter_context(Traffic(settings).running())
        time.sleep(QUIET)
        traffic.phase = "during"
        memory = migrate(folder)
        traffic.phase = "after"
        time.sleep(QUIET)
        parts = "/".join(f"{memory[len(memory) * part // 4 - 1] / 1024:.0f}" for part in range(1, 5))
        print(f"{pair:20}{rate(settings, count):>9,.0f} jobs/s  {parts} MiB  {traffic.words()}", flush=True)


class Traffic:
    """A producer and a worker."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = threading.Event()
        self._registered: dict[UUID, tuple[str, float, float]] = {}
        self._samples: list[Sample] = []
        self.phase = "before"

    @contextmanager
    def running(self) -> Generator[Traffic]:
        """With both at work."""
        threads = [threading.Thread(target=self._run, args=(each,)) for each in (self._produce, self._work)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def words(self) -> str:
        """What was measured."""
        return "  ".join(
            f"{phase} {_percentiles([each.registering for each in found])} "
            f"{_percentiles([each.starting for each in found])}"
            for phase in ("before", "during", "after")
            if (found := [each for each in self._samples if each.phase == phase])
        )

    def _run(self, loop: Callable[[Backend], None]) -> None:
        with get_backend(settings=self._settings) as backend:
            while not self._stopping.is_set():
                try:
                    loop(backend)
                except StoreUnavailable:
                    time.sleep(EVERY)

    def _produce(self, backend: Backend) -> None:
        job, phase, began = Job(kind="probe", queue="probe"), self.phase, time.monotonic()
        self._registered[job.id] = phase, began, 0.0
        backend.register(job)
        self._registered[job.id] = phase, began, time.monotonic() - began
        time.sleep(EVERY)

    def _work(self, backend: Backend) -> None:
        claims = backend.claim(queues=["probe"], limit=10, lease=LEASE)
        now = time.monotonic()
        for claim in claims:
            phase, began, took = self._registered.pop(claim.job.id)
            self._samples.append(Sample(phase, took or now - began, now - began))
        if claims:
            backend.complete_many(claims)
        else:
            backend.wait(queues=["probe"], timeout=timedelta(milliseconds=200))


def configure(folder: Path, urls: dict[str, str]) -> Settings:
    """Settings for a migration between the stores "old" and "new", in a file that `migrate` finds."""
    tables = "".join(f'[backends.{name}]\nurl = "{where}"\n' for name, where in urls.items())
    file = folder / "jobcontract.toml"
    file.write_text(f'default = "old"\ncontrol = "control"\n{tables}')
    return load_settings(file, environment={})


def migrate(folder: Path) -> list[int]:
    """Run it to its seal; the memory that it had, in KiB, ten times a second."""
    command = [
        sys.executable,
        "-m",
        "jobcontract",
        "migrate",
        "--from",
        "old",
        "--to",
        "new",
        "--yes",
        "--json",
    ]
    memory: list[int] = []
    with tempfile.TemporaryFile("w+") as said:
        run = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said)
        while run.poll() is None:
            memory.append(_resident(run.pid) or memory[-1])
            time.sleep(0.1)
        if run.returncode:
            said.seek(0)
            raise SystemExit(said.read())
    return memory


def _resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)


def rate(settings: Settings, count: int) -> float:
    """Jobs per second of the state "moving" of the migration that was sealed last."""
    with closing(Control.open(settings)) as control:
        move = control.read()
        assert move is not None
        at = {event.state: event.at for event in reversed(control.events(move))}
    return count / (at["verifying"] - at["moving"])


def _percentiles(times: list[float]) -> str:
    ordered = sorted(1000 * each for each in times)
    return f"{statistics.median(ordered):.0f}/{ordered[int(0.99 * (len(ordered) - 1))]:.0f}"


def url(stack: ExitStack, kind: str, name: str, folder: Path) -> str:
    """That of a store of its own on a private server, which ends with `stack`."""
    match kind:
        case "postgres":
            return stack.enter_context(PostgresServer()).url(schema=name)
        case "redis":
            return f"{stack.enter_context(RedisServer()).url()}?namespace={secrets.token_hex(4)}"
        case "rabbitmq":
            return f"{stack.enter_context(RabbitServer()).url()}?queues=bulk,probe"
        case _:
            return f"sqlite:///{folder}/{name}.db"


if __name__ == "__main__":
    main()

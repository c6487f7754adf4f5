"""A stage for migrations: stores in one configuration, with producers and workers that write their own logs.

What was registered and what ran is counted from those logs, never from what the tool reports.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from jobcontract_migrate import Coordinator, Options, Phase
from jobcontract_migrate.control import Control, Move
from jobcontract_migrate.coordinator import Progress
from jobcontract_outbox import Relay, RelayOptions
from jobcontract_outbox.ends import find_ends

from jobcontract import Backend, Claim, Job, State, get_backend
from jobcontract.config import Settings, load_settings
from jobcontract.contract import Driver
from jobcontract.errors import StoreUnavailable
from jobcontract.side_doors import Lookup, Movable, Page, StoredJob

PATIENCE = 60.0
LEASE = timedelta(seconds=30)
PROGRAM = Path(__file__).with_name("programs.py")
ROOT = Path(__file__).parents[2]
NOTHING: Mapping[str, str] = {}


class Stage:
    """Backends by name, of which "old" is the default; `control` knows where jobs live."""

    def __init__(
        self, folder: Path, control: str, stores: Mapping[str, str], outboxes: Mapping[str, str] = NOTHING
    ) -> None:
        """`outboxes`: in front of which store, in which other one."""
        self.folder = folder
        self.file = folder / "jobcontract.toml"
        tables = "".join(
            f'[backends.{name}]\nurl = "{url}"\n'
            + (f'outbox = "{outboxes[name]}"\n' if name in outboxes else "")
            for name, url in stores.items()
        )
        self.file.write_text(f'default = "old"\ncontrol = "{control}"\n{tables}')
        self.names = tuple(stores)
        self._stack = contextlib.ExitStack()

    @property
    def settings(self) -> Settings:
        return load_settings(self.file, environment={})

    def backend(self, name: str | None = None) -> Backend:
        """A new client, closed with the stage: one that follows, unless `name` says which store."""
        backend = get_backend(name, settings=self.settings)
        self._stack.callback(backend.close)
        return backend

    def store(self, name: str) -> Driver:
        return self.backend(name).driver

    def movable(self, name: str) -> Movable:
        driver = self.store(name)
        assert isinstance(driver, Movable)
        return driver

    def control(self) -> Control:
        control = Control.open(self.settings)
        self._stack.callback(control.close)
        return control

    def move(self) -> Move:
        """The migration as the control store has it."""
        found = self.control().read()
        assert found is not None
        return found

    def forget_owner(self) -> None:
        """As if the time of the coordinator at work had run out."""
        control = self.control()
        move = control.read()
        assert move is not None
        control.let_go(move, move.owner or "")

    def install(self) -> None:
        """What a user has before the first migration: the old store, and the control tables."""
        self.backend("old").install()
        self.backend().install()

    def coordinator(
        self,
        *,
        reach: Callable[[str], None] | None = None,
        watch: Callable[[Progress], None] | None = None,
        **options: Any,
    ) -> Coordinator:
        coordinator = Coordinator(self.settings, Options(**options), reach=reach or _go_on, watch=watch)
        self._stack.callback(coordinator.close)
        return coordinator

    def migrate(
        self, source: str = "old", target: str = "new", until: Phase = Phase.SEALED, **options: Any
    ) -> Move:
        """Begin, and go on until it is sealed."""
        coordinator = self.coordinator(**options)
        coordinator.begin(source, target, {"first_source": source})
        return coordinator.run(until)

    def resume(self, until: Phase = Phase.SEALED, **options: Any) -> Move:
        return self.coordinator(**options).run(until)

    def reverse(self, until: Phase = Phase.SEALED, **options: Any) -> Move:
        coordinator = self.coordinator(**options)
        coordinator.reverse()
        return coordinator.run(until)

    @contextlib.contextmanager
    def process(
        self, *arguments: str, environment: Mapping[str, str] = os.environ
    ) -> Generator[subprocess.Popen[str]]:
        """A Python process with `arguments`, in the folder of the stage; killed at the end."""
        running = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={name: value for name, value in environment.items() if not name.startswith("JOBCONTRACT_")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield running
        finally:
            if running.poll() is None:
                running.send_signal(signal.SIGKILL)
            running.communicate()

    def jobctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`jobctl` with `arguments`, run to its end."""
        return subprocess.run(
            [sys.executable, "-m", "jobcontract", *arguments],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("JOBCONTRACT_")},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    @contextlib.contextmanager
    def relaying(self) -> Generator[None]:
        """With a relay at work for every outbox."""
        relay = Relay(find_ends(self.settings), RelayOptions())
        relay.start()
        try:
            yield
        finally:
            relay.stop()
            relay.close()

    def close(self) -> None:
        self._stack.close()


def _go_on(point: str) -> None:
    del point


class Traffic:
    """A producer and workers in threads of this process, each with a client of its own that follows."""

    def __init__(self, stage: Stage, *, workers: int = 2, every: float = 0.01, keyed: bool = True) -> None:
        self._stage = stage
        self._every = every
        self._keyed = keyed
        self._stopping = threading.Event()
        self._workers = workers
        self.registered: dict[UUID, Job] = {}
        """By id, the jobs whose registration returned."""
        self.ran: list[UUID] = []
        """The jobs that a handler finished, once for each time."""
        self.failures: list[Exception] = []
        """What the producer was told."""
        self.faults: list[BaseException] = []
        self.slowest = 0.0
        """The longest registration, in seconds."""
        self._threads = [threading.Thread(target=self._guarded, args=(self._produce,), daemon=True)]
        self._threads += [
            threading.Thread(target=self._guarded, args=(self._work,), daemon=True) for _ in range(workers)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        if self.faults:
            raise self.faults[0]

    def until_more(self, count: int = 20) -> None:
        """Until so many further jobs were registered, and have run."""
        registered, ran = len(self.registered), len(self.ran)
        until(
            lambda: (
                (len(self.registered) >= registered + count and len(self.ran) >= ran + count)
                or bool(self.faults)
            )
        )

    def _guarded(self, loop: Callable[[Backend], None]) -> None:
        try:
            loop(self._stage.backend())
        except BaseException as fault:
            self.faults.append(fault)

    def _produce(self, backend: Backend) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            key = f"document {number // 2}" if self._keyed else None  # each key twice
            made = Job(kind="work", input_ref={"number": number}, idempotency_key=key)
            began = time.monotonic()
            while True:
                try:
                    answer = backend.register(made)
                except StoreUnavailable as error:
                    self.failures.append(error)
                    time.sleep(0.02)
                else:
                    break
            self.slowest = max(self.slowest, time.monotonic() - began)
            if answer.created or answer.job_id == made.id:
                self.registered[made.id] = made
            else:
                assert answer.job_id in self.registered, "a key was known too early"
            time.sleep(self._every)

    def _work(self, backend: Backend) -> None:
        while not self._stopping.is_set():
            try:
                claims = backend.claim(limit=5, lease=LEASE)
                for claim in claims:
                    backend.complete(claim)
                    self.ran.append(claim.job.id)
            except StoreUnavailable:
                time.sleep(0.02)
                continue
            if not claims:
                backend.wait(timeout=timedelta(milliseconds=50))


def program(stage: Stage, *arguments: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """A process of `programs.py`."""
    return stage.process(str(PROGRAM), *arguments, environment=os.environ | {"PYTHONPATH": str(ROOT)})


def run_and_die(stage: Stage, verb: str, point: str, after: int) -> None:
    """A coordinator in a process of its own does `verb`, and is killed with -9 the `after`-th time that it
    reaches `point`.
    """
    with program(stage, str(stage.file), verb, point, str(after)) as run:
        _, said = run.communicate(timeout=100)
    assert run.returncode == -signal.SIGKILL, said


def claim_when_there(backend: Backend, count: int = 1) -> list[Claim]:
    """At least so many jobs, as soon as they can be claimed."""
    found: list[Claim] = []

    def there() -> bool:
        found.extend(backend.claim(limit=10, lease=LEASE))
        return len(found) >= count

    until(there)
    return found


def drain(backend: Backend, ran: list[UUID], expected: int) -> None:
    """Run what is left, until `expected` different jobs have run and nothing is ready."""

    def empty() -> bool:
        while claims := backend.claim(limit=200, lease=LEASE):
            assert all(verdict.applied for verdict in backend.complete_many(claims))
            ran.extend(claim.job.id for claim in claims)
        return len(set(ran)) >= expected

    until(empty)


def assert_each_ran_once(registered: Iterable[UUID], ran: Iterable[UUID]) -> None:
    """The conservation law, from the logs of those who registered and ran."""
    counted = Counter(ran)
    lost = set(registered) - set(counted)
    unknown = set(counted) - set(registered)
    twice = {job_id: count for job_id, count in counted.items() if count > 1}
    assert (lost, unknown, twice) == (set(), set(), {})


def all_jobs(driver: Driver) -> dict[str, StoredJob]:
    """Every job of a store, traces and canaries excepted."""
    assert isinstance(driver, Lookup)
    found: dict[str, StoredJob] = {}
    cursor = None
    while page := driver.jobs(Page(limit=500, cursor=cursor)):
        found |= {each.record.id: each for each in page if each.record.kind != "jobcontract.canary"}
        cursor = page[-1].cursor
    return {key: each for key, each in found.items() if each.state not in (State.MOVING, State.MOVED)}


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Block until `condition` holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"it did not come true within {seconds:g} s")
        time.sleep(0.02)

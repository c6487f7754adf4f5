"""What a move costs those who wait: ticks happen once, scheduled jobs run in time, and nobody waits for the
cut-over for longer than was said.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from jobcontract_migrate import Phase

from jobcontract import Backend, Job, StoreUnavailable
from jobcontract.errors import StoreClosed
from jobcontract.schedules import Interval, Schedule, Scheduler
from jobcontract.schedules.schedule import TICK_HEADER
from tests.migrate.conftest import MakeStage
from tests.migrate.stage import LEASE, Stage, Traffic, drain, until

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
CUT_OVER = 2 * SECOND
LATE = 2 * SECOND
"""As docs/migrating.md has it."""
BUSY = 2 * SECOND
"""What a machine that does much else may take for what is done at once."""
EVERY = Schedule(name="every", ticks=Interval(SECOND), kind="tick")


class Running:
    """Workers and schedulers in threads of this process, and when each job was claimed by its clock."""

    def __init__(self, stage: Stage, *, schedulers: int = 0) -> None:
        self._stage = stage
        self._schedulers = schedulers
        self._stopping = threading.Event()
        self._faults: list[BaseException] = []
        self.claimed: list[tuple[Job, datetime]] = []

    @contextmanager
    def at_work(self) -> Generator[Running]:
        loops = [self._work, self._work, *([self._schedule] * self._schedulers)]
        threads = [threading.Thread(target=self._guarded, args=(loop,), daemon=True) for loop in loops]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(60)
        assert self._faults == []

    def ticks(self) -> list[datetime]:
        return [
            datetime.fromisoformat(job.headers[TICK_HEADER])
            for job, _ in list(self.claimed)
            if job.kind == "tick"
        ]

    def _guarded(self, loop: object) -> None:
        assert callable(loop)
        try:
            loop(self._stage.backend())
        except BaseException as fault:
            self._faults.append(fault)

    def _schedule(self, backend: Backend) -> None:
        scheduler = Scheduler(backend, [EVERY])
        while not self._stopping.is_set():
            try:
                pause = scheduler.turn()
            except StoreUnavailable:
                pause = 0.05
            self._stopping.wait(pause)

    def _work(self, backend: Backend) -> None:
        while not self._stopping.is_set():
            claims = backend.claim(limit=5, lease=LEASE)
            now = datetime.now(UTC)
            self.claimed += [(claim.job, now) for claim in claims]
            backend.complete_many(claims)
            if not claims:
                backend.wait(timeout=timedelta(milliseconds=50))


def move_over_a_tick(stage: Stage, running: Running) -> None:
    """A move in which two ticks fall due while nobody can register."""

    def reach(point: str) -> None:
        if point == "fenced":
            fenced_at = datetime.now(UTC)
            until(lambda: datetime.now(UTC) > fenced_at + 2 * SECOND)

    before = len(running.ticks())
    until(lambda: len(running.ticks()) > before + 1)
    coordinator = stage.coordinator(reach=reach, cutover_timeout=timedelta(seconds=30))
    coordinator.begin("old", "new", {"first_source": "old"})
    assert coordinator.run(Phase.SEALED).state is Phase.SEALED
    behind = len(running.ticks())
    until(lambda: len(running.ticks()) > behind + 2)


def assert_each_tick_once(running: Running) -> None:
    """Up to the last one that ran by now: later ones may be on their way when everything stops."""
    first, last = min(running.ticks()), max(running.ticks())
    expected = Counter(first + n * SECOND for n in range(round((last - first) / SECOND) + 1))
    until(lambda: expected.keys() <= set(running.ticks()))
    assert Counter(tick for tick in running.ticks() if tick <= last) == expected


def test_ticks_that_fall_into_the_cut_over_happen_once(stage: Stage) -> None:
    running = Running(stage, schedulers=2)
    with running.at_work():
        move_over_a_tick(stage, running)
        assert_each_tick_once(running)


def test_ticks_go_on_behind_an_outbox(make_stage: MakeStage, postgres_url: str, broker_url: str) -> None:
    behind = make_stage("old", outbox="old", old=postgres_url, new=broker_url)
    behind.backend("new").install()
    running = Running(behind, schedulers=2)
    with behind.relaying(), running.at_work():
        move_over_a_tick(behind, running)
        assert_each_tick_once(running)


def scheduled_jobs(count: int) -> list[Job]:
    """One job is due every 20 ms, from now on."""
    now = datetime.now(UTC)
    return [Job(kind="work", run_at=now + n * timedelta(milliseconds=20)) for n in range(count)]


def latest(running: Running, jobs: list[Job]) -> timedelta:
    due = {job.id: job.run_at for job in jobs}
    claimed_at: dict[UUID, datetime] = {job.id: at for job, at in running.claimed}
    assert claimed_at.keys() == due.keys()
    return max(at - run_at for job_id, at in claimed_at.items() if (run_at := due[job_id]) is not None)


def late_by_a_move(stage: Stage) -> timedelta:
    """How late the latest of jobs was which fell due all through a move, beside many that do later."""
    old = stage.backend("old")
    old.register_many([Job(kind="work", queue="later", run_at=datetime.now(UTC) + HOUR) for _ in range(3000)])
    running = Running(stage)
    with running.at_work():
        jobs = scheduled_jobs(400)
        old.register_many(jobs)
        assert stage.migrate(batch=500).state is Phase.SEALED
        until(lambda: len(running.claimed) >= len(jobs))
    return latest(running, jobs)


def test_a_scheduled_job_is_not_late_because_of_a_move(stage: Stage) -> None:
    assert late_by_a_move(stage) <= LATE


def test_a_scheduled_job_is_due_at_the_broker_to_the_second(
    make_stage: MakeStage, postgres_url: str, broker_url: str
) -> None:
    stage = make_stage("old", old=postgres_url, new=broker_url)
    assert late_by_a_move(stage) <= LATE + SECOND


def leave_the_fence_up(stage: Stage) -> None:
    """A coordinator that ends right behind the fence: the longest that one can hold."""

    def reach(point: str) -> None:
        if point == "gates of fencing":
            raise KeyboardInterrupt

    coordinator = stage.coordinator(reach=reach, cutover_timeout=CUT_OVER)
    coordinator.begin("old", "new", {"first_source": "old"})
    with pytest.raises(KeyboardInterrupt):
        coordinator.run(Phase.SEALED)
    stage.forget_owner()


def assert_nobody_waits_for_longer(stage: Stage) -> None:
    with Traffic(stage, keyed=False) as traffic:
        traffic.until_more()
        leave_the_fence_up(stage)
        until(lambda: stage.move().state is Phase.DUAL_READ)  # one of them has lifted it
        traffic.until_more()
    assert traffic.failures == []
    assert CUT_OVER / 2 < timedelta(seconds=traffic.slowest) <= CUT_OVER + BUSY
    assert stage.resume().state is Phase.SEALED
    drain(stage.backend(), traffic.ran, len(traffic.registered))


def test_a_producer_waits_for_the_timeout_at_the_longest(stage: Stage) -> None:
    assert_nobody_waits_for_longer(stage)


def test_so_does_a_producer_of_a_broker(broker_stage: Stage) -> None:
    assert_nobody_waits_for_longer(broker_stage)


@pytest.fixture
def own(files: Stage) -> Iterator[sqlite3.Connection]:
    """The application's connection to the old file, which also knows where jobs live, with a table of its
    own.
    """
    path = files.settings.store("old").url.path.removeprefix("/")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE own (n)")
        yield connection


@pytest.mark.parametrize("writes", [False, True], ids=["registers alone", "writes first"])
def test_a_transaction_of_the_callers_own_on_sqlite_is_refused_for_no_longer(
    files: Stage, own: sqlite3.Connection, writes: bool
) -> None:
    """It would keep everybody else from writing, the coordinator too. Nobody else could lift the fence."""
    backend = files.backend()
    backend.register(Job(kind="work"), connection=own)
    own.commit()
    leave_the_fence_up(files)
    began, refusals = time.monotonic(), 0
    while True:
        if writes:
            own.execute("INSERT INTO own VALUES (1)")
        try:
            backend.register(Job(kind="work"), connection=own)
        except StoreClosed:
            own.rollback()
            refusals += 1
            time.sleep(0.02)
        else:
            own.commit()
            break
    assert refusals
    assert timedelta(seconds=time.monotonic() - began) <= CUT_OVER + BUSY


def test_a_caller_who_holds_the_file_does_not_wait_for_himself(files: Stage, own: sqlite3.Connection) -> None:
    """Now and then a client writes down that it is there, and who can't do that goes on."""
    backend = files.backend()
    slowest, began = 0.0, time.monotonic()
    while time.monotonic() < began + 4:  # it looks every three seconds
        own.execute("INSERT INTO own VALUES (1)")
        before = time.monotonic()
        backend.register(Job(kind="work"), connection=own)
        slowest = max(slowest, time.monotonic() - before)
        own.commit()
        time.sleep(0.02)
    assert timedelta(seconds=slowest) < BUSY

"""Limits that hold across processes, also when the one who holds a slot is killed."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from jobcontract import Backend, Handlers, Job, State, get_backend
from jobcontract.config import Settings, load_settings
from jobcontract.contract import Lease
from jobcontract.errors import ConfigError, Unsupported
from jobcontract.limits import SharedLimits, Slot, SlotRequest, shared_limits_of
from jobcontract.worker import Worker
from tests.servers.rabbitmq import RabbitServer
from tests.worker.conftest import open_installed
from tests.worker.processes import WorkerProcess
from tests.worker.running import PROMPT, RunningWorker, eventually

LONG, SHORT = timedelta(minutes=5), timedelta(milliseconds=50)


def claimed(job_id: str | None = None) -> Lease:
    """A claim; all that a slot needs of it."""
    return Lease(job_id or str(uuid4()), "default", uuid4().hex, 1, datetime.now(UTC))


@pytest.fixture
def shared(shared_url: str) -> SharedLimits:
    backend = open_installed(shared_url)
    limits = shared_limits_of(backend.driver)
    assert limits is not None
    return limits


def take(limits: SharedLimits, *asked: tuple[Lease, str, int], length: timedelta = LONG) -> list[bool]:
    return limits.take_slots([SlotRequest(lease, (Slot(name, most),)) for lease, name, most in asked], length)


class TestSlots:
    def test_there_are_as_many_as_the_limit_says(self, shared: SharedLimits) -> None:
        first, *others = (claimed() for _ in range(4))
        assert take(shared, *((lease, "a", 2) for lease in (first, *others))) == [True, True, False, False]
        assert take(shared, (others[2], "b", 2)) == [True], "another limit is another limit"
        shared.free_slots([first])
        assert take(shared, (others[1], "a", 2), (others[2], "a", 2)) == [True, False]

    def test_a_job_has_all_of_its_slots_or_none(self, shared: SharedLimits) -> None:
        one, two, three = claimed(), claimed(), claimed()
        assert take(shared, (one, "a", 1)) == [True]
        both = SlotRequest(two, (Slot("b", 1), Slot("a", 1)))
        assert shared.take_slots([both], LONG) == [False]
        assert take(shared, (three, "b", 1)) == [True], "nothing was kept of what was denied"

    def test_a_job_that_is_claimed_again_has_its_slot_at_once(self, shared: SharedLimits) -> None:
        killed = claimed()
        assert take(shared, (killed, "a", 1)) == [True]
        again = claimed(killed.job_id)
        assert take(shared, (again, "a", 1)) == [True]
        shared.free_slots([killed])
        assert take(shared, (claimed(), "a", 1)) == [False], "the stale claim frees nothing"
        assert shared.keep_slots([killed], LONG) == [False]
        assert shared.keep_slots([again], LONG) == [True]

    def test_one_that_is_not_renewed_runs_out_and_is_not_revived(self, shared: SharedLimits) -> None:
        gone = claimed()
        assert take(shared, (gone, "a", 1), length=SHORT) == [True]
        next_one = claimed()
        eventually(lambda: take(shared, (next_one, "a", 1)) == [True])
        assert shared.keep_slots([gone], LONG) == [False]
        assert shared.keep_slots([next_one], LONG) == [True]

    def test_of_many_who_ask_at_once_the_limit_is_never_exceeded(self, shared: SharedLimits) -> None:
        holding, most = 0, 0
        lock = threading.Lock()
        faults: list[BaseException] = []

        def run() -> None:
            nonlocal holding, most
            try:
                for _ in range(8):
                    lease = claimed()
                    if take(shared, (lease, "a", 3)) == [True]:
                        with lock:
                            holding += 1
                            most = max(most, holding)
                        time.sleep(0.002)
                        with lock:
                            holding -= 1
                        shared.free_slots([lease])
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=run) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert faults == []
        assert 1 <= most <= 3


class TestTurns:
    def test_they_are_evenly_spaced_for_all_who_ask(self, shared: SharedLimits) -> None:
        spacing, horizon = timedelta(seconds=20), timedelta(seconds=70)
        started = time.monotonic()
        turns = [
            turn + timedelta(seconds=time.monotonic() - started)
            for _ in range(4)
            for turn in shared.take_turns("a", 2, spacing, horizon)
        ]
        assert len(turns) == 4, "no more than lie within the horizon"
        for earlier, later in pairwise(turns):
            assert abs((later - earlier - spacing).total_seconds()) < 15
        assert shared.take_turns("a", 1, spacing, horizon) == []
        assert shared.take_turns("b", 1, spacing, horizon) == [timedelta()]

    def test_a_clock_that_was_put_back_stops_nobody_for_long(self, shared: SharedLimits) -> None:
        """The next turn is noted for a time that is far ahead by now."""
        spacing = timedelta(seconds=1)
        shared.take_turns("a", 1, timedelta(days=400), timedelta())
        assert shared.take_turns("a", 1, spacing, timedelta(seconds=2)) == [timedelta()]


class Run(NamedTuple):
    worker: str
    job: str
    key: str
    start: float
    end: float | None


def runs(file: Path) -> list[Run]:
    """What the workers wrote, by start."""
    found: dict[tuple[str, str], Run] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        event, worker, job, key, at = line.split()
        if event == "start":
            found[worker, job] = Run(worker, job, key, float(at), None)
        else:
            found[worker, job] = found[worker, job]._replace(end=float(at))
    return sorted(found.values(), key=lambda run: run.start)


def most_at_once(found: list[Run], ended: float) -> int:
    """How many ran at the same time; those of a killed worker ended then."""
    changes = [(run.start, 1) for run in found] + [(run.end or ended, -1) for run in found]
    count = most = 0
    for _, change in sorted(changes):
        count += change
        most = max(most, count)
    return most


def worker(
    url: str, file: Path, name: str, *, seconds: float = 0.2, grace: float = 10, **terms: object
) -> WorkerProcess:
    arguments = (url, str(file), name, json.dumps(terms), str(seconds), str(grace))
    return WorkerProcess(*arguments, module="tests.worker.limited")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def store(shared_url: str) -> Backend:
    return open_installed(shared_url)


def all_done(store: Backend, jobs: list[Job]) -> Callable[[], bool]:
    def look() -> bool:
        states = [found.state for job in jobs if (found := store.get(job.id)) is not None]
        return states.count(State.DONE) == len(jobs)

    return look


def test_no_more_than_the_limit_run_at_once_in_two_processes(
    shared_url: str, store: Backend, file: Path
) -> None:
    jobs = [Job(kind="limited") for _ in range(12)]
    store.register_many(jobs)
    with (
        worker(shared_url, file, "one", total_concurrency=2),
        worker(shared_url, file, "two", total_concurrency=2),
    ):
        eventually(all_done(store, jobs), within=90)
    found = runs(file)
    assert len(found) == 12
    assert most_at_once(found, time.time()) == 2
    assert all(
        status is not None and status.attempt >= 1 for status in map(store.get, (job.id for job in jobs))
    )


def test_a_killed_holder_leaks_no_slot_and_leaves_none_double(
    shared_url: str, store: Backend, file: Path
) -> None:
    jobs = [Job(kind="limited") for _ in range(3)]
    store.register_many(jobs)
    with worker(shared_url, file, "killed", seconds=600, total_concurrency=1) as killed:
        eventually(lambda: runs(file))
        killed.kill()
    at = time.time()
    with worker(shared_url, file, "next", total_concurrency=1):
        eventually(all_done(store, jobs), within=60)
    found = runs(file)
    assert len(found) == 4, "the one that was killed ran again"
    assert most_at_once(found, at) == 1


def test_a_worker_that_stops_without_grace_gives_its_slot_back(
    shared_url: str, store: Backend, file: Path
) -> None:
    jobs = [Job(kind="limited", max_attempts=1) for _ in range(2)]
    store.register_many(jobs)
    with worker(shared_url, file, "stopped", seconds=600, grace=0, total_concurrency=1) as stopped:
        eventually(lambda: runs(file))
        stopped.send(signal.SIGTERM)
        assert stopped.wait() == 0
    limits = shared_limits_of(store.driver)
    assert limits is not None
    probe = claimed()
    assert take(limits, (probe, "kind:limited", 1)) == [True], "it is free at once"
    limits.free_slots([probe])
    with worker(shared_url, file, "next", total_concurrency=1):
        eventually(all_done(store, jobs), within=60)  # with the one attempt that each has


def test_jobs_of_one_key_run_one_after_the_other_and_keys_beside_each_other(
    shared_url: str, store: Backend, file: Path
) -> None:
    jobs = [Job(kind="limited", headers={"concurrency-key": key}) for key in "abab"]
    jobs.append(Job(kind="limited"))
    store.register_many(jobs)
    with worker(shared_url, file, "one", seconds=1.5, key_concurrency=1):
        eventually(all_done(store, jobs), within=60)
    found = runs(file)
    for key in "ab":
        assert most_at_once([run for run in found if run.key == key], time.time()) == 1
    assert most_at_once(found, time.time()) >= 2


def test_starts_are_spaced_by_the_rate_across_two_processes(
    shared_url: str, store: Backend, file: Path
) -> None:
    jobs = [Job(kind="limited") for _ in range(8)]
    store.register_many(jobs)
    with (
        worker(shared_url, file, "one", seconds=0, rate="2/s"),
        worker(shared_url, file, "two", seconds=0, rate="2/s"),
    ):
        eventually(all_done(store, jobs), within=60)
    found = runs(file)
    assert len(found) == 8
    # A start may be late, and the next one then comes sooner after it; over all of them the rate holds.
    assert found[-1].start - found[0].start >= 7 * 0.5 - 1.0


def test_a_store_without_tables_can_t_have_them(handlers: Handlers, memory: Backend) -> None:
    @handlers.handler("limited", total_concurrency=1)
    def handle(input: object) -> None: ...

    with pytest.raises(Unsupported, match=r"total_concurrency, key_concurrency and rate \(of limited\) need"):
        Worker(memory, handlers, PROMPT).run()


def test_who_follows_the_control_store_has_them_there(tmp_path: Path, handlers: Handlers) -> None:
    file = tmp_path / "jobcontract.toml"
    file.write_text(
        f'default = "jobs"\ncontrol = "control"\n[backends.jobs]\nurl = "sqlite:///{tmp_path}/jobs.db"\n'
        f'[backends.control]\nurl = "sqlite:///{tmp_path}/control.db"\n'
    )
    at_once: list[int] = []
    running: set[int] = set()

    @handlers.handler("limited", total_concurrency=1, lease="5s")
    def handle(input: dict[str, int]) -> None:
        running.add(input["number"])
        at_once.append(len(running))
        running.discard(input["number"])

    settings = load_settings(file, environment={})
    with get_backend(settings=settings) as backend, get_backend("control", settings=settings) as control:
        backend.install()
        backend.register_many([Job(kind="limited", input_ref={"number": number}) for number in range(3)])
        with RunningWorker(backend, handlers):
            eventually(lambda: len(at_once) == 3, within=60)
        assert at_once == [1, 1, 1]
        limits, there = shared_limits_of(backend.driver), shared_limits_of(control.driver)
        assert limits is not None
        assert there is not None
        assert take(limits, (claimed(), "kind:limited", 1)) == [True]
        assert take(there, (claimed(), "kind:limited", 1)) == [False], "the same slots"


def test_a_broker_has_them_in_the_database_of_its_outbox(
    tmp_path: Path, handlers: Handlers, rabbitmq_server: RabbitServer
) -> None:
    url = rabbitmq_server.url(rabbitmq_server.create_vhost())
    file = tmp_path / "jobcontract.toml"
    file.write_text(
        f'default = "q"\n[backends.q]\nurl = "{url}"\noutbox = "host"\n'
        f'[backends.host]\nurl = "sqlite:///{tmp_path}/host.db"\n'
    )
    ran: list[int] = []

    @handlers.handler("limited", total_concurrency=1, lease="5s")
    def handle(input: dict[str, int]) -> None:
        ran.append(input["number"])

    with get_backend(settings=load_settings(file, environment={})) as backend:
        backend.install()
        direct = get_backend(url, settings=Settings())
        direct.register_many([Job(kind="limited", input_ref={"number": number}) for number in range(3)])
        with RunningWorker(backend, handlers):
            eventually(lambda: sorted(ran) == [0, 1, 2], within=60)
        limits = shared_limits_of(backend.driver)
        assert limits is not None
        assert take(limits, (claimed(), "kind:limited", 1)) == [True]
        direct.close()


@pytest.mark.parametrize("rate", ["fast", "0/s", "10", "10/d", "1.5/s", ""])
def test_a_rate_is_written_in_one_way(handlers: Handlers, rate: str) -> None:
    with pytest.raises(ConfigError, match=r"the handler of 'limited': rate must be written as 10/s"):
        handlers.handler("limited", rate=rate)

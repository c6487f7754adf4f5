"""Many processes on one file, some of them killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import TypeAlias

import pytest

from jobcontract.contract import State
from tests.sqlite.stores import QUEUES, Edit, FileStore

Start: TypeAlias = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Starts one of tests/sqlite/programs.py on the store; ends what is left of them afterwards."""
    processes: list[subprocess.Popen[str]] = []

    def start(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.sqlite.programs", program, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_processes_share_a_queue_and_run_each_job_once(store: FileStore, start: Start) -> None:
    job_ids = store.add(600)
    outputs = [process.communicate(timeout=60)[0] for process in [start("drain") for _ in range(4)]]
    done = Counter(line.split()[0] for output in outputs for line in output.splitlines())
    assert done == Counter(job_ids)
    assert all(line.endswith(" 1 True") for output in outputs for line in output.splitlines())


def test_what_was_acknowledged_to_a_killed_producer_is_there(store: FileStore, start: Start) -> None:
    for _ in range(3):
        process = start("register")
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(20)]
        process.kill()
        acknowledged.append(process.stdout.read().rpartition("\n")[0])
        for job_id in "".join(acknowledged).split():
            stored = store.driver.get(job_id)
            assert stored is not None
            assert stored.state is State.READY


def test_a_killed_drainer_loses_no_job_and_doubles_no_completion(
    store: FileStore, start: Start, edit: Edit
) -> None:
    job_ids = [*store.add(1000), *store.add(1000)]
    told: list[str] = []
    for _ in range(3):
        victim = start("drain")
        assert victim.stdout is not None
        told += [victim.stdout.readline() for _ in range(50)]
        victim.kill()
        told += victim.stdout.read().rpartition("\n")[0].splitlines()
    acknowledged = {line.split()[0] for line in told}
    # What the victims held is still theirs, until the leases end. Nobody waits for that here.
    edit("UPDATE jobcontract_jobs SET lease_until = 1 WHERE state = 'running'")
    rescued = store.driver.rescue(100)
    assert rescued.ready <= 3 * 5  # one batch each
    output, _ = start("drain").communicate(timeout=60)
    finished_later = {line.split()[0] for line in output.splitlines()}
    assert not acknowledged & finished_later
    stored = [store.driver.get(job_id) for job_id in job_ids]
    assert {each.state for each in stored if each is not None} == {State.DONE}
    assert all(each is not None and each.attempt <= 2 for each in stored)
    assert edit("PRAGMA integrity_check") == [("ok",)]


def test_the_job_of_a_killed_worker_is_claimable_within_its_lease(store: FileStore, start: Start) -> None:
    (job_id,) = store.add()
    worker = start("hold")
    assert worker.stdout is not None
    assert worker.stdout.readline().strip() == job_id
    worker.kill()
    deadline = time.monotonic() + 10
    while not (rescued := store.driver.rescue(1)).ready:
        assert time.monotonic() < deadline
    assert rescued.ready == 1
    (again,) = store.claim()
    assert (again.lease.job_id, again.lease.attempt) == (job_id, 2)


def test_a_job_that_another_process_registers_ends_a_wait(store: FileStore, start: Start) -> None:
    producer = start("register_when_told")
    assert producer.stdin is not None
    assert producer.stdout is not None
    assert producer.stdout.readline() == "ready\n"
    woken = Event()

    def wait() -> None:
        if store.driver.wait(QUEUES, timedelta(seconds=30)):
            woken.set()

    waiting = Thread(target=wait)
    waiting.start()
    assert not woken.wait(0.3)  # nothing to do yet
    producer.stdin.write("\n")
    producer.stdin.flush()
    assert woken.wait(5)
    waiting.join()
    assert len(store.claim()) == 1

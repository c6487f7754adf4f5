"""Several worker processes under one supervisor: restarted when they die, stopped with it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobcontract import Backend, ConfigError, Handlers, Job, State
from jobcontract.worker import Worker, follow_supervisor, is_supervised
from tests.worker.claims import nothing
from tests.worker.conftest import open_installed
from tests.worker.processes import WorkerProcess
from tests.worker.running import await_state, eventually

MODULE = "tests.worker.supervised"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where the store is; which one it is does not matter here."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def shared(url: str) -> Iterator[Backend]:
    """The store."""
    with open_installed(url) as backend:
        yield backend


def children_of(supervisor: WorkerProcess) -> list[int]:
    """The pids of its worker processes."""
    path = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def lives(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def are_gone(pids: list[int]) -> Callable[[], bool]:
    return lambda: not any(map(lives, pids))


def test_each_process_works(shared: Backend, url: str) -> None:
    jobs = [Job(kind="job") for _ in range(50)]
    shared.register_many(jobs)
    with WorkerProcess("2", url, module=MODULE) as supervisor:
        for job in jobs:
            await_state(shared, job, State.DONE)
        assert len(children_of(supervisor)) == 2
        supervisor.send(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_a_process_that_dies_is_started_again(shared: Backend, url: str) -> None:
    with WorkerProcess("2", url, module=MODULE) as supervisor:
        first, second = eventually(lambda: _two(children_of(supervisor)))
        os.kill(first, signal.SIGKILL)
        eventually(lambda: "ended with SIGKILL; starting it again" in supervisor.log)
        now = eventually(lambda: _two([pid for pid in children_of(supervisor) if pid != first]))
        assert second in now
        job = Job(kind="job")
        shared.register(job)
        await_state(shared, job, State.DONE)
        supervisor.send(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_a_job_that_crashes_its_process_costs_no_other_job(shared: Backend, url: str) -> None:
    crash, jobs = Job(kind="crash", max_attempts=1), [Job(kind="job") for _ in range(20)]
    shared.register_many([crash, *jobs])
    with WorkerProcess("2", url, module=MODULE) as supervisor:
        for job in jobs:
            await_state(shared, job, State.DONE)
        await_state(shared, crash, State.DEAD)
        assert "ended with SIGABRT" in supervisor.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_to_all_of_them_is_one_stop_with_grace(
    shared: Backend, url: str, number: signal.Signals
) -> None:
    """As a service manager does, which sends it to the supervisor and to each child."""
    with WorkerProcess("2", url, module=MODULE) as supervisor:
        children = eventually(lambda: _two(children_of(supervisor)))
        eventually(lambda: supervisor.log.count("worker started") == 2)
        for pid in [*children, supervisor.pid]:
            os.kill(pid, number)
        assert supervisor.wait() == 0
        assert "stopping now" not in supervisor.log
        assert supervisor.log.count("worker stopped") == 2


def test_the_second_signal_reaches_the_children(shared: Backend, url: str) -> None:
    job = Job(kind="stubborn", max_attempts=1)
    shared.register(job)
    with WorkerProcess("1", url, module=MODULE) as supervisor:
        await_state(shared, job, State.RUNNING)
        supervisor.send(signal.SIGTERM)
        eventually(lambda: "stopping: 1 jobs are held" in supervisor.log)
        supervisor.send(signal.SIGTERM)
        assert supervisor.wait() == 0

    (claim,) = shared.claim()
    assert claim.spent == 1


def test_the_children_end_when_their_supervisor_is_killed(shared: Backend, url: str) -> None:
    with WorkerProcess("2", url, module=MODULE) as supervisor:
        children = eventually(lambda: _two(children_of(supervisor)))
        eventually(lambda: supervisor.log.count("worker started") == 2)
        supervisor.kill()
        eventually(are_gone(children))


def test_a_wrong_setting_ends_them_all(tmp_path: Path) -> None:
    with WorkerProcess("2", "nosuch://", module=MODULE) as supervisor:
        assert supervisor.wait() == 2
        assert "starting it again" not in supervisor.log


def test_until_empty_ends_with_the_last_job(shared: Backend, url: str) -> None:
    jobs = [Job(kind="job") for _ in range(100)]
    shared.register_many(jobs)
    with WorkerProcess("2", url, "until empty", module=MODULE) as supervisor:
        assert supervisor.wait() == 0

    assert all(status.state is State.DONE for status in shared.jobs(limit=1000))


def test_a_process_without_a_supervisor_follows_none(memory: Backend, handlers: Handlers) -> None:
    handlers.handler("job")(nothing)

    assert not is_supervised()
    follow_supervisor(Worker(memory, handlers))


def test_a_garbled_pipe_is_a_setting(
    memory: Backend, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers.handler("job")(nothing)
    monkeypatch.setenv("JOBCTL_SUPERVISOR_PIPE", "elsewhere")

    assert is_supervised()
    with pytest.raises(ConfigError, match="JOBCTL_SUPERVISOR_PIPE"):
        follow_supervisor(Worker(memory, handlers))
    assert not is_supervised()


def _two(pids: list[int]) -> list[int] | None:
    return pids if len(pids) == 2 else None


assert sys.platform == "linux", "the tests read /proc"

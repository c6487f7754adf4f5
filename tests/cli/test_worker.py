"""`jobctl worker`, as processes: what the worker itself does is tested in tests/worker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobcontract import Backend, State
from tests.cli.conftest import Run, get, put
from tests.cli.process import Process, until

APPLICATION = """
import os, sys, time
from pathlib import Path
from jobcontract import Handlers

handlers = Handlers()
nothing = Handlers()

@handlers.handler("touch")
def touch(input):
    Path(input["name"]).write_text(str(os.getpid()))

@handlers.handler("wait")
def wait(input):
    Path("waiting").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def application(folder: Path) -> None:
    (folder / "app.py").write_text(APPLICATION)


def test_until_empty_runs_what_is_there_and_ends_well(backend: Backend, folder: Path) -> None:
    jobs = [put(backend, State.READY, kind="touch", input_ref={"name": f"out{n}"}) for n in range(3)]
    other = put(backend, State.READY, kind="touch", queue="other", input_ref={"name": "not"})
    with Process("worker", "app:handlers", "--until-empty", folder=folder) as jobctl:
        ran = jobctl.end()
    assert (ran.code, ran.out) == (0, "")
    assert all(get(backend, job.id).state is State.DONE for job in jobs)
    assert get(backend, other.id).state is State.READY
    assert "]: worker stopped after" in ran.err
    assert "3 completed, 0 failed" in ran.err


def test_several_queues_are_served(backend: Backend, folder: Path) -> None:
    put(backend, State.READY, kind="touch", queue="a", input_ref={"name": "outa"})
    put(backend, State.READY, kind="touch", queue="b", input_ref={"name": "outb"})
    with Process("worker", "app:handlers", "--queues", "a, b", "--until-empty", folder=folder) as jobctl:
        assert jobctl.end().code == 0
    assert (folder / "outa").exists()
    assert (folder / "outb").exists()


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("signal", ["interrupt", "terminate"])
def test_the_first_signal_lets_what_runs_finish_and_ends_with_0(
    backend: Backend, folder: Path, processes: int, signal: str
) -> None:
    job = put(backend, State.READY, kind="wait")
    with Process("worker", "app:handlers", "--processes", processes, folder=folder) as jobctl:
        until((folder / "waiting").exists)
        getattr(jobctl, signal)()
        (folder / "go").touch()
        ran = jobctl.end()
    assert (ran.code, ran.out) == (0, "")
    assert get(backend, job.id).state is State.DONE


def test_what_does_not_finish_within_the_grace_is_given_back(backend: Backend, folder: Path) -> None:
    job = put(backend, State.READY, kind="wait", max_attempts=1)
    with Process("worker", "app:handlers", "--grace", "0s", folder=folder) as jobctl:
        until((folder / "waiting").exists)
        jobctl.terminate()
        until(lambda: get(backend, job.id).state is State.READY)
        (folder / "go").touch()
        assert jobctl.end().code == 0
    assert backend.claim() != []


def test_several_processes_share_the_work_and_end_together(backend: Backend, folder: Path) -> None:
    for number in range(200):
        put(backend, State.READY, kind="touch", input_ref={"name": f"out{number}"})
    with Process("worker", "app:handlers", "--processes", 2, "--until-empty", folder=folder) as jobctl:
        ran = jobctl.end()
    assert ran.code == 0
    assert len(list(folder.glob("out*"))) == 200
    assert len(set(re.findall(r"started worker process \d of 2: pid (\d+)", ran.err))) == 2


def test_options_win_over_the_configuration(run: Run, backend: Backend, folder: Path) -> None:
    (folder / "jobcontract.toml").write_text("[worker]\nconcurrency = 3\n")
    with Process("worker", "app:handlers", "--until-empty", folder=folder) as jobctl:
        assert "concurrency 3, " in jobctl.end().err
    with Process("worker", "app:handlers", "--until-empty", "--concurrency", 2, folder=folder) as jobctl:
        assert "concurrency 2, " in jobctl.end().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["app"], "'app' does not name handlers; write MODULE:ATTRIBUTE"),
        (["nowhere:handlers"], "there is no module 'nowhere'"),
        (["app:handler"], "did you mean app:handlers?"),
        (["app:nothing"], "app:nothing has no handlers"),
        (["app:handlers", "--concurrency", "0"], "concurrency must be an integer from 1 to 1000, not 0"),
        (["app:handlers", "--lease", "0s"], "lease must be longer than nothing"),
        (["app:handlers", "--lease", "1s2"], "'1s2' is not a length of time"),
        (["app:handlers", "--lease", "520w"], "the worker and its handlers ask for 3640 days"),
        (["app:handlers", "--queues", "a,,b"], "'a,,b' is not a list of queues"),
        (["app:handlers", "--queues", "A b"], "'A b' is not a queue name"),
        (["app:handlers", "--processes", "0"], "--processes"),
        ([], "Missing argument 'MODULE:ATTRIBUTE'"),
    ],
    ids=str,
)
def test_a_setting_that_can_not_work_is_exit_code_2(
    backend: Backend, folder: Path, arguments: list[str], sentence: str
) -> None:
    with Process("worker", *arguments, folder=folder) as jobctl:
        ran = jobctl.end()
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("arguments", [["nowhere:handlers"], ["app:handlers", "--lease", "520w"]], ids=str)
def test_it_ends_several_processes_too_and_is_not_tried_again(
    backend: Backend, folder: Path, arguments: list[str]
) -> None:
    with Process("worker", "--processes", 2, *arguments, folder=folder) as jobctl:
        ran = jobctl.end()
    assert (ran.code, ran.out) == (2, "")
    assert "starting it again" not in ran.err


@pytest.mark.parametrize("processes", [1, 2])
def test_a_store_without_a_schema_ends_it_with_one_sentence(folder: Path, processes: int) -> None:
    with Process("worker", "app:handlers", "--processes", processes, folder=folder) as jobctl:
        ran = jobctl.end()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("jobcontract.db does not exist yet; run `jobctl init`") == processes
    assert "trying again" not in ran.err
    assert "starting it again" not in ran.err

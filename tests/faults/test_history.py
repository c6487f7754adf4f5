"""What is written down is read back, also when its writer was killed."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from jobcontract_sqlite import open_driver

from jobcontract import Job
from jobcontract.config import StoreSettings
from jobcontract.contract import State
from jobcontract.errors import StoreUnavailable
from jobcontract.side_doors import Lookup
from jobcontract.url import StoreURL
from tests.faults.history import History, Outcome, Recorder, parse
from tests.faults.recording import record


def test_an_operation_is_what_was_asked_and_what_was_answered(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "worker-1")
    with recorder.operation("claim", {"limit": 3}, store="a") as answer:
        answer.answered = ["j"]
    (found,) = History.read(tmp_path).operations
    assert (found.process, found.verb, found.store, found.asked, found.answered) == (
        "worker-1", "claim", "a", {"limit": 3}, ["j"],
    )  # fmt: skip
    assert found.outcome is Outcome.OK
    assert found.invoked <= found.returned
    assert str(found) == "worker-1#1 claim"


def test_what_raises_is_unknown(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "worker-1")
    with pytest.raises(StoreUnavailable), recorder.operation("claim", {}):
        raise StoreUnavailable("it is away")
    (found,) = History.read(tmp_path).operations
    assert (found.outcome, found.answered) == (Outcome.UNKNOWN, None)


def test_a_killed_process_leaves_what_it_had_asked(tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from tests.faults.history import Recorder
        recorder = Recorder(Path({str(tmp_path)!r}), "worker-1")
        recorder.note("start")
        with recorder.operation("complete", {{"leases": []}}):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False, cwd=root)
    assert done.returncode == -signal.SIGKILL
    start, complete = History.read(tmp_path).operations
    assert (start.outcome, complete.outcome, complete.returned) == (Outcome.OK, Outcome.UNKNOWN, math.inf)


def test_a_line_that_was_cut_off_is_not_read() -> None:
    lines = ['{"n":1,"at":1.0,"verb":"claim","store":"","asked":{}}\n', '{"n":1,"at":2.0,"outco']
    (found,) = parse("worker-1", lines)
    assert found.outcome is Outcome.UNKNOWN


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "worker-1")

    def write() -> None:
        for _ in range(200):
            recorder.note("start", id="j" * 500)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(History.read(tmp_path).of("start")) == 1600
    assert os.path.getsize(tmp_path / "worker-1.jsonl") > 1600 * 500


def test_a_recorded_driver_answers_as_before_and_keeps_its_side_doors(tmp_path: Path) -> None:
    driver = open_driver(StoreSettings("a", StoreURL.parse("sqlite://")))
    recorded = record(driver, Recorder(tmp_path, "worker-1"), "a")
    assert isinstance(recorded, Lookup)
    job = Job(kind="work", idempotency_key="k")
    recorded.register([job.to_record()])
    (claimed,) = recorded.claim(["default"], 5, timedelta(seconds=10))
    (verdict,) = recorded.complete([claimed.lease])
    assert verdict.state is State.DONE
    recorded.close()
    register, claim, complete = History.read(tmp_path).operations
    assert register.asked["jobs"][0]["key"] == "k"
    assert register.answered[0] | {"id": str(job.id), "created": True} == register.answered[0]
    assert claim.answered[0]["expires"] == claimed.lease.expires_at.timestamp()
    assert complete.asked["leases"][0]["token"] == claimed.lease.token
    assert complete.answered[0]["applied"]

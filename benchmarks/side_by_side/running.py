"""Running a contestant's program: its short verbs, and its workers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.side_by_side.contestants import Contestant
from benchmarks.side_by_side.environments import command
from benchmarks.side_by_side.programs.stage import Marks

_TICK = 0.005
_GRACE = 20.0
_PREPARING = 120.0


class ContestantFailed(Exception):
    """A contestant's program ended by itself, or did not do its work in time; with the end of its output."""


@dataclass(frozen=True)
class Effort:
    """What registering took."""

    jobs: int
    seconds: float
    processor_seconds: float


def prepare(contestant: Contestant, url: str) -> None:
    """Have the contestant create what it needs."""
    _run(contestant, ["prepare", url], _PREPARING)


def register(
    contestant: Contestant, url: str, jobs: int, way: str, *, rate: float = 20.0, timeout: float
) -> Effort:
    """Have it register `jobs` jobs: "one" by one, "many" at once, or "paced" at `rate` per second.

    The first one is not timed: with it the client opens its connection.
    """
    words = ["register", url, "--jobs", str(jobs), "--way", way, "--rate", str(rate)]
    report = json.loads(_run(contestant, words, timeout).splitlines()[-1])
    return Effort(int(report["jobs"]), report["seconds"], report["processor_seconds"])


def _run(contestant: Contestant, words: list[str], timeout: float) -> str:
    start, environment = command(contestant)
    try:
        result = subprocess.run(
            [*start, *words],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ContestantFailed(f"{contestant.key} {words[0]}: not done within {timeout:.0f} s") from None
    if result.returncode:
        raise ContestantFailed(f"{contestant.key} {words[0]}: {_last_line(result.stderr)}")
    return result.stdout


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it wrote nothing"])[-1][:300]


class WorkerProcess:
    """One worker process of a contestant, and its marks."""

    def __init__(self, contestant: Contestant, url: str, folder: Path, number: int) -> None:
        self.contestant = contestant
        self._output = folder / f"worker-{number}.log"
        path = folder / f"marks-{number}"
        self.marks = Marks(path)
        start, environment = command(contestant)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*start, "work", url, "--marks", str(path)],
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._seen = psutil.Process(self._process.pid)

    def check(self) -> None:
        """Raise `ContestantFailed` if it has ended."""
        if self._process.poll() is not None:
            raise ContestantFailed(
                f"{self.contestant.key}: its worker ended with {self._process.returncode}:"
                f" {_last_line(self._output.read_text(errors='replace'))}"
            )

    @property
    def processor_seconds(self) -> float:
        """What it and its children have used so far."""
        return sum(sum(each.cpu_times()[:2]) for each in self._family())

    @property
    def memory(self) -> int:
        """The bytes of resident memory of it and its children."""
        return sum(each.memory_info().rss for each in self._family())

    def _family(self) -> list[psutil.Process]:
        return [self._seen, *self._seen.children(recursive=True)]

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough. Safe to call twice."""
        if self._process.poll() is None:
            family = self._family()
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
            for each in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            self._process.wait()


@contextlib.contextmanager
def workers(contestant: Contestant, url: str, count: int = 1) -> Generator[list[WorkerProcess]]:
    """`count` worker processes, started; they end with the block."""
    with tempfile.TemporaryDirectory(prefix="jobcontract-bench-") as folder, contextlib.ExitStack() as stack:
        started: list[WorkerProcess] = []
        for number in range(count):
            started.append(WorkerProcess(contestant, url, Path(folder), number))
            stack.callback(started[-1].stop)
        yield started


def wait_for(started: list[WorkerProcess], handlers: int, timeout: float) -> None:
    """Block until so many handlers were started by all of them together. Raises `ContestantFailed`."""
    deadline = time.monotonic() + timeout
    while (seen := sum(each.marks.started for each in started)) < handlers:
        for each in started:
            each.check()
        if time.monotonic() > deadline:
            raise ContestantFailed(
                f"{started[0].contestant.key}: {seen} of {handlers} jobs were started within {timeout:.0f} s"
            )
        time.sleep(_TICK)

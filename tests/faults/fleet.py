"""The processes of a run, as the runner starts, signals and ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.faults.history import Recorder

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds that a process has to end after SIGTERM."""


class Member:
    """One process."""

    def __init__(
        self, folder: Path, recorder: Recorder, role: str, name: str, environment: Mapping[str, str]
    ) -> None:
        self.role = role
        self.name = name
        self.log = folder / f"{name}.log"
        self._history = folder / f"{name}.jsonl"
        self._recorder = recorder
        self._signal = ""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.programs", role, str(folder), name],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    @property
    def failed(self) -> bool:
        """Whether it ended by itself, and not well."""
        return bool(self._process.poll()) and not self._signal

    def await_beginning(self) -> None:
        """Block until it has begun to do something (or has ended)."""
        deadline = time.monotonic() + PATIENCE
        while self.running and time.monotonic() < deadline:
            if self._history.exists() and self._history.stat().st_size:
                return
            time.sleep(0.02)

    def kill(self) -> None:
        """-9, and wait for its end."""
        self._end(signal.SIGKILL, "KILL")

    def terminate(self) -> None:
        """SIGTERM, and wait for its end. One that does not obey is killed, and the history says so."""
        self.await_beginning()  # before that it is Python that is signalled, and not yet a worker
        self._end(signal.SIGTERM, "TERM")

    def pause(self) -> None:
        """SIGSTOP: it holds what it holds, and does nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait(self, seconds: float) -> bool:
        """Whether it ends by itself in time; its end is noted then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        if self.running:
            return False
        with self._recorder.operation("exit", {"process": self.name, "signal": ""}) as answer:
            answer.answered = {"code": self._process.returncode}
        return True

    def _end(self, number: signal.Signals, name: str) -> None:
        with self._recorder.operation("exit", {"process": self.name, "signal": name}) as answer:
            self._signal = name
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
            if self.running:
                self._process.kill()
                self._process.wait()
            answer.answered = {"code": self._process.returncode}


class Fleet:
    """All processes of a run. What still lives at the end of the block is killed."""

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        self._folder = folder
        self._recorder = recorder
        self._members: list[Member] = []
        self._counts: dict[str, int] = {}
        self._spawning = threading.Lock()

    def spawn(self, role: str, **environment: str) -> Member:
        """Start one more; its name is the role and a number."""
        with self._spawning:
            number = self._counts[role] = self._counts.get(role, 0) + 1
            member = Member(self._folder, self._recorder, role, f"{role}-{number}", environment)
            self._members.append(member)
        return member

    def await_beginning(self) -> None:
        """Block until all of them do something."""
        for member in self._members:
            member.await_beginning()

    def alive(self, role: str) -> list[Member]:
        return [member for member in self._members if member.role == role and member.running]

    def await_end(self, role: str, seconds: float) -> None:
        """Block until all of `role` have done their work.

        Raises:
            AssertionError: one goes on, or failed; the message ends with its log.
        """
        deadline = time.monotonic() + seconds
        for member in [each for each in self._members if each.role == role]:
            if not member.wait(max(0.0, deadline - time.monotonic())):
                raise AssertionError(f"{member.name} goes on; its log ends:\n{tail(member.log)}")
            if member.failed:
                raise AssertionError(f"{member.name} failed; its log ends:\n{tail(member.log)}")

    def terminate(self, role: str) -> None:
        """SIGTERM to all of them at once."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(Member.terminate, self.alive(role)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            if member.running:
                member.kill()


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])

"""Worker processes, as a test starts and ends them."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """``python -m tests.worker.programs ...``; killed at the end of the block if it still lives."""

    def __init__(self, *arguments: str, module: str = "tests.worker.programs") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "backends")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: queue.Queue[str] = queue.Queue()
        self._logged: list[str] = []
        self._readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._read_log, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return "".join(self._logged)

    def await_word(self, word: str, *, within: float = 30.0) -> None:
        """Wait until it says so."""
        deadline = time.monotonic() + within
        while True:
            try:
                if self._said.get(timeout=max(0.0, deadline - time.monotonic())) == word:
                    return
            except queue.Empty:
                raise AssertionError(
                    f"it did not say {word!r} within {within:g} s; its log:\n{self.log}"
                ) from None

    def await_log(self, text: str, *, within: float = 30.0) -> None:
        """Wait until it has logged it."""
        deadline = time.monotonic() + within
        while text not in self.log:
            assert time.monotonic() < deadline, f"no {text!r} within {within:g} s; its log:\n{self.log}"
            time.sleep(0.01)

    def go_on(self) -> None:
        """Let it leave the point where it waits."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Signal it."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """-9, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def wait(self, *, within: float = 30.0) -> int:
        """Its exit code; fails when it goes on."""
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {within:g} s; its log:\n{self.log}") from None
        for reader in self._readers:
            reader.join(10)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line.strip())

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._logged.append(line)

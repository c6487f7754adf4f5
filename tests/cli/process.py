"""`jobctl` as a process of its own, for what only a process shows: signals, pipes, terminals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.cli.conftest import Ran

JOBCTL = (sys.executable, "-m", "jobcontract")
_PATIENCE = 120.0


def until(condition: Callable[[], object], patience: float = _PATIENCE) -> None:
    """Block until `condition` is true, at most `patience` seconds."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"not within {patience:g} s"
        time.sleep(0.02)


class Process:
    """A running `jobctl`, killed at the end of the block if it is still there."""

    def __init__(
        self,
        *arguments: object,
        folder: Path,
        stdin: IO[bytes] | int | None = subprocess.DEVNULL,
        stdout: IO[bytes] | int = subprocess.PIPE,
        stderr: IO[bytes] | int = subprocess.PIPE,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.popen = subprocess.Popen(
            [*JOBCTL, *map(str, arguments)],
            cwd=folder,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **(environment or {})},
        )

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.popen.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        """SIGTERM."""
        self.popen.send_signal(signal.SIGTERM)

    def end(self) -> Ran:
        """Wait for the end; what it left."""
        out, err = self.popen.communicate(timeout=_PATIENCE)
        return Ran(self.popen.returncode, (out or b"").decode(), (err or b"").decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for stream in (self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()

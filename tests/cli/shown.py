"""Commands as a document or a help text shows them, run in a shell, also those that go on until Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Ran
from tests.cli.process import until

# What goes on until Ctrl-C, and what it prints once it is at work.
_ENDLESS = (
    (r"jobctl worker (?!.*--until-empty)", "worker started"),
    (r"jobctl relay(?! parked)(?!.*--(once|check))", "relaying to"),
    (r"jobctl schedule run", "running schedules"),
    (r"jobctl migrate status .*--watch", "jobs go to"),
    (r"jobctl .*--watch", "QUEUE"),
)


def started(command: str) -> str | None:
    """What `command` prints once it is at work, if it goes on until it is stopped; else None."""
    return next((sign for pattern, sign in _ENDLESS if re.match(pattern, command)), None)


def put_jobctl_into(folder: Path) -> None:
    """A program `jobctl` in `folder`, which is to be in front of the PATH, and `python`, which runs it."""
    for name, call in (("jobctl", f'"{sys.executable}" -m jobcontract'), ("python", f'"{sys.executable}"')):
        (folder / name).write_text(f'#!/bin/sh\nexec {call} "$@"\n')
        (folder / name).chmod(0o755)


def run_shown(command: str, folder: Path, environment: dict[str, str], *, answer: str = "") -> Ran:
    """Run `command` in bash; one that goes on is sent Ctrl-C once it is at work. `out` holds both outputs.

    `answer`: what is typed when it asks.
    """
    sign = started(command)
    output, typed = folder / ".output", folder / ".typed"
    typed.write_text(answer)
    with (
        output.open("wb") as out,
        typed.open("rb") as keyboard,
        subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", command if sign is None else f"exec {command}"],
            cwd=folder,
            env=environment,
            stdin=keyboard,
            stdout=out,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            if sign is not None:
                until(lambda: sign in output.read_text() or process.poll() is not None)
                process.send_signal(signal.SIGINT)
            code = process.wait(timeout=100)
        finally:
            process.kill()
    return Ran(code, output.read_text(), "")

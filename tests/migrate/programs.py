"""Processes of the tests: a coordinator that kills itself at a point."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from jobcontract_migrate import Coordinator, Options, Phase

from jobcontract.config import load_settings


def coordinate(file: str, verb: str, point: str, after: int) -> None:
    """`verb` in the configuration `file`, killed with -9 the `after`-th time that it reaches `point`."""
    left = after

    def reach(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    settings = load_settings(Path(file), environment={})
    coordinator = Coordinator(settings, Options(batch=7), reach=reach)
    if verb == "begin":
        coordinator.begin("old", "new", {"first_source": "old"})
    elif verb == "reverse":
        coordinator.reverse()
    elif verb == "complete":
        coordinator.complete()
        return
    coordinator.run(Phase.SEALED)


if __name__ == "__main__":
    coordinate(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

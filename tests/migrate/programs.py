"""Processes of the tests: a coordinator that kills itself at a point, and a client that obeys."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from jobcontract_migrate import Coordinator, Options, Phase

from jobcontract import Job, get_backend
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


def obey(file: str, store: str | None = None) -> None:
    """A client that follows, or names a `store`: for each line it registers a job, looks for some and
    completes them, and answers with the job's id and theirs.
    """
    with get_backend(store, settings=load_settings(Path(file), environment={})) as backend:
        for _ in sys.stdin:
            made = Job(kind="work")
            backend.register(made)
            claims = backend.claim(limit=2)
            backend.complete_many(claims)
            print(made.id, *(claim.job.id for claim in claims), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "obey":
        obey(*sys.argv[2:])
    else:
        coordinate(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

"""What the processes of these tests run: ``python -m tests.sqlite.programs PROGRAM PATH``.

Each line of their output is a fact that the store has acknowledged.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from tests.sqlite.stores import MINUTE, QUEUES, FileStore


def drain(store: FileStore) -> None:
    """Claim and complete until nothing is left. Tells each job, its attempt and the verdict."""
    while claimed := store.driver.claim(QUEUES, 5, MINUTE):
        verdicts = store.driver.complete([each.lease for each in claimed])
        for each, verdict in zip(claimed, verdicts, strict=True):
            print(each.lease.job_id, each.lease.attempt, verdict.applied, flush=True)


def register(store: FileStore) -> None:
    """Register until killed. Tells each job after its registration was acknowledged."""
    while True:
        print(*store.add(3), flush=True)


def hold(store: FileStore) -> None:
    """Claim one job, tell it, and wait to be killed."""
    (claimed,) = store.driver.claim(QUEUES, 1, timedelta(milliseconds=200))
    print(claimed.lease.job_id, flush=True)
    sys.stdin.read()


def register_when_told(store: FileStore) -> None:
    """Register one job for each line of input."""
    print("ready", flush=True)
    for _ in sys.stdin:
        store.add(1)


PROGRAMS = {program.__name__: program for program in (drain, register, hold, register_when_told)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](FileStore(Path(sys.argv[2])))

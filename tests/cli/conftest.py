"""`jobctl` in a folder of its own, with a SQLite store, an empty environment and no terminal."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from jobcontract import Backend, Job, JobStatus, State, get_backend
from jobcontract.cli.root import jobctl


@dataclass(frozen=True)
class Ran:
    """What one run of `jobctl` left."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


Run = Callable[..., Ran]


def invoke(*arguments: object, stdin: str | bytes | None = None) -> Ran:
    """`jobctl` with `arguments`, in this process. An exception that it lets out is one of the test."""
    result = CliRunner().invoke(jobctl, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the test, without a configuration."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("JOBCONTRACT_", "FORCE_", "TTY_", "NO_COLOR")):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """`jobctl` sets up logging for its process; here it is only a guest in one."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def run() -> Run:
    """Runs `jobctl`."""
    return invoke


@pytest.fixture
def backend(folder: Path) -> Iterator[Backend]:
    """The installed store that `jobctl` finds in the folder of the test when it is told nothing."""
    with get_backend(f"sqlite:///{folder}/jobcontract.db") as opened:
        opened.install()
        yield opened


def get(backend: Backend, job_id: UUID) -> JobStatus:
    """The job, which is there."""
    found = backend.get(job_id)
    assert found is not None
    return found


def put(backend: Backend, state: State, *, error: str = "ValueError: no", **fields: Any) -> Job:
    """A job in `state`, brought there by the verbs."""
    job = Job(**{"kind": "k", **fields})
    assert backend.register(job).created
    if state is State.READY:
        return job
    if state is State.CANCELLED:
        assert backend.cancel(job.id) is State.CANCELLED
        return job
    (claim,) = [claim for claim in backend.claim(queues=[job.queue], limit=100) if claim.job.id == job.id]
    if state is State.DONE:
        backend.complete(claim)
    elif state is State.DEAD:
        backend.fail(claim, error, permanent=True)
    else:
        assert state is State.RUNNING
    return job

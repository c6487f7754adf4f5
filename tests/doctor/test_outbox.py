"""An outbox that stalls is found, whichever store holds it and whatever the target does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobcontract import Job, get_backend
from tests.doctor.conftest import Doctor
from tests.outbox.stage import Stage, jobs
from tests.postgres.stores import until


@pytest.fixture
def stage(folder: Path, url: str, redis_url: str) -> Iterator[Stage]:
    """An outbox on PostgreSQL in front of Redis."""
    made = Stage(folder, url, {"queue": redis_url})
    made.install()
    yield made
    made.close()


def test_an_outbox_that_is_published_is_silent(doctor: Doctor, stage: Stage) -> None:
    stage.backend().register_many(jobs(10))
    stage.publish()
    assert doctor("--patience", "1s") == {}


def test_an_outbox_that_stalls(doctor: Doctor, stage: Stage) -> None:
    stage.backend().register_many(jobs(10))
    found = until(lambda: doctor("--patience", "300ms"), "they have waited")
    assert found.keys() == {"outbox"}
    assert found["outbox"].startswith("10 jobs wait in the outbox")
    assert "run `jobctl relay --target queue`" in found["outbox"]


def test_a_target_that_is_away_is_named_beside_it(doctor: Doctor, folder: Path, url: str) -> None:
    stage = Stage(folder, url, {"queue": "redis://127.0.0.1:1/0"})
    with get_backend("host", settings=stage.settings) as host:
        host.install()
    with pytest.raises(Exception, match="connect"):
        stage.install()
    stage.close()
    assert "unreachable" in doctor("--patience", "300ms")


def test_parked_jobs(doctor: Doctor, stage: Stage) -> None:
    stage.backend().register(Job(kind="k"))
    stage.sql("UPDATE {outbox} SET parked_at = now()")
    found = doctor()
    assert found.keys() == {"parked"}
    assert "jobctl relay parked list --target queue" in found["parked"]

"""Ids that an application made itself: a UUID is a UUID, and says nothing about its time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from jobcontract import Backend, Job, get_backend
from tests.servers.postgres import PostgresServer

YEAR_10889 = UUID("ffffffff-ffff-7fff-bfff-ffffffffffff")
YEAR_4000 = UUID("3a45b97d-c400-7c6c-a032-d2a71f42e309")
YEAR_1970 = UUID("00000000-0000-7000-8000-000000000000")
RANDOM = UUID("7895ce78-d49c-4922-b68e-a943fe982d4d")


@pytest.fixture(params=["postgres", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/jobs.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.url(server.create_database())
    with get_backend(url) as opened:
        opened.install()
        yield opened


@pytest.mark.parametrize("job_id", [YEAR_10889, YEAR_4000, YEAR_1970, RANDOM], ids=str)
def test_a_job_is_known_by_its_id_when_it_is_done_whatever_the_id(backend: Backend, job_id: UUID) -> None:
    job = Job(kind="k", id=job_id)
    assert backend.register(job).created
    backend.complete(*backend.claim())
    assert not backend.register(job).created
    answers = backend.register_many([Job(kind="k"), job])
    assert [answer.created for answer in answers] == [True, False]
    assert len(backend.claim(limit=10)) == 1

"""`await register(job, connection=...)`, on the asynchronous connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest

from jobcontract import Backend, InvalidJob, Job, Registration, get_backend
from jobcontract.aio import AsyncBackend
from tests.connections.callers import Psycopg
from tests.servers.postgres import PostgresServer

Connection = psycopg.AsyncConnection[Any]
Register = Callable[[AsyncBackend, Connection], Awaitable[list[Registration]]]


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.url(database=postgres_server.create_database())


@pytest.fixture
def backend(url: str) -> Iterator[Backend]:
    with get_backend(url) as opened:
        opened.install()
        yield opened


def in_a_transaction(url: str, backend: Backend, register: Register) -> list[Registration]:
    """What `register` answers in a transaction of psycopg's AsyncConnection, which commits."""

    async def run() -> list[Registration]:
        async with await psycopg.AsyncConnection.connect(**Psycopg(url).parts()) as connection:
            return await register(AsyncBackend(backend), connection)

    return asyncio.run(run())


def test_one_job_twice_in_a_call_is_one_job(url: str, backend: Backend) -> None:
    job, other = Job(kind="k"), Job(kind="k")
    changed = job.model_copy(update={"priority": 3})

    answers = in_a_transaction(
        url,
        backend,
        lambda face, connection: face.register_many([job, other, job, changed], connection=connection),
    )

    assert [answer.job_id for answer in answers] == [job.id, other.id, job.id, job.id]
    assert [answer.created for answer in answers] == [True, True, False, False]
    assert sorted(status.id for status in backend.jobs()) == sorted([job.id, other.id])


def test_many_jobs_join_in_several_batches_and_the_first_of_a_key_wins(url: str, backend: Backend) -> None:
    count = backend.capabilities.max_register_batch + 1
    jobs = [Job(kind="k", idempotency_key=str(n % (count - 1))) for n in range(count)]

    answers = in_a_transaction(
        url, backend, lambda face, connection: face.register_many(jobs, connection=connection)
    )

    assert [answer.created for answer in answers] == [True] * (count - 1) + [False]
    assert answers[-1].job_id == jobs[0].id
    assert sum(stats.ready for stats in backend.stats()) == count - 1


def test_a_cursor_factory_of_the_application_is_its_own_affair(url: str, backend: Backend) -> None:
    async def register(face: AsyncBackend, connection: Connection) -> list[Registration]:
        connection.cursor_factory = psycopg.AsyncRawCursor
        return await face.register_many([Job(kind="k")], connection=connection)

    (answer,) = in_a_transaction(url, backend, register)

    assert backend.get(answer.job_id) is not None


def test_a_connection_to_another_database_is_refused(
    url: str, backend: Backend, postgres_server: PostgresServer
) -> None:
    elsewhere = postgres_server.url(database=postgres_server.create_database())

    with pytest.raises(InvalidJob, match="connection: is open on the database"):
        in_a_transaction(
            elsewhere,
            backend,
            lambda face, connection: face.register_many([Job(kind="k")], connection=connection),
        )

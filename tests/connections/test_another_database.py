"""A job is not written into a database that no worker of its store looks into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from jobcontract import Backend, InvalidJob, Job, get_backend
from tests.connections.callers import Caller, Django, Psycopg, SQLAlchemyConnection, SQLAlchemySession
from tests.servers.postgres import PostgresServer


@pytest.fixture
def database(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database()


@pytest.fixture
def backend(postgres_server: PostgresServer, database: str) -> Iterator[Backend]:
    with opened_on(postgres_server, database) as backend:
        yield backend


def opened_on(server: PostgresServer, database: str) -> Backend:
    """An installed store."""
    backend = get_backend(server.url(database=database))
    backend.install()
    return backend


@pytest.mark.parametrize("kind", [Psycopg, SQLAlchemyConnection, SQLAlchemySession, Django])
def test_it_is_refused_although_it_holds_the_same_schema(
    postgres_server: PostgresServer, backend: Backend, kind: Callable[[str], Caller]
) -> None:
    name = postgres_server.create_database()
    with opened_on(postgres_server, name) as elsewhere:
        caller = kind(postgres_server.url(database=name))
        with pytest.raises(InvalidJob) as raised:
            backend.register(Job(kind="k", idempotency_key="key"), connection=caller.begin())
        caller.commit()
        caller.close()
        assert str(raised.value).startswith(
            f"connection: is open on the database {name!r} at 127.0.0.1:{postgres_server.port}, "
            "and the jobs of this store live in PostgreSQL at "
        )
        assert elsewhere.jobs() == backend.jobs() == []


@pytest.mark.parametrize(("host", "questions"), [("127.0.0.1", 0), ("localhost", 1)])
def test_another_name_of_the_same_database_is_asked_about_once(
    backend: Backend, postgres_server: PostgresServer, database: str, host: str, questions: int
) -> None:
    backend.register(Job(kind="k"))
    executed: list[str] = []

    class Recording(psycopg.Cursor[Any]):
        def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
            executed.append(str(query))
            return super().execute(query, *arguments, **options)

    parts = Psycopg(postgres_server.url(database=database, host=host)).parts()
    with psycopg.connect(**parts, cursor_factory=Recording) as connection:
        for _ in range(3):
            backend.register(Job(kind="k"), connection=connection)
            connection.commit()
    assert sum("jobcontract identity" in statement for statement in executed) == questions
    assert sum("jobcontract register" in statement for statement in executed) == 3
    assert len(backend.jobs()) == 4

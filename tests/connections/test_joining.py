"""`register(job, connection=...)`: a job commits or vanishes with its caller's transaction (any library)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from jobcontract import Backend, InvalidJob, Job, StoreUnavailable, Unsupported, get_backend
from tests.connections.callers import POSTGRES, SQLITE, Caller, Django, Psycopg, SQLAlchemyConnection, SQLite
from tests.servers.postgres import PostgresServer

EACH_CALLER = pytest.mark.parametrize(
    ("store", "kind"),
    [("postgres", kind) for kind in POSTGRES] + [("sqlite", kind) for kind in SQLITE],
    ids=lambda value: getattr(value, "__name__", value),
)


@pytest.fixture
def url(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A fresh database of the kind `store`."""
    if store == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(database=server.create_database())


@pytest.fixture
def backend(url: str) -> Iterator[Backend]:
    with get_backend(url) as opened:
        opened.install()
        yield opened


@pytest.fixture
def caller(url: str, kind: Callable[[str], Caller]) -> Iterator[Caller]:
    made = kind(url)
    yield made
    made.close()


@EACH_CALLER
def test_the_job_is_there_when_the_transaction_commits_and_not_before(
    backend: Backend, caller: Caller
) -> None:
    job = Job(kind="k", input_ref={"n": 1}, idempotency_key="key", headers={"tenant": "a"})
    connection = caller.begin()
    assert backend.register(job, connection=connection).created
    if isinstance(caller, Psycopg):  # SQLite has one writer: nobody else can look meanwhile
        assert backend.claim() == []
    caller.commit()
    (claim,) = backend.claim()
    assert claim.job.model_dump(exclude={"run_at"}) == job.model_dump(exclude={"run_at"})


@EACH_CALLER
def test_a_rollback_leaves_no_job_and_no_key(backend: Backend, caller: Caller) -> None:
    job = Job(kind="k", idempotency_key="key")
    backend.register(job, connection=caller.begin())
    caller.rollback()
    assert backend.get(job.id) is None
    assert backend.register(Job(kind="k", idempotency_key="key")).created


@EACH_CALLER
def test_many_jobs_join_in_several_batches(backend: Backend, caller: Caller) -> None:
    count = backend.capabilities.max_register_batch + 1
    jobs = [Job(kind="k", idempotency_key=str(n % (count - 1))) for n in range(count)]
    registrations = backend.register_many(jobs, connection=caller.begin())
    assert [registration.created for registration in registrations] == [True] * (count - 1) + [False]
    caller.commit()
    assert sum(stats.ready for stats in backend.stats()) == count - 1


@EACH_CALLER
def test_a_duplicate_is_answered_inside_the_transaction_too(backend: Backend, caller: Caller) -> None:
    first = Job(kind="k", input_ref={"n": 1}, idempotency_key="key")
    backend.register(first)
    connection = caller.begin()
    again = backend.register(Job(kind="k", input_ref={"n": 2}, idempotency_key="key"), connection=connection)
    caller.commit()
    assert (again.job_id, again.created, again.conflict) == (first.id, False, True)


@pytest.mark.parametrize("store", ["postgres"])
def test_a_failed_transaction_is_refused_before_anything_is_sent(backend: Backend, url: str) -> None:
    caller = Psycopg(url)
    connection = caller.begin()
    with pytest.raises(Exception, match="does not exist"):
        connection.execute("SELECT no_such_column")
    with pytest.raises(
        InvalidJob, match="connection: has a transaction that failed already; roll it back first"
    ):
        backend.register(Job(kind="k"), connection=connection)
    caller.rollback()
    assert backend.register(Job(kind="k"), connection=connection).created
    caller.close()


@pytest.mark.parametrize("store", ["postgres"])
def test_autocommit_without_a_transaction_is_refused(backend: Backend, url: str) -> None:
    caller = Psycopg(url)
    connection = caller.begin()
    connection.autocommit = True
    with pytest.raises(InvalidJob, match="autocommit mode without a transaction"):
        backend.register(Job(kind="k"), connection=connection)
    caller.close()
    assert backend.claim() == []


@pytest.mark.parametrize("store", ["sqlite"])
def test_sqlite_autocommit_without_a_transaction_is_refused(backend: Backend, url: str) -> None:
    caller = SQLite(url)
    connection = caller.begin()
    caller.rollback()
    with pytest.raises(InvalidJob, match="autocommit mode without a transaction"):
        backend.register(Job(kind="k"), connection=connection)
    caller.close()


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_sqlalchemy_autocommit_is_refused(backend: Backend, url: str) -> None:
    caller = SQLAlchemyConnection(url)
    connection = caller.begin().execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(InvalidJob, match="autocommit mode without a transaction"):
        backend.register(Job(kind="k"), connection=connection)
    caller.close()


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_an_engine_of_sqlalchemy_in_autocommit_is_refused_too(backend: Backend, url: str) -> None:
    engine = sqlalchemy.create_engine(
        SQLAlchemyConnection(url).sqlalchemy_url(), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        with pytest.raises(InvalidJob, match="autocommit mode without a transaction"):
            backend.register(Job(kind="k"), connection=connection)
        connection.rollback()
    engine.dispose()
    assert backend.claim() == []


@pytest.mark.parametrize("store", ["postgres"])
def test_a_pipeline_in_autocommit_without_a_transaction_is_refused(backend: Backend, url: str) -> None:
    connection = psycopg.connect(**Psycopg(url).parts(), autocommit=True)
    with connection.pipeline():
        connection.execute("SELECT 1")
        with pytest.raises(InvalidJob, match="autocommit mode without a transaction"):
            backend.register(Job(kind="k"), connection=connection)
    connection.close()
    assert backend.claim() == []


@pytest.mark.parametrize("store", ["postgres"])
def test_a_key_that_came_after_the_callers_snapshot_asks_for_another_try(backend: Backend, url: str) -> None:
    caller = Psycopg(url)
    connection = caller.begin()
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("SELECT 'the snapshot is taken'")
    first = backend.register(Job(kind="k", idempotency_key="key"))
    with pytest.raises(StoreUnavailable, match="could not serialize access"):
        backend.register(Job(kind="k", idempotency_key="key"), connection=connection)
    caller.rollback()
    assert (
        backend.register(Job(kind="k", idempotency_key="key"), connection=connection).job_id == first.job_id
    )
    caller.close()


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_django_without_atomic_is_refused(backend: Backend, url: str) -> None:
    caller = Django(url)
    with pytest.raises(InvalidJob, match="has no transaction; call it inside"):
        backend.register(Job(kind="k"), connection=caller.open())
    caller.close()


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        ("postgres", Psycopg),
        ("postgres", SQLAlchemyConnection),
        ("sqlite", SQLite),
        ("sqlite", SQLAlchemyConnection),
    ],
)
def test_a_closed_connection_is_refused(backend: Backend, url: str, kind: Callable[[str], Caller]) -> None:
    caller = kind(url)
    connection = caller.begin()
    caller.close()
    with pytest.raises(InvalidJob, match="connection: "):
        backend.register(Job(kind="k"), connection=connection)


@pytest.mark.parametrize("store", ["postgres"])
def test_a_connection_of_another_database_kind_is_refused(backend: Backend, tmp_path: Path) -> None:
    other = SQLite(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(
        InvalidJob, match=r"connection: is a sqlite connection, and PostgreSQL .* needs one of postgresql"
    ):
        backend.register(Job(kind="k"), connection=other.begin())
    other.close()


@pytest.mark.parametrize(
    ("store", "kind"),
    [("postgres", Psycopg), ("postgres", Django), ("sqlite", SQLite), ("sqlite", Django)],
)
def test_a_cursor_is_no_connection(backend: Backend, caller: Caller) -> None:
    cursor = caller.begin().cursor()
    with pytest.raises(Unsupported, match=r"Cursor\w* can't carry a job; pass a psycopg 3"):
        backend.register(Job(kind="k"), connection=cursor)
    caller.rollback()


@pytest.mark.parametrize("store", ["sqlite"])
@pytest.mark.parametrize(
    "connection", [object(), "postgresql://app@db/app", 7, sqlalchemy.create_engine("sqlite://")]
)
def test_what_is_no_connection_is_refused(backend: Backend, connection: object) -> None:
    with pytest.raises(
        Unsupported, match="can't carry a job; pass a psycopg 3, SQLAlchemy, Django or sqlite3"
    ):
        backend.register(Job(kind="k"), connection=connection)

"""What `jobctl schedule sql` prints, run by the real pg_cron.

Its smallest interval is a minute (before 1.5), so that the test that waits for it to come round takes one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import psycopg
import pytest

from jobcontract import Backend, get_backend
from jobcontract.config import ScheduleTable, Settings
from jobcontract.errors import Unsupported
from jobcontract.schedules import Scheduler, schedule_of
from jobcontract.schedules.pg_cron import pg_cron_sql
from jobcontract.side_doors import RegistersByStatement
from tests.servers.binaries import Programs
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def server(pg_cron_programs: Programs) -> Iterator[PostgresServer]:
    """A server with the extension, which runs its jobs in processes of its own, without a login."""
    settings = {"shared_preload_libraries": "pg_cron", "cron.use_background_workers": "on"}
    with PostgresServer(programs=pg_cron_programs, fsync=False, settings=settings) as server:
        server.execute("CREATE EXTENSION pg_cron")
        yield server


@pytest.fixture
def backend(server: PostgresServer) -> Iterator[Backend]:
    """The store in the database of pg_cron, under a name that has to be quoted."""
    schema = 'Jobs "100%s"'
    with get_backend(
        "queue",
        settings=Settings(backends={"queue": {"url": server.url(), "schema": schema}}),  # type: ignore[dict-item]
    ) as backend:
        backend.install()
        yield backend


def sql_of(backend: Backend, **fields: object) -> str:
    schedule = schedule_of("sql.test", ScheduleTable.model_validate({"kind": "report", **fields}))
    driver = backend.driver
    assert isinstance(driver, RegistersByStatement)
    return pg_cron_sql(schedule, driver)


def test_pg_cron_inserts_what_a_scheduler_inserts(server: PostgresServer, backend: Backend) -> None:
    fields = {
        "cron": "* * * * *",
        "input": {"text": "it's $jobcontract$ \\ 100% %s {minute} \u4e2d"},
        "queue": "exports",
        "priority": 7,
        "max_attempts": 2,
        "headers": {"tenant": "O'Neill"},
    }
    text = sql_of(backend, **fields)
    with server.connect() as connection:
        # Twice: it is idempotent, for a pg_cron job is known by its name.
        connection.execute(text.encode())
        connection.execute(text.encode())
        found = connection.execute("SELECT jobname, schedule, command FROM cron.job").fetchall()
        assert [(name, when) for name, when, _ in found] == [("jobcontract:sql.test", "* * * * *")]
        command: str = found[0][2]
        while not (jobs := backend.jobs()):
            failed = connection.execute(
                "SELECT return_message FROM cron.job_run_details WHERE status = 'failed'"
            ).fetchall()
            assert failed == []
            time.sleep(0.2)
        connection.execute("SELECT cron.unschedule('jobcontract:sql.test')")
    job = jobs[0].job
    assert job is not None
    assert job.idempotency_key is not None
    tick = datetime.fromisoformat(job.idempotency_key.removeprefix("schedule:sql.test:"))
    assert job.run_at == tick

    expected = schedule_of("sql.test", ScheduleTable.model_validate({"kind": "report", **fields})).job(tick)
    assert job == expected.model_copy(update={"id": job.id})
    assert job.id.version == 7
    registered = backend.register(expected)
    assert (registered.created, registered.conflict) == (False, False), "the fingerprint is that of the job"
    (claim,) = backend.claim(queues=["exports"])
    assert claim.job.id == job.id

    # Run again in the same minute it inserts nothing; a waiting worker is woken by what it inserts.
    with psycopg.connect(server.url(), autocommit=True) as connection:
        before = len(backend.jobs(limit=100))
        minute = datetime.now().minute
        connection.execute(command.encode())
        connection.execute(command.encode())
        assert len(backend.jobs(limit=100)) - before <= 1 + (datetime.now().minute != minute)


def test_a_scheduler_beside_pg_cron_inserts_nothing_twice(server: PostgresServer, backend: Backend) -> None:
    schedule = schedule_of("both", ScheduleTable(kind="report", cron="* * * * *"))
    driver = backend.driver
    assert isinstance(driver, RegistersByStatement)
    with server.connect() as connection:
        connection.execute(pg_cron_sql(schedule, driver).encode())
        ((command,),) = connection.execute("SELECT command FROM cron.job WHERE jobname = 'jobcontract:both'")
        connection.execute("SELECT cron.unschedule('jobcontract:both')")
        Scheduler(backend, [schedule]).turn()
        tick = backend.read_notes(["any"]).now.replace(second=0, microsecond=0)
        backend.register(schedule.job(tick))
        connection.execute(command.encode())
    keys = [each.job.idempotency_key for each in backend.jobs(limit=100) if each.job is not None]
    assert keys.count(schedule.key(tick)) == 1


def test_another_time_zone_than_that_of_pg_cron_is_refused(server: PostgresServer, backend: Backend) -> None:
    text = sql_of(backend, cron="0 2 * * *", timezone="Europe/Berlin")
    with (
        server.connect() as connection,
        pytest.raises(psycopg.Error, match=r"set cron\.timezone = Europe/Berlin"),
    ):
        connection.execute(text.encode())
    assert server.execute("SELECT count(*) FROM cron.job") == [(0,)]


def test_a_database_without_the_extension_says_so(server: PostgresServer, backend: Backend) -> None:
    text = sql_of(backend, cron="0 2 * * *")
    with (
        server.connect(server.create_database()) as connection,
        pytest.raises(psycopg.Error, match="run CREATE EXTENSION pg_cron"),
    ):
        connection.execute(text.encode())


@pytest.mark.parametrize(
    ("every", "expression"),
    [
        ("1m", "*/1 * * * *"),
        ("15m", "*/15 * * * *"),
        ("1h", "0 */1 * * *"),
        ("6h", "0 */6 * * *"),
        ("1d", "0 0 * * *"),
    ],
)
def test_an_interval_on_the_clock_is_an_expression(backend: Backend, every: str, expression: str) -> None:
    assert f"'jobcontract:sql.test', '{expression}'," in sql_of(backend, every=every)


@pytest.mark.parametrize(
    "fields",
    [
        {"every": "7m"},
        {"every": "90m"},
        {"every": "30s"},
        {"every": "2d"},
        {"cron": "0 0 L * *"},
        {"cron": "0 0 * * MON#1"},
    ],
)
def test_what_pg_cron_can_t_do_is_refused(backend: Backend, fields: dict[str, object]) -> None:
    with pytest.raises(Unsupported, match=r"schedules\.sql\.test\.(every|cron): pg_cron"):
        sql_of(backend, **fields)


def test_the_names_of_days_and_months_are_passed_on(backend: Backend) -> None:
    assert "'0 2 * JUL MON-WED'" in sql_of(backend, cron="0  2 * JUL MON-WED")
    assert ZoneInfo("UTC").key in sql_of(backend, cron="0 2 * * *")

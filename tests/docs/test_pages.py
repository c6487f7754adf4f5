"""Every page of the documentation does what it shows, on real servers."""

from __future__ import annotations

import configparser
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobcontract import Job, get_backend
from jobcontract.config import Settings
from tests.cli.shown import run_shown
from tests.docs.pages import ROOT, Reader, fences
from tests.servers.binaries import Programs
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.timeout(400)  # a page starts up to twenty processes, one after the other

DIRECT = "postgresql://app@db.internal/app"
POOLED = "postgresql://app@pooler.internal:6432/app"
BROKER = "amqps://app@mq.internal/"
PG_CRON = "jobctl schedule sql nightly-export | psql app"  # tests/schedules/test_pg_cron.py runs it

WITHOUT_A_SERVER = (
    "docs/explanation/leases.md",
    "docs/how-to/idempotent-results.md",
    "docs/how-to/retries.md",
    "docs/how-to/testing.md",
    "docs/limits.md",
    "docs/schedules.md",
)
ON_POSTGRES = ("docs/how-to/connections.md", "docs/tutorial.md")
OTHERS = ("README.md", "docs/how-to/pgbouncer.md", "docs/migrating.md", "docs/outbox.md")
ELSEWHERE = {
    "docs/capabilities.md": "tests/docs/test_capabilities.py",
    "docs/cli.md": "tests/cli/test_help.py",
    "docs/design.md": "tests/docs/test_documents.py",
    "docs/guarantees.md": "tests/docs/test_guarantees.py",
    "docs/monitoring/README.md": "tests/metrics/test_endpoint.py",
    "docs/security.md": "tests/security",
    "docs/writing-a-driver.md": "tests/conformance/test_document.py",
}
"""Pages whose fences another test holds against the truth."""


@pytest.fixture(scope="module")
def durable_server(postgres_programs: Programs) -> Iterator[PostgresServer]:
    """PostgreSQL as it is installed, which ails nothing."""
    with PostgresServer(programs=postgres_programs) as server:
        yield server


@pytest.fixture
def application(tmp_path: Path) -> None:
    """What a page that shows none may call its own."""
    (tmp_path / "app.py").write_text(
        "from jobcontract import Handlers\n"
        "handlers = Handlers()\n"
        "@handlers.handler('export')\n"
        "def export(input): pass\n"
    )


@pytest.mark.parametrize("page", WITHOUT_A_SERVER)
def test_a_page_without_a_server(page: str, tmp_path: Path, application: None) -> None:
    if page == "docs/schedules.md":
        with get_backend(f"sqlite:///{tmp_path}/jobcontract.db") as backend:
            backend.install()
    Reader(tmp_path).work_through(ROOT / page, left_out=frozenset({PG_CRON}))


@pytest.mark.parametrize("page", ON_POSTGRES)
def test_a_page_on_postgres(page: str, tmp_path: Path, durable_server: PostgresServer) -> None:
    url = durable_server.url(durable_server.create_database())
    Reader(tmp_path, {DIRECT: url}).work_through(ROOT / page)


def test_the_readme(tmp_path: Path, durable_server: PostgresServer, rabbitmq_server: RabbitServer) -> None:
    replaced = {
        DIRECT: durable_server.url(durable_server.create_database()),
        BROKER: rabbitmq_server.url(rabbitmq_server.create_vhost()),
    }
    reader = Reader(tmp_path, replaced)
    reader.work_through(ROOT / "README.md")
    status = run_shown("jobctl migrate status --json", reader.folder, reader.environment)
    assert json.loads(status.out)["state"] == "sealed"


def test_the_page_about_pgbouncer(
    tmp_path: Path, application: None, postgres_server: PostgresServer, pgbouncer_programs: Programs
) -> None:
    page = ROOT / "docs/how-to/pgbouncer.md"
    (shown,) = (fence.text for fence in fences(page) if fence.language == "ini")
    settings = configparser.ConfigParser()
    settings.read_string(shown)
    database = postgres_server.create_database()
    with PgBouncerServer(
        postgres_server, programs=pgbouncer_programs, settings=dict(settings["pgbouncer"])
    ) as pooler:
        replaced = {DIRECT: postgres_server.url(database), POOLED: pooler.url(database)}
        Reader(tmp_path, replaced).work_through(page)


def test_the_page_about_the_outbox(
    tmp_path: Path, application: None, postgres_server: PostgresServer, rabbitmq_server: RabbitServer
) -> None:
    replaced = {
        DIRECT: postgres_server.url(postgres_server.create_database()),
        BROKER: rabbitmq_server.url(rabbitmq_server.create_vhost()),
    }
    Reader(tmp_path, replaced).work_through(ROOT / "docs/outbox.md")


def test_the_page_about_moving(tmp_path: Path, postgres_server: PostgresServer) -> None:
    """From one database to another, as its configuration says, with a job that waits."""
    job = Job(kind="export")
    here, there = (postgres_server.url(postgres_server.create_database()) for _ in range(2))
    for url in (here, there):
        with get_backend(url, settings=Settings()) as backend:
            backend.install()
            if url == here:
                backend.register(job)
    replaced = {"postgresql://.../other": there, "postgresql://...": here}
    Reader(tmp_path, replaced).work_through(ROOT / "docs/migrating.md")
    with get_backend(there, settings=Settings()) as backend:
        assert [claim.job.id for claim in backend.claim()] == [job.id]


def test_each_page_with_fences_is_tried() -> None:
    tried = {*WITHOUT_A_SERVER, *ON_POSTGRES, *OTHERS, *ELSEWHERE}
    pages = {"README.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))}
    assert {page for page in pages if fences(ROOT / page)} <= tried <= pages
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())

"""`jobctl` on PostgreSQL: what differs there, and a sample of what does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from jobcontract import Backend, State, get_backend
from tests.cli.conftest import Ran, Run, put
from tests.cli.process import Process, until
from tests.servers.binaries import Programs
from tests.servers.postgres import PostgresServer


@pytest.fixture
def database(postgres_server: PostgresServer) -> str:
    """An empty database."""
    return postgres_server.create_database()


@pytest.fixture
def configured(postgres_server: PostgresServer, database: str, folder: Path) -> None:
    """The configuration of the folder names the database as the default."""
    (folder / "jobcontract.toml").write_text(
        f'[backends.main]\nurl = "{postgres_server.url(database=database)}"\ntimeout = "5s"\n'
    )


@pytest.fixture
def backend(postgres_server: PostgresServer, database: str) -> Iterator[Backend]:
    """The installed store in the database."""
    with get_backend(postgres_server.url(database=database)) as opened:
        opened.install()
        yield opened


pytestmark = pytest.mark.usefixtures("configured")


def test_the_statements_of_a_dry_run_make_the_store(
    run: Run, postgres_server: PostgresServer, database: str
) -> None:
    dry = run("init", "--dry-run")
    assert dry.code == 0
    assert dry.out.startswith("-- PostgreSQL at 127.0.0.1:")
    assert run("stats").code == 1
    with postgres_server.connect(database) as connection:
        connection.execute(dry.out.encode())
    assert run("init").out.endswith(", schema 'jobcontract': up to date\n")
    assert run("stats") == Ran(0, "", "no queue has jobs or is paused\n")


def test_a_job_from_registration_to_its_end(run: Run, backend: Backend, folder: Path) -> None:
    (folder / "app.py").write_text(
        "from jobcontract import Handlers\n"
        "handlers = Handlers()\n"
        "@handlers.handler('good')\n"
        "def good(input): pass\n"
        "@handlers.handler('bad', max_attempts=1)\n"
        "def bad(input): raise ValueError('no \\x00 \\x1b')\n"
    )
    good = run(
        "register", "good", "--key", "a", "--input-ref", '{"n": 18446744073709551617}', "--json"
    ).json()
    bad = run("register", "bad", "--json").json()
    assert run("register", "good", "--key", "a", "--input-ref", '{"n": 1}').code == 3
    with Process("worker", "app:handlers", "--until-empty", folder=folder) as jobctl:
        ran = jobctl.end()
    assert ran.code == 0, ran.err
    (shown,) = run("jobs", "show", good["job_id"], "--json").json()
    assert (shown["state"], shown["input_ref"]) == ("done", {"n": 18446744073709551617})
    listed = run("dead", "list", "--json").json()["jobs"]
    assert [job["id"] for job in listed] == [bad["job_id"]]
    assert "ValueError: no \ufffd \\x1b" in run("dead", "show", bad["job_id"]).out
    assert run("dead", "requeue", bad["job_id"]).code == 0
    assert run("jobs", "cancel", bad["job_id"]).out == f"{bad['job_id']} cancelled\n"
    assert run("jobs", "cancel", good["job_id"]).code == 3


def test_what_is_destroyed_is_asked_with_host_database_and_schema(
    run: Run, backend: Backend, postgres_server: PostgresServer, database: str
) -> None:
    put(backend, State.DONE)
    where = (
        f"PostgreSQL at 127.0.0.1:{postgres_server.port}, database '{database}', user 'jobcontract', schema "
    )
    assert f" jobs of {where}'jobcontract' that ended " in run("prune", "--older-than", "0s", stdin="n\n").err
    other = postgres_server.url(database=database, schema='Jobs "2"')
    assert run("init", "--backend", other).code == 0
    asked = run("dead", "requeue", "--all", "--backend", other, stdin="n\n")
    assert f"all dead jobs of {where}'Jobs \"2\"' back" in asked.err
    assert run("prune", "--older-than", "0s", "--yes").out == "pruned 1 job\n"


def test_what_a_socket_url_leaves_to_libpq_is_asked_for_too(
    run: Run, backend: Backend, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", str(postgres_server.port))
    monkeypatch.setenv("PGUSER", "oncall")
    url = f"postgresql://?host={quote(str(postgres_server.directory), safe='')}"
    asked = run("prune", "--older-than", "0s", "--backend", url, stdin="n\n")
    where = (
        f"PostgreSQL at {postgres_server.directory}:{postgres_server.port}, database 'oncall', user 'oncall'"
    )
    assert f" jobs of {where}, schema 'jobcontract' that ended " in asked.err


def test_the_live_server_says_what_it_can_do(run: Run, backend: Backend) -> None:
    told = run("backends", "main")
    assert told.code == 0
    assert "store         PostgreSQL " in told.out
    assert "it commits or vanishes with it" in told.out
    (found,) = run("backends", "--json").json()
    assert found["capabilities"]["transactional"] == "same"
    assert "***" in found["url"]


def test_a_server_that_is_away_is_a_row_and_a_sentence(
    run: Run, folder: Path, postgres_server: PostgresServer
) -> None:
    away = f"postgresql://app:{quote('canary/secret', safe='')}@127.0.0.1:1/app?timeout=2s"
    with (folder / "jobcontract.toml").open("a") as file:
        file.write(f'[backends.away]\nurl = "{away}"\n')
    run("init", "--backend", "main")
    ran = run("backends")
    assert ran.code == 0
    assert "main" in ran.out
    assert "\naway  " in ran.out
    stats = run("stats", "--backend", "away", "-vv")
    assert (stats.code, stats.out) == (1, "")
    assert "canary" not in ran.out + ran.err + stats.err


def test_a_wrong_password_is_a_sentence_without_it(
    run: Run, postgres_server: PostgresServer, database: str
) -> None:
    ran = run("stats", "--backend", postgres_server.url(database=database, password="canary-password"), "-vv")
    assert ran.code in (1, 2)
    assert "canary" not in ran.err


def test_a_connection_that_breaks_in_the_middle_of_a_file_is_told_and_the_file_can_be_sent_again(
    run: Run, backend: Backend, postgres_server: PostgresServer, database: str, folder: Path
) -> None:
    """The server ends the session, and that of each repetition, once 2,000 jobs are there."""
    with postgres_server.connect(database) as connection:
        connection.execute(
            "CREATE FUNCTION hang_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF (SELECT count(*) FROM jobcontract.live_jobs) > 2000 THEN "
            "PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$"
        )
        connection.execute(
            "CREATE TRIGGER hang_up AFTER INSERT ON jobcontract.live_jobs EXECUTE FUNCTION hang_up()"
        )
    lines = [json.dumps({"kind": "k", "idempotency_key": str(number)}) + "\n" for number in range(3500)]
    (folder / "jobs.jsonl").write_text("".join(lines))
    ran = run("register", "--from-file", "jobs.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert (
        "2,000 of 3,500 jobs are stored, and perhaps those of lines 2001 to 3000; it is safe to run it again"
        in ran.err
    )
    with postgres_server.connect(database) as connection:
        connection.execute("DROP TRIGGER hang_up ON jobcontract.live_jobs")
    assert run("register", "--from-file", "jobs.jsonl").out == (
        "registered 1,500 jobs, 2,000 duplicates already there\n"
    )


def test_an_outcome_that_is_not_known_is_said(
    run: Run, backend: Backend, postgres_server: PostgresServer, database: str
) -> None:
    """The server ends the session behind the insert: it is rolled back, but who registers can't know."""
    with postgres_server.connect(database) as connection:
        connection.execute(
            "CREATE FUNCTION hang_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
        )
        connection.execute(
            "CREATE TRIGGER hang_up AFTER INSERT ON jobcontract.live_jobs EXECUTE FUNCTION hang_up()"
        )
    ran = run("register", "k")
    assert (ran.code, ran.out) == (1, "")
    assert re.search(r"; whether job [0-9a-f-]{36} is stored is not known\n$", ran.err)
    assert run("register", "k", "--key", "a").err.endswith(
        " is stored is not known; with its key it is safe to run it again\n"
    )


def test_a_refused_connection_means_that_nothing_was_registered(run: Run) -> None:
    ran = run("register", "k", "--backend", "postgresql://app@127.0.0.1:1/app")
    assert ran.code == 1
    assert "can't connect to PostgreSQL at 127.0.0.1:1" in ran.err
    assert ran.err.endswith("; nothing was registered\n")


def test_watching_outlives_a_restart_of_the_server(postgres_programs: Programs, folder: Path) -> None:
    output = folder / "watched"
    with PostgresServer(programs=postgres_programs, fsync=False) as server:
        url = server.url(timeout="2s")
        with get_backend(url) as backend:
            backend.install()
            put(backend, State.READY)
        with (
            output.open("wb") as out,
            Process(
                *("stats", "--watch", "--json", "--interval", "200ms", "--backend", url),
                folder=folder,
                stdout=out,
                stderr=out,
            ) as jobctl,
        ):
            until(lambda: '"ready": 1' in output.read_text())
            server.stop()
            until(lambda: "Error: " in output.read_text())
            seen = output.read_text().count('"ready": 1')
            server.start()
            until(lambda: output.read_text().count('"ready": 1') > seen)
            jobctl.interrupt()
            assert jobctl.end().code == 130

"""The applications of docs/examples: a real request registers in its transaction, a worker runs the job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobcontract import State, get_backend
from jobcontract.config import Settings
from tests.docs.requesting import TITLES
from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_the_job_commits_and_vanishes_with_the_row(name: str, postgres_server: PostgresServer) -> None:
    database = postgres_server.create_database()
    url = postgres_server.url(database)
    environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=EXAMPLES,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with get_backend(url, settings=Settings()) as backend:
        backend.install()
        assert json.loads(run("tests.docs.requesting", name)) == [201, 201, 422, 500]
        rows = postgres_server.execute("SELECT id, title FROM documents ORDER BY id", database)
        assert [title for _, title in rows] == list(TITLES[:2])
        documents = [number for number, _ in rows]
        jobs = [status.job for status in backend.jobs() if status.job is not None]
        assert sorted(str(job.input_ref["document_id"]) for job in jobs) == sorted(map(str, documents))
        assert {job.idempotency_key for job in jobs} == {f"document:{number}" for number in documents}

        run("jobcontract", "worker", f"{name}:handlers", "--backend", url, "--until-empty")
        found = postgres_server.execute("SELECT document_id, attempt FROM embeddings ORDER BY 1", database)
        assert found == [(number, 1) for number in documents]
        assert {status.state for status in backend.jobs()} == {State.DONE}
    postgres_server.drop_database(database)


def test_each_framework_has_one() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"fastapi_app", "flask_app", "django_app"}

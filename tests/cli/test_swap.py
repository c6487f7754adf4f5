"""Another store is another line of configuration: the application and its worker stay as they are."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.process import Process, until
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

APPLICATION = """
import sys
from pathlib import Path
from jobcontract import Handlers, JobContext, JobInput, Retry, get_backend

class Extract(JobInput, kind="extract"):
    document_id: int

handlers = Handlers()

@handlers.handler(Extract, max_attempts=3)
def extract(input: Extract, context: JobContext) -> None:
    if input.document_id % 5 == 0 and context.attempt == 1:
        raise Retry("the store of documents is busy", after=1)
    with Path("extracted").open("a") as out:
        out.write(f"{input.document_id} at attempt {context.attempt}\\n")

if __name__ == "__main__":
    with get_backend() as backend:
        backend.register_many([Extract(document_id=number) for number in range(20)])
"""


@pytest.fixture
def settings(
    folder: Path, postgres_server: PostgresServer, redis_server: RedisServer, rabbitmq_server: RabbitServer
) -> str:
    """A configuration of all four stores, which names none as the one to use."""
    name = f"swap_{secrets.token_hex(6)}"
    return f"""
[backends.postgres]
url = "{postgres_server.url(schema=name)}"
[backends.sqlite]
url = "sqlite:///{folder}/jobs.db"
[backends.redis]
url = "{redis_server.url()}?namespace={name}"
[backends.rabbitmq]
url = "{rabbitmq_server.url(rabbitmq_server.create_vhost())}"
"""


@pytest.mark.parametrize("default", ["postgres", "sqlite", "redis", "rabbitmq"])
def test_the_same_application_runs_on_every_store(
    run: Run, folder: Path, settings: str, default: str
) -> None:
    (folder / "jobcontract.toml").write_text(f'default = "{default}"\n{settings}')
    (folder / "app.py").write_text(APPLICATION)
    assert run("init").code == 0
    subprocess.run([sys.executable, "app.py"], cwd=folder, check=True)
    lines = folder / "extracted"
    with Process("worker", "app:handlers", "--concurrency", 4, folder=folder) as worker:
        until(lambda: lines.exists() and len(lines.read_text().splitlines()) >= 20)
        worker.terminate()
        assert worker.end().code == 0
    wanted = [f"{number} at attempt {2 if number % 5 == 0 else 1}" for number in range(20)]
    assert sorted(lines.read_text().splitlines()) == sorted(wanted)

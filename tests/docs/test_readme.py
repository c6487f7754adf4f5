"""The application of the README runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobcontract import Handlers, get_backend
from jobcontract.worker import Worker, WorkerOptions
from tests.servers.postgres import PostgresServer

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The README's code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_application_of_the_readme_runs(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.url(postgres_server.create_database())
    monkeypatch.setenv("JOBCONTRACT_BACKENDS__POSTGRES__URL", url)
    monkeypatch.setenv("JOBCONTRACT_DEFAULT", "postgres")
    with psycopg.connect(url, autocommit=True) as connection, get_backend() as backend:
        backend.install()
        connection.execute("CREATE TABLE documents (id int)")
        connection.execute("CREATE TABLE embeddings (document_id int)")
        application: dict[str, Any] = {"connection": connection, "__name__": "app"}
        (code,) = blocks("python")
        exec(compile(code, "README.md", "exec"), application)
        handlers = application["handlers"]
        assert isinstance(handlers, Handlers)

        tally = Worker(backend, handlers, WorkerOptions(until_empty=True)).run()

        assert tally.completed == 1
        assert connection.execute("SELECT * FROM documents").fetchall() == [(7,)]
        assert connection.execute("SELECT * FROM embeddings").fetchall() == [(7,)]
        duplicate = application["EmbedDocument"](document_id=7, model_version="v3")
        assert not backend.register(duplicate).created


def test_the_settings_of_the_readme_are_settings(tmp_path: Path) -> None:
    from jobcontract.config import load_settings

    for number, block in enumerate(blocks("toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        settings = load_settings(file, environment={})
        assert settings.store().name == settings.default

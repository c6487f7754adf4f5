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

DATABASE = "postgresql://app@db.internal/app"
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
    (code,) = blocks("python")
    assert code.count(DATABASE) == 1
    application: dict[str, Any] = {"__name__": "app"}
    exec(compile(code.replace(DATABASE, url), "README.md", "exec"), application)
    handlers = application["handlers"]
    assert isinstance(handlers, Handlers)
    with (
        psycopg.connect(url, autocommit=True) as connection,
        application["backend"],
        get_backend() as backend,
    ):
        backend.install()
        connection.execute("CREATE TABLE documents (id int)")
        connection.execute("CREATE TABLE embeddings (document_id int)")
        documents = list(range(40))  # more than a worker runs at once
        for document in documents:
            application["add_document"](document)

        tally = Worker(backend, handlers, WorkerOptions(until_empty=True)).run()

        assert (tally.completed, tally.failed) == (len(documents), 0)
        for table in ("documents", "embeddings"):
            rows = connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            assert rows == [(document,) for document in documents]
        duplicate = application["EmbedDocument"](document_id=7, model_version="v3")
        assert not backend.register(duplicate).created


def test_the_settings_of_the_readme_are_settings(tmp_path: Path) -> None:
    from jobcontract.config import load_settings

    for number, block in enumerate(blocks("toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        settings = load_settings(file, environment={})
        assert settings.store().name == settings.default

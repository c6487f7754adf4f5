"""docs/capabilities.md says what the servers that the tests run on declare.

A section per product and version. After a change, write the sections of the servers at hand anew:

    UPDATE_CAPABILITIES=1 python -m pytest tests/docs/test_capabilities.py [--servers=debian13]
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from jobcontract import get_backend
from jobcontract.cli.capability_words import sentences
from tests.servers.binaries import Programs
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

DOCUMENT = Path(__file__).parents[2] / "docs" / "capabilities.md"
UPDATE = bool(os.environ.get("UPDATE_CAPABILITIES"))
INTRODUCTION = """\
# What each store can do

Read from live servers, as the tests start them (fsync on, Redis with its append-only file synced each
second). Yours may be set up otherwise: `jobctl backends NAME` asks it. `tests/docs/test_capabilities.py`
writes this file and fails when it is not true.
"""


def section(url: str) -> tuple[str, str]:
    """The heading of the server at `url`, and what belongs below it."""
    with get_backend(url) as backend:
        backend.install()
        capabilities = backend.capabilities
    product, version = capabilities.store.rsplit(" ", 1)
    major = version.partition(".")[0]
    # RabbitMQ changes between minor versions, SQLite in its third number.
    heading = f"{product} {'.'.join(version.split('.')[:2]) if product in ('RabbitMQ', 'SQLite') else major}"
    rows = [f"| {title} | {sentence} |" for title, sentence in sentences(capabilities) if title != "store"]
    notes = [f"- {note}" for note in capabilities.notes]
    return heading, "\n".join(["| | |", "|---|---|", *rows, *([""] if notes else []), *notes])


def committed() -> dict[str, str]:
    """The sections of the document, by heading."""
    if not DOCUMENT.exists():
        return {}
    parts = re.split(r"^## (.*)\n", DOCUMENT.read_text(), flags=re.MULTILINE)
    return {heading: text.strip() for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def check(url: str) -> None:
    """The section of the server at `url` is what it declares.

    Where its version has none, the table of the latest version is; the notes below it are about one version.
    """
    heading, text = section(url)
    sections = committed()
    if UPDATE:
        sections[heading] = text
        body = "\n".join(f"## {name}\n\n{sections[name]}\n" for name in sorted(sections, key=_by_product))
        DOCUMENT.write_text(f"{INTRODUCTION}\n{body}")
        return
    if heading in sections:
        assert sections[heading] == text
        return
    product = heading.rsplit(" ", 1)[0]
    latest = max((name for name in sections if name.rsplit(" ", 1)[0] == product), key=_by_product)
    assert _table(sections[latest]) == _table(text)


def _table(section: str) -> str:
    return section.partition("\n\n")[0]


def _by_product(heading: str) -> tuple[str, list[int]]:
    product, version = heading.rsplit(" ", 1)
    return product, [int(part) for part in re.findall(r"\d+", version)]


def test_postgresql(postgres_programs: Programs) -> None:
    with PostgresServer(programs=postgres_programs) as server:  # the shared one runs without fsync
        check(server.url(server.create_database()))


def test_sqlite(tmp_path: Path) -> None:
    check(f"sqlite:///{tmp_path}/jobs.db")


def test_redis(redis_server: RedisServer) -> None:
    check(f"{redis_server.url()}?namespace=capabilities")


def test_rabbitmq(rabbitmq_server: RabbitServer) -> None:
    check(rabbitmq_server.url(rabbitmq_server.create_vhost()))


@pytest.mark.parametrize("product", ["PostgreSQL", "Redis", "RabbitMQ", "SQLite"])
def test_each_store_has_a_section(product: str) -> None:
    assert any(heading.startswith(product) for heading in committed())

"""The application of the demo: two tables in its own database, which also holds the jobs.

`results` has no unique constraint on purpose. What keeps a result from being written twice is `once()` alone,
and the demo counts whether it did.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from jobcontract.url import StoreURL

# psycopg's or sqlite3's connection: psycopg is an optional dependency, and the demo runs without it.
Connection: TypeAlias = Any

_TABLES = (
    "CREATE TABLE documents (id bigint PRIMARY KEY, path text NOT NULL)",
    "CREATE TABLE results (document_id bigint NOT NULL, model_version text NOT NULL, terms text NOT NULL)",
)


class Count(NamedTuple):
    """What the application's own tables say at the end."""

    documents: int
    results: int
    lost: int
    """Documents without a result."""
    doubled: int
    """Results beyond the first of their document and model version."""


class Application:
    """The demo's database access, the same few statements on PostgreSQL and SQLite."""

    def __init__(self, url: str) -> None:
        """`url` is that of the job store: the application's tables live in the same database."""
        self._url = StoreURL.parse(url)

    def connect(self) -> Connection:
        """A new connection. Blocks for the time of connecting."""
        if self._url.scheme == "sqlite":
            return sqlite3.connect(self._url.path.removeprefix("/"), isolation_level=None, timeout=30)
        import psycopg  # only here: SQLite needs no client library

        return psycopg.connect(
            host=self._url.query["host"],
            user=self._url.username,
            dbname=self._url.path.removeprefix("/"),
            autocommit=True,
        )

    @contextmanager
    def transaction(self, connection: Connection) -> Generator[None]:
        """One transaction: committed at the end of the block, rolled back when it raises."""
        connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def create_tables(self, connection: Connection) -> None:
        """The two tables of the application."""
        for statement in _TABLES:
            connection.execute(statement)

    def insert_document(self, connection: Connection, document_id: int, path: str) -> None:
        """The business row that a job is about."""
        connection.execute(self._sql("INSERT INTO documents (id, path) VALUES (?, ?)"), (document_id, path))

    def document_path(self, connection: Connection, document_id: int) -> str:
        """Where the document is."""
        found = connection.execute(
            self._sql("SELECT path FROM documents WHERE id = ?"), (document_id,)
        ).fetchone()
        return str(found[0])

    def insert_result(
        self, connection: Connection, document_id: int, model_version: str, terms: dict[str, int]
    ) -> None:
        """What the handler found out."""
        connection.execute(
            self._sql("INSERT INTO results (document_id, model_version, terms) VALUES (?, ?, ?)"),
            (document_id, model_version, json.dumps(terms, ensure_ascii=False)),
        )

    def count_results(self, connection: Connection) -> int:
        """How far the work is."""
        return int(connection.execute("SELECT count(*) FROM results").fetchone()[0])

    def count(self, connection: Connection) -> Count:
        """The conservation law in numbers."""
        row = connection.execute(
            "SELECT (SELECT count(*) FROM documents),"
            " (SELECT count(*) FROM results),"
            " (SELECT count(*) FROM documents"
            " WHERE NOT EXISTS (SELECT 1 FROM results WHERE results.document_id = documents.id)),"
            " (SELECT count(*) FROM results)"
            " - (SELECT count(*) FROM (SELECT DISTINCT document_id, model_version FROM results) AS pairs)"
        ).fetchone()
        return Count(*map(int, row))

    def _sql(self, statement: str) -> str:
        return statement if self._url.scheme == "sqlite" else statement.replace("?", "%s")

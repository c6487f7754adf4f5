"""The private servers of a run, and an empty place on them for each measurement.

All contestants of a store meet the same server with the same settings, which acknowledge durably.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Generator

import psycopg

from benchmarks.side_by_side.contestants import Contestant, Store
from tests.servers.postgres import PostgresServer


class Place(abc.ABC):
    """An empty part of a server, for one contestant and one measurement."""

    url: str

    @abc.abstractmethod
    def unsettled(self) -> int:
        """How many jobs are not finished, as the store sees it."""

    @abc.abstractmethod
    def size(self) -> int:
        """The bytes that the store uses for what is in this place."""


class Arena(abc.ABC):
    """A running server."""

    settings: str
    """In words, for the results."""

    @abc.abstractmethod
    def place(self, contestant: Contestant) -> contextlib.AbstractContextManager[Place]:
        """An empty place, which is thrown away afterwards."""


class _PostgresPlace(Place):
    def __init__(self, url: str, connection: psycopg.Connection, question: str) -> None:
        self.url = url
        self._connection = connection
        self._question = question

    def unsettled(self) -> int:
        return self._number(self._question)

    def size(self) -> int:
        return self._number("SELECT pg_database_size(current_database())")

    def _number(self, question: str) -> int:
        row = self._connection.execute(question.encode()).fetchone()
        assert row is not None
        return int(row[0])


class PostgresArena(Arena):
    """One cluster; a database per place."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        version = server.execute("SHOW server_version")[0][0]
        self.settings = f"PostgreSQL {version}: fsync and synchronous_commit on, shared_buffers 256 MB"

    @contextlib.contextmanager
    def place(self, contestant: Contestant) -> Generator[Place]:
        name = self._server.create_database()
        # What the measurement before has left to write is not this one's to pay.
        self._server.execute("CHECKPOINT")
        try:
            with self._server.connect(name) as connection:
                yield _PostgresPlace(self._server.url(name), connection, contestant.unsettled)
        finally:
            self._server.drop_database(name)


@contextlib.contextmanager
def arena(store: Store) -> Generator[Arena]:
    """A private server of `store`, for as long as the block runs."""
    match store:
        case Store.POSTGRES:
            with PostgresServer(settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}) as postgres:
                yield PostgresArena(postgres)
        case Store.REDIS | Store.RABBITMQ:
            raise NotImplementedError(store)

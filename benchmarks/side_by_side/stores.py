"""The private servers of a run, and an empty place on them for each measurement.

All contestants of a store meet the same server with the same settings, which acknowledge durably.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Generator
from urllib.parse import quote

import psycopg

from benchmarks.side_by_side.contestants import Contestant, Store
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

_PASSWORD = "benchmark"
"""Needs no quoting in a URL: not every contestant undoes it."""


class Place(abc.ABC):
    """An empty part of a server, for one contestant and one measurement."""

    url: str
    counts_at_rest = False
    """Whether `unsettled` is the truth only while nobody works here."""

    @abc.abstractmethod
    def unsettled(self) -> int:
        """How many jobs are not finished, as the store sees it."""

    def size(self) -> int:
        """The bytes that the store takes for what is here. Where it can say."""
        raise NotImplementedError(f"{type(self).__name__} does not know its size")

    def snapshot(self) -> contextlib.AbstractContextManager[object]:
        """Another session holds an old snapshot while the block runs. Where there are such things."""
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")


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
        row = self._connection.execute(self._question.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def size(self) -> int:
        row = self._connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return int(row[0])

    @contextlib.contextmanager
    def snapshot(self) -> Generator[None]:
        with psycopg.connect(self.url) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1")  # from here on it is held
            yield


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


class _RedisPlace(Place):
    def __init__(self, server: RedisServer, question: str) -> None:
        self.url = server.url()
        self._server = server
        self._question = question

    def unsettled(self) -> int:
        return int(self._server.ask("EVAL", self._question, 0))

    def size(self) -> int:
        return int(self._server.information("memory")["used_memory"])


class RedisArena(Arena):
    """One server, flushed for each place."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        version = server.information("server")["redis_version"]
        self.settings = f"Redis {version}: append-only file, appendfsync everysec"

    @contextlib.contextmanager
    def place(self, contestant: Contestant) -> Generator[Place]:
        self._server.ask("FLUSHALL")
        yield _RedisPlace(self._server, contestant.unsettled)


class _RabbitPlace(Place):
    counts_at_rest = True

    def __init__(self, server: RabbitServer, vhost: str) -> None:
        self.url = server.url(vhost)
        self._server = server
        self._vhost = vhost

    def unsettled(self) -> int:
        # The management API is seconds behind; a passive declaration is answered by the queue itself.
        queues = [
            queue["name"] for queue in self._server.api("GET", f"/queues/{quote(self._vhost, safe='')}")
        ]
        connection = self._server.connect(self._vhost)
        try:
            channel = connection.channel()
            return sum(int(channel.queue_declare(name, passive=True).method.message_count) for name in queues)
        finally:
            connection.close()


class RabbitArena(Arena):
    """One node; a virtual host per place."""

    def __init__(self, server: RabbitServer) -> None:
        self._server = server
        version = ".".join(map(str, server.version()))
        self.settings = f"RabbitMQ {version}: durable queues, persistent messages, publisher confirms"

    @contextlib.contextmanager
    def place(self, contestant: Contestant) -> Generator[Place]:
        del contestant  # each queue is asked for its length
        vhost = self._server.create_vhost()
        try:
            yield _RabbitPlace(self._server, vhost)
        finally:
            self._server.delete_vhost(vhost)


@contextlib.contextmanager
def arena(store: Store) -> Generator[Arena]:
    """A private server of `store`, for as long as the block runs."""
    match store:
        case Store.POSTGRES:
            settings = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
            with PostgresServer(password=_PASSWORD, settings=settings) as postgres:
                yield PostgresArena(postgres)
        case Store.REDIS:
            with RedisServer(password=_PASSWORD) as redis:
                yield RedisArena(redis)
        case Store.RABBITMQ:
            with RabbitServer(password=_PASSWORD) as rabbit:
                yield RabbitArena(rabbit)

"""The Redis driver keeps the contract, on one server and on a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any, cast
from uuid import uuid4

import pytest
import redis

from jobcontract.conformance import ConformanceSuite, Harness
from jobcontract.contract import Driver
from tests.servers.binaries import Programs
from tests.servers.redis import RedisServer
from tests.servers.redis_groups import RedisCluster, start_cluster


class NamespaceHarness(Harness):
    """A namespace of its own for each store, on servers that are shared."""

    def __init__(self, url: str, servers: Sequence[RedisServer]) -> None:
        self._url = url
        self._servers = servers

    def create(self) -> str:
        return f"{self._url}?namespace={uuid4().hex}"

    def destroy(self, url: str) -> None:
        for client in self._clients():
            with cast(Any, client).pipeline(transaction=False) as pipeline:
                for key in _keys(client, f"{{{_namespace(url)}:*"):
                    pipeline.unlink(key)  # each by itself: in a cluster, a command names keys of one slot
                pipeline.execute()

    def corrupt(self, url: str, job_id: str, input_ref: str) -> None:
        for client in self._clients():
            for key in _keys(client, f"{{{_namespace(url)}:*}}:b:{job_id}"):
                body = cast(bytes, client.get(key))
                head, _, rest = body.partition(b"\n")
                *_, key_length, headers_length = head.split(b" ")
                kept = rest[: int(key_length) + int(headers_length)]
                client.set(key, head + b"\n" + kept + input_ref.encode())

    def disconnect(self, driver: Driver) -> None:
        del (
            driver
        )  # whose connections these are, the server can't tell; the other clients have to bear it too
        for server in self._servers:
            server.ask("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")

    def _clients(self) -> Generator[redis.Redis]:
        for server in self._servers:
            with contextlib.closing(server.client()) as client:
                yield client


def _namespace(url: str) -> str:
    return url.rpartition("=")[2]


def _keys(client: redis.Redis, pattern: str) -> list[bytes]:
    return list(cast("Iterator[bytes]", cast(Any, client).scan_iter(pattern, count=1000)))


@pytest.fixture(scope="module")
def server(redis_programs: Programs) -> Generator[RedisServer]:
    """One that syncs before it answers, so that the driver declares as much as it can."""
    with RedisServer(programs=redis_programs, appendfsync="always") as server:
        yield server


class TestServer(ConformanceSuite):
    @pytest.fixture
    def harness(self, server: RedisServer) -> Harness:
        return NamespaceHarness(server.url(), [server])


@pytest.fixture(scope="module")
def cluster(redis_programs: Programs) -> Generator[RedisCluster]:
    with start_cluster(programs=redis_programs) as cluster:
        yield cluster


class TestCluster(ConformanceSuite):
    @pytest.fixture
    def harness(self, cluster: RedisCluster) -> Harness:
        return NamespaceHarness(cluster.url(), cluster.members)

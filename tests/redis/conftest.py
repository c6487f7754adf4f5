"""Stores in Redis, by fixture."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from jobcontract_redis import RedisDriver

from tests.redis.stores import new_namespace, open_store
from tests.servers.binaries import Programs
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.servers.redis_groups import RedisCluster, start_cluster


@pytest.fixture
def namespace() -> str:
    """A namespace that nobody else uses."""
    return new_namespace()


@pytest.fixture
def store(redis_server: RedisServer, namespace: str) -> Generator[RedisDriver]:
    """An empty store on the server of the whole run."""
    driver = open_store(redis_server.url(), namespace=namespace)
    yield driver
    driver.close()


@pytest.fixture
def proxy(redis_server: RedisServer) -> Generator[Proxy]:
    """A proxy in front of the server of the whole run."""
    with Proxy(redis_server.address) as proxy:
        yield proxy


@pytest.fixture
def proxied(
    redis_server: RedisServer, proxy: Proxy, store: RedisDriver, namespace: str
) -> Generator[RedisDriver]:
    """A client of the same store behind the proxy, which has talked to it once."""
    driver = open_store(redis_server.url(host=proxy.host, port=proxy.port), namespace=namespace, timeout="2s")
    assert driver.stats() == store.stats()
    yield driver
    driver.close()


@pytest.fixture
def own_server(redis_programs: Programs) -> Generator[RedisServer]:
    """A server for a test that kills it, fills it or changes its settings. It syncs before it answers."""
    with RedisServer(programs=redis_programs, appendfsync="always") as server:
        yield server


@pytest.fixture(scope="module")
def cluster(redis_programs: Programs) -> Generator[RedisCluster]:
    """A cluster of three for a whole file."""
    with start_cluster(programs=redis_programs) as cluster:
        yield cluster

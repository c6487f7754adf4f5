"""Stores on the shared server, each in a virtual host of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobcontract import Backend
from tests.rabbitmq.stores import opened
from tests.servers.rabbitmq import RabbitServer


@pytest.fixture
def vhost(rabbitmq_server: RabbitServer) -> Iterator[str]:
    """An empty virtual host."""
    name = rabbitmq_server.create_vhost()
    yield name
    rabbitmq_server.delete_vhost(name)


@pytest.fixture
def url(rabbitmq_server: RabbitServer, vhost: str) -> str:
    """Where a store can be, with nothing there."""
    return rabbitmq_server.url(vhost)


@pytest.fixture
def store(url: str) -> Iterator[Backend]:
    """A store that is installed, with the queues `default` and `mail`."""
    with opened(url, queues="default,mail") as backend:
        yield backend


@pytest.fixture
def other(url: str, store: Backend) -> Iterator[Backend]:
    """A second client of `store`, as another process would be."""
    del store
    with opened(url, queues="default,mail") as backend:
        yield backend

"""Each ailment of a RabbitMQ store, provoked for real, is found and named with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.doctor.conftest import Doctor, installed
from tests.rabbitmq.stores import until
from tests.servers.binaries import Programs
from tests.servers.rabbitmq import RabbitServer

READY = "jobcontract.v1.ready.default.0"


@pytest.fixture
def vhost(rabbitmq_server: RabbitServer) -> Iterator[str]:
    """An empty virtual host."""
    name = rabbitmq_server.create_vhost()
    yield name
    rabbitmq_server.delete_vhost(name)


@pytest.fixture
def url(rabbitmq_server: RabbitServer, vhost: str) -> str:
    """Where the installed store is."""
    found = f"{rabbitmq_server.url(vhost)}?priority_levels=1"
    installed(found).close()
    return found


def test_a_healthy_store_is_silent(doctor: Doctor, url: str) -> None:
    assert doctor("--backend", url) == {}


def test_a_store_that_nobody_initialised(doctor: Doctor, rabbitmq_server: RabbitServer, vhost: str) -> None:
    assert "jobctl init" in doctor("--backend", rabbitmq_server.url(vhost))["missing"]


def test_a_classic_queue_where_a_quorum_queue_is_expected(
    doctor: Doctor, url: str, rabbitmq_server: RabbitServer, vhost: str
) -> None:
    path = f"/queues/{quote(vhost, safe='')}/{READY}"
    rabbitmq_server.api("DELETE", path)
    rabbitmq_server.api("PUT", path, {"durable": True, "arguments": {"x-queue-type": "classic"}})
    found = doctor("--backend", url)
    assert found.keys() == {"queue_type"}
    assert f"{READY} is a classic queue, no quorum queue" in found["queue_type"]
    assert "jobctl init" in found["queue_type"]


def test_a_quorum_queue_with_other_arguments(
    doctor: Doctor, url: str, rabbitmq_server: RabbitServer, vhost: str
) -> None:
    path = f"/queues/{quote(vhost, safe='')}/{READY}"
    rabbitmq_server.api("DELETE", path)
    rabbitmq_server.api(
        "PUT", path, {"durable": True, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 3}}
    )
    assert f"{READY} was declared with other arguments" in doctor("--backend", url)["queue_arguments"]


@pytest.fixture
def own(rabbitmq_programs: Programs) -> Iterator[RabbitServer]:
    """A node that may be starved."""
    with RabbitServer(programs=rabbitmq_programs) as server:
        yield server


def test_an_alarm(doctor: Doctor, own: RabbitServer) -> None:
    url = f"{own.url()}?priority_levels=1"
    installed(url).close()
    own.rabbitmqctl("set_vm_memory_high_watermark", "0.0001")
    found = until(lambda: doctor("--backend", url), "the alarm never showed")
    assert found.keys() == {"alarm"}
    assert "memory" in found["alarm"]
    assert "rabbitmq-diagnostics alarms" in found["alarm"]
    own.rabbitmqctl("set_vm_memory_high_watermark", "0.6")
    until(lambda: not doctor("--backend", url), "the alarm never ended")

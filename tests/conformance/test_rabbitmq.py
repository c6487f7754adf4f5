"""The RabbitMQ driver keeps the contract, as far as it declares to."""

from __future__ import annotations

import contextlib

import pytest
from jobcontract_rabbitmq import RabbitDriver

from jobcontract.conformance import ConformanceSuite, Harness
from jobcontract.contract import Driver
from jobcontract.url import StoreURL
from tests.servers.rabbitmq import RabbitServer


class VhostHarness(Harness):
    """A virtual host of its own for each store."""

    clock = "process"
    claimers = 20
    claimed_jobs = 3000
    examples = 10

    def __init__(self, server: RabbitServer) -> None:
        self._server = server

    def create(self) -> str:
        # The suite makes up its queues, so they are created as they come.
        return f"{self._server.url(self._server.create_vhost())}?create_queues=true"

    def destroy(self, url: str) -> None:
        self._server.delete_vhost(_vhost(url))

    def corrupt(self, url: str, job_id: str, input_ref: str) -> None:
        queue = "jobcontract.v1.ready.default.0"
        with contextlib.closing(self._server.connect(_vhost(url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for _ in range(channel.queue_declare(queue, passive=True).method.message_count):
                delivered, properties, body = channel.basic_get(queue)
                if properties.message_id == job_id:
                    body = body.replace(b'"input_ref":{}', f'"input_ref":{input_ref}'.encode())
                channel.basic_publish("", queue, body, properties, mandatory=True)
                channel.basic_ack(delivered.delivery_tag)

    def disconnect(self, driver: Driver) -> None:
        assert isinstance(driver, RabbitDriver)
        driver.disconnect()


def _vhost(url: str) -> str:
    return StoreURL.parse(url).path.removeprefix("/")


class TestServer(ConformanceSuite):
    @pytest.fixture
    def harness(self, rabbitmq_server: RabbitServer) -> Harness:
        return VhostHarness(rabbitmq_server)

"""The physical limit on RabbitMQ: a bare pika client on a quorum queue.

It publishes persistent, mandatory messages with at most 1,000 unconfirmed, and consumes at a prefetch of 500,
acknowledging each message where it arrives. There are no retries, delays, priorities and dead letters.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from typing import Any, cast

import pika
from pika.adapters.select_connection import SelectConnection

from benchmarks.side_by_side.programs import stage

PREFETCH = 500
QUEUE = "bare"
PERSISTENT = pika.BasicProperties(content_type="application/json", delivery_mode=2)


def prepare(url: str) -> None:
    """One quorum queue."""
    connection = cast(Any, pika.BlockingConnection(pika.URLParameters(url)))
    connection.channel().queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
    connection.close()


class Publisher:
    """A connection whose loop runs while something is unconfirmed."""

    def __init__(self, url: str) -> None:
        self._confirmed = self._wanted = 0
        self._channel: Any = None
        self._connection = cast(
            Any, SelectConnection(pika.URLParameters(url), on_open_callback=self._on_connection)
        )
        self._connection.ioloop.start()

    def _on_connection(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm, callback=self._on_selected)

    def _on_selected(self, _: object) -> None:
        self._connection.ioloop.stop()

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        self._confirmed = method.delivery_tag if method.multiple else self._confirmed + 1
        if self._confirmed >= self._wanted:
            self._connection.ioloop.stop()

    def publish(self, jobs: Sequence[stage.Input]) -> None:
        """Publish at most a window of jobs, and wait for the confirms."""
        for job in jobs:
            self._channel.basic_publish("", QUEUE, json.dumps(job).encode(), PERSISTENT, mandatory=True)
        self._wanted += len(jobs)
        self._connection.ioloop.start()


def register(url: str, registering: stage.Registering) -> None:
    """As many as one call brings, then their confirms."""
    publisher = Publisher(url)
    registering.run(one=lambda job: publisher.publish([job]), many=publisher.publish)


def work(url: str, mark: Callable[[int], None]) -> None:
    """Mark and acknowledge."""

    def on_delivery(channel: Any, method: Any, properties: object, body: bytes) -> None:
        mark(json.loads(body)["sent"])
        channel.basic_ack(method.delivery_tag)

    def on_channel(channel: Any) -> None:
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(QUEUE, on_delivery)

    connection = cast(
        Any,
        SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda opened: cast(Any, opened).channel(on_open_callback=on_channel),
            on_close_callback=lambda closed, _: cast(Any, closed).ioloop.stop(),
        ),
    )

    def stop(*_: object) -> None:
        connection.ioloop.add_callback_threadsafe(connection.close)

    signal.signal(signal.SIGTERM, stop)
    connection.ioloop.start()


if __name__ == "__main__":
    stage.main(prepare, register, work)

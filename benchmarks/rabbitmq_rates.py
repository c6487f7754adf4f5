"""How much of a bare pika client's rate the RabbitMQ driver keeps: register_many, and claim with complete.

    python -m benchmarks.rabbitmq_rates [--jobs 20000] [--rounds 5]

Two ways to do the same work, in turns, in this process, on one private server and through the same quorum
queue:

- *pika*: a `SelectConnection` and nothing else. It publishes ready-made messages of the same size, persistent
  and mandatory, with at most 1000 unconfirmed; and it consumes at a prefetch of 100 and of 500, acknowledging
  each message.
- *jobcontract*: `Backend.register_many` of `Job`s that are made already; `Backend.claim` of as many jobs as
  the prefetch, and `Backend.complete_many` of those, one after the other.

The figure to look at is the ratio of the two, the median of the rounds; absolute rates are the machine's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pika
from jobcontract_rabbitmq import open_driver
from jobcontract_rabbitmq.topology import Address, Topology
from pika.adapters.select_connection import SelectConnection

from jobcontract import Backend, Job
from jobcontract.config import StoreSettings
from jobcontract.records import to_envelope
from jobcontract.url import StoreURL
from tests.servers.rabbitmq import RabbitServer

REQUIRED = 0.7
WINDOW = 1000
PREFETCHES = (100, 500)
ADDRESS = Address("default", 0)


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000, help="per round and way")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with RabbitServer() as server:
        driver = open_driver(StoreSettings("benchmark", StoreURL.parse(server.url())))
        with Backend("benchmark", lambda: driver) as backend:
            backend.install()
            print(f"{backend.capabilities.store}, {arguments.jobs:,} jobs, {arguments.rounds} rounds")
            print(f"{'':24}{'pika':>12}{'jobcontract':>14}{'ratio':>8}")
            measured = measure(BarePika(server), backend, arguments.jobs, arguments.rounds)
    for name, rates in measured.items():
        bare, ours = (statistics.median(rates_of_one) for rates_of_one in zip(*rates, strict=True))
        ratio = statistics.median(own / other for other, own in rates)
        verdict = "" if ratio >= REQUIRED else f"  less than {REQUIRED}"
        print(f"{name:24}{bare:>10,.0f}/s{ours:>12,.0f}/s{ratio:>8.2f}{verdict}")


def measure(
    bare: BarePika, backend: Backend, count: int, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """For each kind of work, the rates of both ways in each round."""
    measured: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for prefetch in PREFETCHES:
            # What is published is thrown away before it is consumed: the more objects there are, the more
            # does Python's garbage collector look at while new ones are made.
            published = count / seconds(partial(bare.publish, bodies(count)))
            consumed = count / seconds(partial(bare.consume, count, prefetch))
            registered = count / seconds(partial(backend.register_many, jobs(count)))
            completed = count / seconds(partial(drain, backend, count, prefetch))
            measured.setdefault("register_many", []).append((published, registered))
            measured.setdefault(f"claim, complete, {prefetch}", []).append((consumed, completed))
    return measured


def jobs(count: int) -> list[Job]:
    """With envelopes of about 400 bytes."""
    return [
        Job(kind="benchmark.work", input_ref={"number": number, "document": "d" * 160})
        for number in range(count)
    ]


def bodies(count: int) -> list[bytes]:
    """The same jobs as messages."""
    return [to_envelope(job.to_record()).encode() for job in jobs(count)]


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def drain(backend: Backend, count: int, prefetch: int) -> None:
    """Claim and complete so many jobs, `prefetch` at a time."""
    while count > 0:
        claims = backend.claim(limit=min(prefetch, count))
        verdicts = backend.complete_many(claims)
        assert all(verdict.applied for verdict in verdicts)
        count -= len(claims)


class BarePika:
    """What one would write without jobcontract."""

    def __init__(self, server: RabbitServer) -> None:
        topology = Topology("jobcontract", 3)
        self._route = topology.to_ready(ADDRESS)
        self._queue = topology.ready_queue(ADDRESS)
        self._parameters = pika.ConnectionParameters(
            host=server.host,
            port=server.port,
            virtual_host=server.vhost,
            credentials=pika.PlainCredentials(server.user, server.password),
        )

    def publish(self, bodies: list[bytes]) -> None:
        """Until all are confirmed."""
        properties = pika.BasicProperties(
            content_type="application/json", delivery_mode=2, message_id="0" * 36, type="benchmark.work"
        )
        sent = confirmed = 0

        def pump(channel: Any) -> None:
            nonlocal sent
            while sent < len(bodies) and sent - confirmed < WINDOW:
                channel.basic_publish(*self._route, bodies[sent], properties, mandatory=True)
                sent += 1

        def begin(channel: Any) -> None:
            def on_confirm(frame: Any) -> None:
                nonlocal confirmed
                confirmed = frame.method.delivery_tag if frame.method.multiple else confirmed + 1
                if confirmed >= len(bodies):
                    channel.connection.close()
                else:
                    pump(channel)

            def selected(_: object) -> None:
                pump(channel)

            channel.confirm_delivery(on_confirm, callback=selected)

        self._run(begin)

    def consume(self, count: int, prefetch: int) -> None:
        """Until so many are acknowledged."""
        taken = 0

        def on_delivery(channel: Any, method: Any, properties: object, body: bytes) -> None:
            nonlocal taken
            del properties, body
            taken += 1
            channel.basic_ack(method.delivery_tag)
            if taken == count:
                channel.connection.close()

        def begin(channel: Any) -> None:
            channel.basic_qos(prefetch_count=prefetch)
            channel.basic_consume(self._queue, on_delivery)

        self._run(begin)

    def _run(self, begin: Callable[[Any], None]) -> None:
        def stop(closed: Any, _: object) -> None:
            closed.ioloop.stop()

        connection = SelectConnection(
            self._parameters,
            on_open_callback=lambda opened: cast(Any, opened).channel(on_open_callback=begin),
            on_close_callback=stop,
        )
        connection.ioloop.start()


if __name__ == "__main__":
    main()

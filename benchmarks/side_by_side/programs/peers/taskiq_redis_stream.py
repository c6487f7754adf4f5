"""taskiq on a Redis stream, its broker that acknowledges; an async task, 100 at a time."""

from __future__ import annotations

import asyncio
import signal

import stage
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker


def open_broker(url):
    return RedisStreamBroker(url)


def with_task(broker, mark=None):
    @broker.task(task_name="noop")
    async def noop(number: int, sent: int) -> None:
        mark(sent)

    return noop


async def prepare(url):
    broker = open_broker(url)
    await broker.startup()
    await broker.shutdown()


async def register(url, registering):
    broker = open_broker(url)
    noop = with_task(broker)
    await broker.startup()
    await registering.run_async(one=lambda job: noop.kiq(**job), many=None)
    await broker.shutdown()


async def work(url, mark):
    broker = open_broker(url)
    with_task(broker, mark)
    receiving = asyncio.create_task(run_receiver_task(broker, run_startup=True))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, receiving.cancel)
    await asyncio.wait([receiving])


if __name__ == "__main__":
    stage.main(prepare, register, work)

"""SAQ, on Redis and on PostgreSQL: concurrency 100, results not kept."""

from __future__ import annotations

import stage
from saq import Queue, Worker

CONCURRENCY = 100


async def prepare(url):
    queue = Queue.from_url(url)
    await queue.connect()
    await queue.disconnect()


async def register(url, registering):
    queue = Queue.from_url(url)
    await queue.connect()
    await registering.run_async(one=lambda job: queue.enqueue("noop", ttl=-1, **job), many=None)
    await queue.disconnect()


async def work(url, mark):
    async def noop(ctx, *, number, sent):
        mark(sent)

    queue = Queue.from_url(url)
    await queue.connect()
    await Worker(queue, functions=[("noop", noop)], concurrency=CONCURRENCY).start()


if __name__ == "__main__":
    stage.main(prepare, register, work)

"""arq: 100 jobs at a time, a poll every 10 ms, no results."""

from __future__ import annotations

import logging

import stage
from arq import Worker, create_pool
from arq.connections import RedisSettings
from arq.worker import func


def prepare(url):
    pass


async def register(url, registering):
    pool = await create_pool(RedisSettings.from_dsn(url))
    await registering.run_async(one=lambda job: pool.enqueue_job("noop", **job), many=None)
    await pool.aclose()


async def work(url, mark):
    logging.getLogger("arq").setLevel(logging.ERROR)

    async def noop(ctx, number, sent):
        mark(sent)

    worker = Worker(
        functions=[func(noop, name="noop", keep_result=0)],
        redis_settings=RedisSettings.from_dsn(url),
        max_jobs=100,
        poll_delay=0.01,
    )
    await worker.async_run()


if __name__ == "__main__":
    stage.main(prepare, register, work)

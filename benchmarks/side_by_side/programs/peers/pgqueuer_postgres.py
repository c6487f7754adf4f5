"""PgQueuer: asyncpg on uvloop, batches of 100."""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import timedelta

import asyncpg
import stage
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

BATCH = 100


async def prepare(url):
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def register(url, registering):
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))

    def payload(job):
        return json.dumps(job).encode()

    async def many(jobs):
        await queries.enqueue(["noop"] * len(jobs), [payload(job) for job in jobs], [0] * len(jobs))

    async def future(jobs):
        names, payloads = ["noop"] * len(jobs), [payload(job) for job in jobs]
        await queries.enqueue(names, payloads, [9] * len(jobs), [timedelta(days=1)] * len(jobs))

    await registering.run_async(
        one=lambda job: queries.enqueue("noop", payload(job)), many=many, future=future
    )
    await connection.close()


async def work(url, mark):
    connection = await asyncpg.connect(url)
    pgq = PgQueuer(AsyncpgDriver(connection))

    @pgq.entrypoint("noop")
    async def noop(job):
        mark(json.loads(job.payload)["sent"])

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pgq.shutdown.set)
    await pgq.qm.run(batch_size=BATCH)


if __name__ == "__main__":
    uvloop.install()
    stage.main(prepare, register, work)

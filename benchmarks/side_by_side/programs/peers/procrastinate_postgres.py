"""procrastinate: an asynchronous app on a pool of psycopg connections; an async task; concurrency 100."""

from __future__ import annotations

import procrastinate
import stage

CONCURRENCY = 100


def application(connector, mark=None):
    app = procrastinate.App(connector=connector)

    @app.task(name="noop", queue="default")
    async def noop(number: int, sent: int) -> None:
        mark(sent)

    return app, noop


def prepare(url):
    app, _ = application(procrastinate.SyncPsycopgConnector(conninfo=url))
    with app.open():
        app.schema_manager.apply_schema()


def register(url, registering):
    app, noop = application(procrastinate.SyncPsycopgConnector(conninfo=url))
    with app.open():
        future = noop.configure(priority=9, schedule_in={"days": 1})
        registering.run(
            one=lambda job: noop.defer(**job),
            many=lambda jobs: noop.batch_defer(*jobs),
            future=lambda jobs: future.batch_defer(*jobs),
        )


async def work(url, mark):
    app, _ = application(procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=20), mark)
    async with app.open_async():
        await app.run_worker_async(queues=["default"], concurrency=CONCURRENCY)


if __name__ == "__main__":
    stage.main(prepare, register, work)

"""The physical limit on PostgreSQL: the driver's own statements and nothing around them, on one connection.

It claims 100, marks them, and completes 100. Nothing is decoded and validated, nobody renews a lease,
rescues, waits, retries or stops in order. It registers as one would by hand: one prepared INSERT, or arrays
of 1,000 rows.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
from jobcontract_postgres import PostgresDriver

from benchmarks.side_by_side.programs import stage
from jobcontract.config import StoreSettings
from jobcontract.identifiers import new_job_id
from jobcontract.url import StoreURL

BATCH = 100
QUEUES = ("default",)
LEASE = timedelta(minutes=2)
INSERT: LiteralString = (
    "INSERT INTO jobcontract.live_jobs"
    " (id, run_at, created_at, max_attempts, priority, queue, kind, input_ref)"
    " SELECT id, statement_timestamp() + %s, statement_timestamp(), 5, %s, 'default', 'noop', input_ref"
    " FROM unnest(%s::uuid[], %s::json[]) AS job (id, input_ref)"
)


def open_driver(url: str) -> PostgresDriver:
    return PostgresDriver(StoreSettings("bare", StoreURL.parse(url)))


def prepare(url: str) -> None:
    """The driver's own schema."""
    with closing(open_driver(url)) as driver:
        driver.install()


def register(url: str, registering: stage.Registering) -> None:
    """INSERT and nothing else."""
    with psycopg.connect(url, autocommit=True) as connection:

        def insert(jobs: Sequence[stage.Input], delay: timedelta, priority: int) -> None:
            ids, inputs = [new_job_id() for _ in jobs], [json.dumps(job) for job in jobs]
            connection.execute(INSERT, (delay, priority, ids, inputs), prepare=True)

        def many(jobs: Sequence[stage.Input]) -> None:
            insert(jobs, timedelta(), 0)

        def future(jobs: Sequence[stage.Input]) -> None:
            insert(jobs, timedelta(days=1), 9)

        registering.run(one=lambda job: many([job]), many=many, future=future)


def work(url: str, mark: Callable[[int], None]) -> None:
    """Claim, mark, complete."""
    stopped = False

    def stop(*_: Any) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    with closing(open_driver(url)) as driver:
        while not stopped:
            claimed = driver.claim(QUEUES, BATCH, LEASE)
            for _, record in claimed:
                mark(json.loads(record.input_ref)["sent"])
            if claimed:
                driver.complete([lease for lease, _ in claimed])
            else:
                time.sleep(0.001)


if __name__ == "__main__":
    stage.main(prepare, register, work)

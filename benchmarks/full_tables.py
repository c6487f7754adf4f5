"""Whether years of finished jobs and a year of future ones slow those who look, or a worker that starts.

    python -m benchmarks.full_tables [--sizes 0 10000 100000 1000000] [--stores postgres sqlite]

For each size: so many jobs are done and so many are not due for a day, and the tables were vacuumed. Then
`stats` is called ten times, and a worker is started five times, for one job each: the time from its start to
the moment at which the job's handler runs.

To look at: neither column may grow with the size. Counts end at 100,001 (`COUNTED_UP_TO`), so that `stats`
may cost more at 100,000 than at 10,000, and no more at a million.
`tests/postgres/test_stats.py` holds the plans to bounds.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

from jobcontract import Backend, Handlers, Job, get_backend
from jobcontract.config import Settings
from jobcontract.worker import Worker, WorkerOptions
from tests.servers.postgres import PostgresServer

_POSTGRES = """
INSERT INTO jobcontract.live_jobs (id, run_at, created_at, max_attempts, priority, queue, kind, input_ref)
SELECT gen_random_uuid(), now() + interval '1 day', now(), 5, 9, 'default', 'k', '{}'
FROM generate_series(1, SIZE);
INSERT INTO jobcontract.done_jobs
    (id, run_at, created_at, finished_at, attempt, max_attempts, priority, queue, kind, input_ref)
SELECT gen_random_uuid(), now(), now(), now(), 1, 5, 0, 'default', 'k', '{}' FROM generate_series(1, SIZE)
"""
_SQLITE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 WHERE SIZE > 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < SIZE)
INSERT INTO jobcontract_jobs (id, queue, kind, priority, run_at, max_attempts, created_at, input_ref)
SELECT lower(hex(randomblob(16))), 'default', 'k', 9, now + 86400000000, 5, now, '{}'
FROM numbers, jobcontract_clock;
WITH RECURSIVE numbers (n) AS (SELECT 1 WHERE SIZE > 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < SIZE)
INSERT INTO jobcontract_done
    (id, queue, kind, priority, run_at, attempt, refunded, max_attempts, created_at, finished_at, input_ref)
SELECT lower(hex(randomblob(16))), 'default', 'k', 0, now, 1, 0, 5, now, now, '{}'
FROM numbers, jobcontract_clock;
ANALYZE
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[0, 10_000, 100_000, 1_000_000])
    parser.add_argument("--stores", nargs="+", choices=sorted(_STORES), default=sorted(_STORES))
    arguments = parser.parse_args()
    print(f"{'store':>10} {'done':>10} {'future':>10} {'stats ms':>9} {'start ms':>9}")
    for store in arguments.stores:
        for size in arguments.sizes:
            with _STORES[store](size) as backend:
                looking = [_timed(backend.stats) for _ in range(10)]
                starting = [_start(backend) for _ in range(5)]
            print(
                f"{store:>10} {size:>10,} {size:>10,} {statistics.median(looking):>9.1f} "
                f"{statistics.median(starting):>9.1f}"
            )


@contextlib.contextmanager
def _postgres(size: int) -> Generator[Backend]:
    with PostgresServer(fsync=False) as server, get_backend(server.url(), settings=Settings()) as backend:
        backend.install()
        with server.connect() as connection:
            connection.execute(_POSTGRES.replace("SIZE", str(size)).encode())
            connection.execute("VACUUM (ANALYZE) jobcontract.live_jobs, jobcontract.done_jobs")
        yield backend


@contextlib.contextmanager
def _sqlite(size: int) -> Generator[Backend]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.db"
        with get_backend(f"sqlite:///{file}", settings=Settings()) as backend:
            backend.install()
            with contextlib.closing(sqlite3.connect(file)) as connection, connection:
                connection.executescript(_SQLITE.replace("SIZE", str(size)))
            yield backend


_STORES: dict[str, Callable[[int], contextlib.AbstractContextManager[Backend]]] = {
    "postgres": _postgres,
    "sqlite": _sqlite,
}


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1000


def _start(backend: Backend) -> float:
    """From the start of a worker until it runs the one job that is due."""
    handlers = Handlers()
    ran: list[float] = []

    @handlers.handler("start")
    def start(input: dict[str, object]) -> None:
        ran.append(time.perf_counter())

    backend.register(Job(kind="start"))
    worker = Worker(backend, handlers, WorkerOptions(until_empty=True))
    begin = time.perf_counter()
    worker.run()
    (at,) = ran
    return (at - begin) * 1000


if __name__ == "__main__":
    main()

"""Whether a store of years stays as small as the work that is left: a week of busy days, and what each
leaves.

    python -m benchmarks.retention [--days 7] [--jobs 100000] [--retention 2]

One private PostgreSQL server. Each day registers `--jobs` jobs, a third of them with idempotency keys, one in
a hundred of which fails for good, and drains them in batches. Then the day is over: what it finished is moved
to its own date (as if the server's clock had gone on), and a worker's `rescue` keeps house, with its
automatic retention of `--retention` days. A reader stands in the way of each drop for a moment, as a backup
would, and a worker claims all the while.

To look at: the size of the live table with its indexes must not grow after the first day, nor the keys and
the history after the retention; and the longest claim during the housekeeping is the longest lock.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psycopg
from jobcontract_postgres import PostgresDriver, open_driver

from benchmarks.pinned_horizon import BULK, LEASE, QUEUES
from jobcontract import Job
from jobcontract.config import StoreSettings
from jobcontract.contract import ClaimedRecord, Failure
from jobcontract.url import StoreURL
from tests.servers.postgres import PostgresServer

BATCH = 500
MOST_GROWTH = 1.5
"""Of the live table from the first half to the second. Autovacuum runs when it likes, so days differ."""
LONGEST_CLAIM = 1.0


def main() -> None:
    """Live through the days and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs per day")
    parser.add_argument("--retention", type=int, default=2, help="days that finished jobs are kept")
    arguments = parser.parse_args()
    with (
        PostgresServer(settings={"autovacuum_naptime": "1s"}) as server,  # a day of ours lasts seconds
        closing(_open(server, arguments.retention)) as driver,
        server.connect() as connection,
    ):
        driver.install()
        print(
            f"{'day':>3} {'live':>9} {'keys':>9} {'history':>9} {'dead':>9} {'days kept':>9} "
            f"{'longest claim':>13}"
        )
        live: list[int] = []
        longest = 0.0
        for day in range(1, arguments.days + 1):
            _work(driver, arguments.jobs)
            _end_the_day(connection)
            driver.install()  # the partition of today, which has just got another date
            longest = max(longest, _keep_house(server, arguments.retention))
            sizes = _sizes(connection)
            live.append(sizes["live_jobs"])
            print(
                f"{day:>3} {_mb(sizes['live_jobs'])} {_mb(sizes['job_keys'])} {_mb(sizes['done_jobs'])} "
                f"{_mb(sizes['dead_jobs'])} {_days_kept(connection):>9} {longest * 1000:>10.0f} ms",
                flush=True,
            )
    half = len(live) // 2
    growth = max(live[half:]) / max(live[:half])
    print(f"the live table is at most {growth:.2f} times as large in the second half (at most {MOST_GROWTH})")
    if growth > MOST_GROWTH or longest > LONGEST_CLAIM:
        raise SystemExit("it grows, or a claim waited for the housekeeping")


def _open(server: PostgresServer, retention: int) -> PostgresDriver:
    settings = StoreSettings("benchmark", StoreURL.parse(server.url()), {"retention": f"{retention}d"})
    return open_driver(settings)


def _work(driver: PostgresDriver, jobs: int) -> None:
    """A day's jobs, registered and finished while further ones come."""
    left = jobs
    while left:
        made = [
            Job(
                kind="work",
                idempotency_key=f"{left}-{number}-{time.monotonic_ns()}" if number % 3 == 0 else None,
            )
            for number in range(min(BULK, left))
        ]
        driver.register([job.to_record() for job in made])
        left -= len(made)
        while claimed := driver.claim(QUEUES, BATCH, LEASE):
            _finish(driver, claimed)


def _finish(driver: PostgresDriver, claimed: Sequence[ClaimedRecord]) -> None:
    failing = [each.lease for number, each in enumerate(claimed) if number % 100 == 0]
    driver.fail([Failure(lease, "it broke", timedelta(), permanent=True) for lease in failing])
    driver.complete([each.lease for number, each in enumerate(claimed) if number % 100])


def _end_the_day(connection: psycopg.Connection) -> None:
    """What is done moves a day back, partition by partition, the oldest first: each has its date again."""
    rows = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'jobcontract.done_jobs'::regclass"
        " AND inhrelid <> 'jobcontract.done_jobs_rest'::regclass ORDER BY 1"
    ).fetchall()
    today = f"{datetime.now(UTC):%Y%m%d}"
    for (partition,) in rows:
        _, _, date = partition.rpartition("_")
        if date > today:
            continue
        day = datetime.strptime(date, "%Y%m%d").date()
        before = day - timedelta(days=1)
        connection.execute(f"ALTER TABLE jobcontract.done_jobs DETACH PARTITION {partition}".encode())
        connection.execute(f"UPDATE {partition} SET finished_at = finished_at - interval '1 day'".encode())
        connection.execute(f"ALTER TABLE {partition} RENAME TO done_jobs_{before:%Y%m%d}".encode())
        connection.execute(
            f"ALTER TABLE jobcontract.done_jobs ATTACH PARTITION jobcontract.done_jobs_{before:%Y%m%d}"
            f" FOR VALUES FROM ('{before} 00:00+00') TO ('{day} 00:00+00')".encode()
        )


def _keep_house(server: PostgresServer, retention: int) -> float:
    """What the `rescue` of a worker that has just started does, until it finds nothing more. The longest
    claim of another one meanwhile, in seconds.
    """
    stop = threading.Event()
    longest = 0.0

    def claim() -> None:
        nonlocal longest
        with closing(_open(server, retention)) as other:
            other.claim(QUEUES, 1, LEASE)
            while not stop.is_set():
                begun = time.monotonic()
                other.claim(QUEUES, 1, LEASE)
                longest = max(longest, time.monotonic() - begun)
                time.sleep(0.005)

    def read() -> None:
        with closing(server.connect(autocommit=False)) as reader:
            reader.execute("SELECT count(*) FROM jobcontract.done_jobs")
            time.sleep(0.3)

    threads = [threading.Thread(target=claim), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 120
    with server.connect() as connection:
        while _days_kept(connection) > retention and time.monotonic() < deadline:
            # What a lock puts off has its next turn ten minutes later; here another worker comes at once.
            with closing(_open(server, retention)) as worker:
                for _ in range(20):
                    worker.rescue(100)  # half a second at a time
    stop.set()
    for thread in threads:
        thread.join()
    return longest


def _sizes(connection: psycopg.Connection) -> dict[str, int]:
    rows = connection.execute(
        "SELECT name, (SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(oid))"
        " FROM (SELECT relname::text AS name, oid FROM pg_class WHERE relnamespace = "
        "'jobcontract'::regnamespace"
        " AND relname IN ('live_jobs', 'job_keys', 'done_jobs', 'dead_jobs')) AS ours"
    ).fetchall()
    single = connection.execute(
        "SELECT relname::text, pg_total_relation_size(oid) FROM pg_class"
        " WHERE relnamespace = 'jobcontract'::regnamespace AND relkind = 'r'"
    ).fetchall()
    return {**{name: int(size or 0) for name, size in rows}, **{name: int(size) for name, size in single}}


def _days_kept(connection: psycopg.Connection) -> int:
    row = connection.execute(
        "SELECT count(*) FROM pg_inherits WHERE inhparent = 'jobcontract.done_jobs'::regclass"
        " AND pg_relation_size(inhrelid) > 0"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _mb(size: int) -> str:
    return f"{size / 2**20:>6.1f} MB"


if __name__ == "__main__":
    main()

"""How much a claim of ten reads as the backlog grows, with as many future jobs of better priority in front.

    python -m benchmarks.claim_plan [--sizes 10000 100000 1000000]

For each size: that many jobs are due, that many of better priority are not due for an hour, and nothing has
counted them yet (no ANALYZE). The plan is the one that the session cached while the table was empty.

The figure to look at is the number of buffers: it must not grow with the backlog but by the height of the
index trees. `tests/postgres/test_claim_plan.py` holds it to a bound.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import LiteralString

import psycopg
from jobcontract_postgres import PostgresDriver
from jobcontract_postgres.capabilities import PRIORITIES
from jobcontract_postgres.low_water import LowWater, ranges
from psycopg import sql

from jobcontract.config import StoreSettings
from jobcontract.url import StoreURL
from tests.servers.postgres import PostgresServer

QUEUES = ("default",)
LIMIT = 10
LEASE = timedelta(minutes=2)
_SHARED = re.compile(r"Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    arguments = parser.parse_args()
    print(f"{'due':>10} {'not due':>10} {'buffers':>8} {'milliseconds':>13}")
    with PostgresServer(fsync=False) as server:
        for size in arguments.sizes:
            url = server.url(server.create_database())
            driver = PostgresDriver(StoreSettings("benchmark", StoreURL.parse(url)))
            with contextlib.closing(driver), psycopg.connect(url, autocommit=True) as connection:
                driver.install()
                prepare(connection)
                driver.claim(QUEUES, LIMIT, LEASE)
                fill(connection, size)
                touched = cached_plan_buffers(driver)
                milliseconds = [timed_claim(driver) for _ in range(20)]
                print(f"{size:>10,} {size:>10,} {touched:>8} {statistics.median(milliseconds):>13.2f}")


def prepare(connection: psycopg.Connection) -> None:
    """Leave the table as a queue does that has been empty for a while: vacuumed down to no page at all."""
    connection.execute("ALTER TABLE jobcontract.live_jobs SET (autovacuum_enabled = off)")
    connection.execute("VACUUM jobcontract.live_jobs")


def fill(connection: psycopg.Connection, count: int) -> None:
    """Add `count` due jobs, and `count` of better priorities that are not due."""
    insert: LiteralString = (
        "INSERT INTO jobcontract.live_jobs"
        " (id, run_at, created_at, max_attempts, priority, queue, kind, input_ref)"
        " SELECT lpad(to_hex(%s + n), 32, '0')::uuid, now() + %s + n * interval '1 ms', now(), 5,"
        " %s + n %% %s, 'default', 'noop', '{}' FROM generate_series(1, %s) AS n"
    )
    connection.execute(insert, (0, -timedelta(days=1), 0, 1, count))
    connection.execute(insert, (count, timedelta(hours=1), 1, 9, count))


def cached_plan_buffers(driver: PostgresDriver) -> int:
    """The buffers that a claim touches with the plan that the driver's session has cached."""
    with driver.sessions.session() as connection:  # its session is the one whose plan is in question
        row = connection.execute(
            "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%jobcontract claim %'"
        ).fetchone()
        assert row is not None, "the claim is not prepared in this session"
        call = sql.SQL("EXECUTE {}({})").format(
            sql.Identifier(row[0]), sql.SQL(", ").join(map(sql.Literal, claim_parameters()))
        )
        return explained_buffers(connection, call.as_string(connection))


def fresh_plan_buffers(connection: psycopg.Connection, driver: PostgresDriver) -> int:
    """The same with a plan made now on `connection`: what happens behind a pooler."""
    call = psycopg.ClientCursor(connection).mogrify(driver.statements.claim.encode(), claim_parameters())
    return explained_buffers(connection, call)


def explained_buffers(connection: psycopg.Connection[tuple[object, ...]], call: str) -> int:
    """The buffers of `call`, which is run and rolled back."""
    with connection.transaction(force_rollback=True):
        rows = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) {call}".encode()
        ).fetchall()
    # The first line with buffers is that of the topmost node, which includes all below it.
    for (line,) in rows:
        if found := _SHARED.search(str(line)):
            return sum(int(number or 0) for number in found.groups())
    raise AssertionError(f"the plan shows no buffers: {rows}")


def claim_parameters() -> Sequence[object]:
    """What a claim is called with that begins at the start of every range."""
    probes = LowWater().survey(QUEUES, PRIORITIES)
    return (*ranges(probes), LIMIT, LIMIT, LEASE, probes.is_survey)


def timed_claim(driver: PostgresDriver) -> float:
    """The milliseconds of a claim."""
    begun = time.perf_counter()
    assert len(driver.claim(QUEUES, LIMIT, LEASE)) == LIMIT
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    main()

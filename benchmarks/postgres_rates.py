"""How much of the bare SQL's rate the PostgreSQL driver keeps: register, claim and complete, one client.

    python -m benchmarks.postgres_rates [--singles 1000] [--jobs 20000] [--rounds 5] [--url postgresql://...]

Two ways to do the same work, in turns, on one server (a private one with fsync on), in one thread:

- *bare*: what people write by hand with psycopg. An INSERT and its COMMIT; an INSERT of 1,000 rows from
  arrays, with the idempotency keys in a table of their own; an UPDATE of 100 rows that SKIP LOCKED picked,
  and the DELETE that moves them to another table. The tables have the columns and indexes of the driver's;
  there are no verdicts, no schedule, no queues that pause and no waking of workers.
- *driver*: `PostgresDriver`, from `JobRecord`s and `Lease`s to `Registration`s, `ClaimedRecord`s and
  `Verdict`s.

"Single, autocommit" is the same INSERT in autocommit mode, which saves two round trips. It is shown for
comparison.

The figures to look at are the ratios. Absolute rates tell about the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from typing import ParamSpec

import psycopg
from jobcontract_postgres import PostgresDriver

from jobcontract.config import StoreSettings
from jobcontract.contract import Job, JobRecord
from jobcontract.url import StoreURL
from tests.servers.postgres import PostgresServer

BULK = 1000
BATCH = 100
QUEUES = ("default",)
LEASE = timedelta(minutes=2)
REQUIRED = {
    "single": 0.8,
    "single, keyed": 0.8,
    "single, autocommit": 0.0,
    "bulk": 0.7,
    "bulk, keyed": 0.7,
    "claim and complete": 0.7,
}

TABLES = """
    CREATE TABLE bare_jobs (LIKE jobcontract.live_jobs INCLUDING ALL);
    CREATE TABLE bare_keys (LIKE jobcontract.job_keys INCLUDING ALL);
    CREATE TABLE bare_done (LIKE jobcontract.live_jobs);
    CREATE INDEX ON bare_done (id);
"""
COLUMNS = "id, kind, queue, priority, max_attempts, idempotency_key, input_ref, run_at, created_at"
INSERT_KEY = "INSERT INTO bare_keys VALUES (%s, %s, %s, %s)"
INSERT_JOB = f"INSERT INTO bare_jobs ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, now(), now())"
INSERT_MANY = f"""
    WITH job AS (
        SELECT *
        FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::smallint[], %s::integer[], %s::text[],
                    %s::bytea[], %s::text[])
            AS job (id, kind, queue, priority, max_attempts, key, fingerprint, input_ref)
    ), key AS (
        INSERT INTO bare_keys SELECT queue, key, id, fingerprint FROM job WHERE key IS NOT NULL
        ON CONFLICT DO NOTHING RETURNING job_id
    )
    INSERT INTO bare_jobs ({COLUMNS})
    SELECT id, kind, queue, priority, max_attempts, key, input_ref::json, now(), now()
    FROM job WHERE key IS NULL OR id IN (SELECT job_id FROM key)
    ON CONFLICT DO NOTHING
"""
CLAIM = """
    UPDATE bare_jobs
    SET state = 'running', attempt = attempt + 1, token = gen_random_uuid(),
        lease_until = now() + interval '2 min'
    WHERE id = ANY (ARRAY(
        SELECT id FROM bare_jobs
        WHERE state = 'ready' AND queue = 'default' AND run_at <= now()
        ORDER BY priority DESC, run_at, id LIMIT 100 FOR UPDATE SKIP LOCKED
    ))
    RETURNING id, token, kind, input_ref::text, attempt
"""
COMPLETE = """
    WITH gone AS (
        DELETE FROM bare_jobs USING unnest(%s::uuid[], %s::uuid[]) AS lease (id, token)
        WHERE bare_jobs.id = lease.id AND bare_jobs.token = lease.token
        RETURNING bare_jobs.*
    )
    INSERT INTO bare_done SELECT * FROM gone
"""


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--singles", type=int, default=1000, help="jobs registered one by one, per round")
    parser.add_argument(
        "--jobs", type=int, default=20_000, help="jobs registered in bulk and drained, per round"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--url", help="an empty database on an otherwise idle server; default: a private one")
    arguments = parser.parse_args()
    seconds: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in REQUIRED}
    with server(arguments.url) as url, contextlib.ExitStack() as stack:
        driver = PostgresDriver(StoreSettings("benchmark", StoreURL.parse(url)))
        stack.enter_context(contextlib.closing(driver))
        driver.install()
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(TABLES)
        connection.autocommit = False
        for _ in range(arguments.rounds):
            for name in REQUIRED:
                for bare, ours in measure(name, connection, driver, arguments.singles, arguments.jobs):
                    seconds[name][0].append(bare)
                    seconds[name][1].append(ours)
        print(f"{driver.capabilities.store}, {driver.capabilities.durability}")
    report(seconds)


def report(seconds: dict[str, tuple[list[float], list[float]]]) -> None:
    """The medians, and the verdict."""
    slow: list[str] = []
    print(f"{'':<20} {'bare':>10} {'driver':>10} {'ratio':>6}")
    for name, both in seconds.items():
        bare, ours = (statistics.median(each) for each in both)
        needed = f"  (at least {REQUIRED[name]})" if REQUIRED[name] else ""
        print(f"{name:<20} {bare * 1e6:>7,.0f} us {ours * 1e6:>7,.0f} us {bare / ours:>6.2f}{needed}")
        if bare / ours < REQUIRED[name]:
            slow.append(name)
    if slow:
        raise SystemExit(f"slower than they may be: {', '.join(slow)}")


def measure(
    name: str, connection: psycopg.Connection, driver: PostgresDriver, singles: int, jobs: int
) -> Generator[tuple[float, float]]:
    """Pairs of seconds: what the bare way and the driver took for the same piece of work. One right after the
    other, so that whatever else the machine does meets both.
    """
    keyed = name.endswith("keyed")
    if name.startswith("single"):
        connection.autocommit = name.endswith("autocommit")
        for _ in range(singles):
            yield timed(bare_single, connection, records(1, keyed)), timed(driver.register, records(1, keyed))
        connection.autocommit = False
    elif name.startswith("bulk"):
        for _ in range(0, jobs, BULK):
            yield (
                timed(bare_bulk, connection, records(BULK, keyed)),
                timed(driver.register, records(BULK, keyed)),
            )
    else:  # drains what was registered above, as many batches in either way
        for _ in range(0, jobs, BATCH):
            yield timed(bare_drain, connection), timed(drain, driver)
        empty(connection, driver)


def bare_single(connection: psycopg.Connection, made: Sequence[JobRecord]) -> None:
    (record,) = made
    if record.idempotency_key is not None:
        connection.execute(
            INSERT_KEY, (record.queue, record.idempotency_key, record.id, record.fingerprint), prepare=True
        )
    connection.execute(
        INSERT_JOB,
        (
            record.id,
            record.kind,
            record.queue,
            record.priority,
            record.max_attempts,
            record.idempotency_key,
            record.input_ref,
        ),
        prepare=True,
    )
    connection.commit()


def bare_bulk(connection: psycopg.Connection, made: Sequence[JobRecord]) -> None:
    connection.execute(
        INSERT_MANY,
        (
            [record.id for record in made],
            [record.kind for record in made],
            [record.queue for record in made],
            [record.priority for record in made],
            [record.max_attempts for record in made],
            [record.idempotency_key for record in made],
            [record.fingerprint for record in made],
            [record.input_ref for record in made],
        ),
        prepare=True,
    )
    connection.commit()


def bare_drain(connection: psycopg.Connection) -> int:
    """Claim and complete one batch; how many jobs it had."""
    rows = connection.execute(CLAIM, prepare=True).fetchall()
    connection.commit()
    connection.execute(COMPLETE, ([row[0] for row in rows], [row[1] for row in rows]), prepare=True)
    connection.commit()
    return len(rows)


def drain(driver: PostgresDriver) -> int:
    """Claim and complete one batch; how many jobs it had."""
    claimed = driver.claim(QUEUES, BATCH, LEASE)
    return (
        sum(verdict.applied for verdict in driver.complete([each.lease for each in claimed]))
        if claimed
        else 0
    )


def empty(connection: psycopg.Connection, driver: PostgresDriver) -> None:
    """Drain what is left on either side."""
    while bare_drain(connection):
        pass
    while drain(driver):
        pass


_numbers = itertools.count()


def records(count: int, keyed: bool) -> list[JobRecord]:
    """New jobs with an input of some 200 bytes, in the random order in which keys come."""
    made: list[JobRecord] = []
    for number in itertools.islice(_numbers, count):
        key = f"{number * 2654435761 % 2**32:010}:v3" if keyed else None
        input_ref = {"document_id": number, "model_version": "v3", "path": "x" * 150}
        made.append(Job(kind="embed_document", input_ref=input_ref, idempotency_key=key).to_record())
    return made


Parameters = ParamSpec("Parameters")


def timed(
    work: Callable[Parameters, object], *arguments: Parameters.args, **options: Parameters.kwargs
) -> float:
    """The seconds that `work` takes."""
    begun = time.perf_counter()
    work(*arguments, **options)
    return time.perf_counter() - begun


@contextlib.contextmanager
def server(url: str | None) -> Generator[str]:
    """The URL of a database that is ours alone."""
    if url is not None:
        yield url
        return
    with PostgresServer() as private:
        yield private.url()


if __name__ == "__main__":
    main()

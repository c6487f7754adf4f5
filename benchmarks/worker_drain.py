"""How much of a bare SQL loop's rate a worker keeps: one process, no-op jobs, PostgreSQL.

    python -m benchmarks.worker_drain [--jobs 20000] [--rounds 3] [--url postgresql://...]

Three ways to drain the same jobs, in turns, in this process, on one server:

- *statements*: the driver's own claim of 100 and complete of 100, one after the other on one connection,
  nothing decoded and nothing run. It is the ceiling of a worker that does one thing at a time.
- *one table*: the loop that people write by hand, on one table with a status column.
- *worker*: `Worker`, with decoding, validation of a typed input, a context, a handler that returns, leases
  and everything else, from the claim of the first job to the completion of the last.

The figures to look at are the ratio of the worker to the statements, and its processor time per job. Absolute
rates tell about the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import time
from collections.abc import Callable, Generator
from datetime import timedelta

import psycopg

from jobcontract import JobInput, get_backend
from jobcontract.backend import Backend
from jobcontract.context import JobContext
from jobcontract.handlers import Handlers
from jobcontract.worker import Worker, WorkerOptions

BATCH = 100
REQUIRED = 0.5


class Noop(JobInput, kind="noop"):
    """What most inputs look like: a reference and a version."""

    document_id: int
    model_version: str


handlers = Handlers()


@handlers.handler(Noop)
def noop(input: Noop, context: JobContext) -> None:
    """Nothing: what is measured is everything else."""


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="an installed, otherwise idle store; default: a private server")
    arguments = parser.parse_args()
    with server(arguments.url) as url, get_backend(url) as backend:
        backend.install()
        ways: dict[str, Callable[[], Stopwatch]] = {
            "statements": lambda: statements(backend, arguments.jobs),
            "one table": lambda: one_table(url, arguments.jobs),
            "worker": lambda: worker(backend, arguments.jobs),
        }
        rates: dict[str, list[float]] = {way: [] for way in ways}
        cpu: list[float] = []
        worker(backend, BATCH)  # connections, prepared statements, imports
        for round_ in range(1, arguments.rounds + 1):
            for way, drain in ways.items():
                drained = drain()
                rates[way].append(arguments.jobs / drained.seconds)
                if way == "worker":
                    cpu.append(drained.processor / arguments.jobs * 1e6)
                print(f"round {round_}: {way:<11} {rates[way][-1]:>9,.0f} jobs/s", flush=True)
    report(rates, cpu)


def report(rates: dict[str, list[float]], cpu: list[float]) -> None:
    """The medians, and the verdict."""
    median = {way: statistics.median(each) for way, each in rates.items()}
    ratio = median["worker"] / median["statements"]
    print()
    for way, rate in median.items():
        print(f"{way:<11} {rate:>9,.0f} jobs/s")
    print(f"worker / statements: {ratio:.2f} (at least {REQUIRED})")
    print(f"worker / one table:  {median['worker'] / median['one table']:.2f}")
    print(f"worker's processor time: {statistics.median(cpu):.0f} us per job")
    if ratio < REQUIRED:
        raise SystemExit("the worker is slower than it may be")


def register(backend: Backend, jobs: int) -> None:
    """Fill the queue."""
    backend.register_many(Noop(document_id=number, model_version="v3").to_job() for number in range(jobs))


def statements(backend: Backend, jobs: int) -> Stopwatch:
    """The driver's statements alone."""
    register(backend, jobs)
    driver = backend.driver
    watch = Stopwatch()
    done = 0
    while claimed := driver.claim(("default",), BATCH, timedelta(minutes=2)):
        driver.complete([one.lease for one in claimed])
        done += len(claimed)
    watch.stop()
    assert done == jobs, f"{done} of {jobs} were drained"
    return watch


def one_table(url: str, jobs: int) -> Stopwatch:
    """The loop written by hand."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS one_table")
        connection.execute(
            "CREATE TABLE one_table (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL,"
            " input_ref jsonb NOT NULL, status text NOT NULL DEFAULT 'ready', run_at timestamptz NOT NULL"
            " DEFAULT now(), lease_until timestamptz, attempts int NOT NULL DEFAULT 0)"
        )
        connection.execute("CREATE INDEX ON one_table (run_at, id) WHERE status = 'ready'")
        connection.execute(
            "INSERT INTO one_table (kind, input_ref) SELECT 'noop', jsonb_build_object('document_id', number,"
            " 'model_version', 'v3') FROM generate_series(1, %s) AS number",
            [jobs],
        )
        watch = Stopwatch()
        done = 0
        while rows := connection.execute(
            "UPDATE one_table SET status = 'running', lease_until = now() + interval '2 minutes',"
            " attempts = attempts + 1 WHERE id IN (SELECT id FROM one_table WHERE status = 'ready'"
            " AND run_at <= now() ORDER BY run_at, id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING *",
            [BATCH],
            prepare=True,
        ).fetchall():
            connection.execute(
                "UPDATE one_table SET status = 'done' WHERE id = ANY(%s) AND status = 'running'",
                [[row[0] for row in rows]],
                prepare=True,
            )
            done += len(rows)
        watch.stop()
    assert done == jobs, f"{done} of {jobs} were drained"
    return watch


def worker(backend: Backend, jobs: int) -> Stopwatch:
    """The worker, its start and its stop included."""
    register(backend, jobs)
    watch = Stopwatch()
    tally = Worker(backend, handlers, WorkerOptions(until_empty=True)).run()
    watch.stop()
    assert tally.completed == jobs, f"{tally} of {jobs}"
    return watch


class Stopwatch:
    """How long something took, and how much processor time this process used for it. Runs from the start."""

    def __init__(self) -> None:
        self.seconds = -time.perf_counter()
        self.processor = -_processor_time()

    def stop(self) -> None:
        """Once."""
        self.seconds += time.perf_counter()
        self.processor += _processor_time()


def _processor_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def server(url: str | None) -> Generator[str]:
    """The given server, or one of our own."""
    if url is not None:
        yield url
        return
    from tests.servers.postgres import PostgresServer

    with PostgresServer() as private:
        yield private.url(private.create_database())


if __name__ == "__main__":
    main()

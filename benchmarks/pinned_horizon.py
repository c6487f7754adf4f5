"""How much of its rate a drain keeps while somebody holds an old snapshot.

    python -m benchmarks.pinned_horizon [--churn 200000] [--jobs 20000] [--rounds 5]

A report, a backup or a forgotten transaction keeps dead rows from being removed. Whatever a queue claims then
leaves an entry in the index of ready jobs that later claims walk over, and the rate falls with every job that
was ever done since.

Two databases of one private server, from which batches of 100 jobs of all ten priorities are taken in turns,
one here and one there, so that a machine that is busy with other things is so for both:

- *fresh*: nothing holds it, and it is vacuumed after each round.
- *pinned*: a session has held a snapshot since before `--churn` jobs were registered, claimed and completed.

The figure to look at is the ratio of the two. Absolute rates tell about the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Generator, Mapping
from datetime import timedelta

from jobcontract_postgres import open_driver

from jobcontract import Job
from jobcontract.config import StoreSettings
from jobcontract.contract import Driver
from jobcontract.side_doors import Installation
from jobcontract.url import StoreURL
from tests.servers.postgres import PostgresServer

BATCH = 100
BULK = 1000
REQUIRED = 0.85
QUEUES = ("default",)
LEASE = timedelta(minutes=2)


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--churn", type=int, default=200_000, help="jobs done before the first round")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs drained per round and database")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {"fresh": [], "pinned": []}
    with PostgresServer() as server, contextlib.ExitStack() as stack:
        drivers: dict[str, Driver] = {}
        for name in rates:
            server.create_database(name)
            drivers[name] = stack.enter_context(installed(server.url(name)))
        holder = stack.enter_context(server.connect("pinned", autocommit=False))
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")  # from here on the snapshot is held
        for left in range(arguments.churn, 0, -arguments.jobs):
            drain({"pinned": drivers["pinned"]}, min(arguments.jobs, left))
        for round_ in range(1, arguments.rounds + 1):
            for name, seconds in drain(drivers, arguments.jobs).items():
                rates[name].append(arguments.jobs / seconds)
                print(f"round {round_}: {name:<7} {rates[name][-1]:>9,.0f} jobs/s", flush=True)
            with server.connect("fresh") as connection:
                connection.execute("VACUUM")
    ratio = statistics.median(
        pinned / fresh for pinned, fresh in zip(rates["pinned"], rates["fresh"], strict=True)
    )
    print(f"the drain keeps {ratio:.2f} of its fresh rate (at least {REQUIRED})")
    if ratio < REQUIRED:
        raise SystemExit("slower than it may be")


def drain(drivers: Mapping[str, Driver], jobs: int) -> dict[str, float]:
    """Register `jobs` jobs with each driver, then claim and complete all of them: the latter's seconds."""
    for driver in drivers.values():
        for start in range(0, jobs, BULK):
            made = [Job(kind="noop", priority=n % 10) for n in range(start, min(start + BULK, jobs))]
            driver.register([job.to_record() for job in made])
    seconds = dict.fromkeys(drivers, 0.0)
    done = dict.fromkeys(drivers, 0)
    while any(each < jobs for each in done.values()):
        for name, driver in drivers.items():
            if done[name] == jobs:
                continue
            begun = time.perf_counter()
            claimed = driver.claim(QUEUES, BATCH, LEASE)
            assert claimed, f"{name}: {done[name]} of {jobs} were completed"
            verdicts = driver.complete([one.lease for one in claimed])
            seconds[name] += time.perf_counter() - begun
            done[name] += sum(verdict.applied for verdict in verdicts)
    return seconds


@contextlib.contextmanager
def installed(url: str) -> Generator[Driver]:
    """A driver on an empty installation."""
    driver = open_driver(StoreSettings("benchmark", StoreURL.parse(url)))
    with contextlib.closing(driver):
        assert isinstance(driver, Installation)
        driver.install()
        yield driver


if __name__ == "__main__":
    main()

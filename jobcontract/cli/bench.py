"""``jobctl bench``: how fast this store and a worker are, here."""

from __future__ import annotations

import click

from jobcontract.cli.command import Command, json_option
from jobcontract.cli.output import Column, note, print_json, progress, show
from jobcontract.cli.session import Session, pass_session

_PACED = 100


@click.command(
    cls=Command,
    examples=("jobctl bench --jobs 1000", "jobctl bench --jobs 200 --queue default --json"),
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 10_000_000),
    default=20_000,
    show_default=True,
    metavar="N",
    help="How many jobs to register in bulk, and to drain.",
)
@click.option(
    "--queue",
    metavar="QUEUE",
    help="A queue that no other worker takes from; else a new one. RabbitMQ has no others than the declared.",
)
@json_option
@pass_session
def bench(session: Session, jobs: int, queue: str | None, as_json: bool) -> None:
    """Measure this store with a worker in this process.

    Registers no-op jobs in bulk, drains them, and then registers some one by one, 20 a second, beside an idle
    worker. Uses a queue of its own, which no other worker takes from; the jobs stay in the history like any
    others until they are pruned. All of it is real work for the server: think before you run it on one that
    serves people.
    """
    from jobcontract.bench import Bench  # here, for it imports all that a worker needs

    backend = session.backend()
    bench = Bench(backend, queue)
    note(f"{session.describe()}: {backend.capabilities.store}, queue {bench.queue}")
    with progress("Registering", jobs, quiet=as_json) as advance:
        registered = bench.register_in_bulk(jobs, advance)
    with progress("Draining", jobs, quiet=as_json) as advance:
        drained = bench.drain(jobs, advance)
    with progress("One by one", _PACED, quiet=as_json) as advance:
        calls, starts = bench.one_by_one(_PACED, advance)
    throughputs = {"register in bulk": registered, "drain": drained}
    delays = {"register one": calls, "from register to start": starts}
    if as_json:
        print_json(
            {
                "store": backend.capabilities.store,
                "queue": bench.queue,
                **{
                    name.replace(" ", "_"): {
                        "jobs": one.jobs,
                        "seconds": one.seconds,
                        "jobs_per_second": one.rate,
                        "processor_seconds": one.processor_seconds,
                    }
                    for name, one in throughputs.items()
                },
                **{
                    name.replace(" ", "_"): {
                        "jobs": len(one.seconds),
                        "median_seconds": one.median,
                        "p99_seconds": one.p99,
                    }
                    for name, one in delays.items()
                },
            }
        )
        return
    columns = (
        Column("WHAT"),
        Column("JOBS", right=True),
        Column("JOBS/S", right=True),
        Column("CPU/JOB", right=True),
        Column("MEDIAN", right=True),
        Column("P99", right=True),
    )
    rows = [
        [
            name,
            f"{one.jobs:,}",
            f"{one.rate:,.0f}",
            f"{one.processor_seconds / one.jobs * 1e6:.0f} us",
            "",
            "",
        ]
        for name, one in throughputs.items()
    ]
    rows += [
        [name, f"{len(one.seconds):,}", "", "", f"{one.median * 1000:.1f} ms", f"{one.p99 * 1000:.1f} ms"]
        for name, one in delays.items()
    ]
    show(columns, rows)

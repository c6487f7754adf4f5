"""`jobctl demo`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from jobcontract.cli.command import Command, json_option
from jobcontract.cli.exits import CommandFailed
from jobcontract.cli.output import print_json
from jobcontract.demo.documents import default_folder
from jobcontract.demo.run import run_demo, table


@click.command(
    cls=Command,
    takes_backend=False,
    examples=("jobctl demo --documents .", "jobctl demo --documents . --migrate"),
)
@click.option(
    "--documents",
    type=click.Path(path_type=Path),
    help="The folder whose text files are worked on; else the standard library of this Python.",
)
@click.option("--migrate", is_flag=True, help="Begin on SQLite, and move all jobs while the workers run.")
@json_option
def demo(documents: Path | None, migrate: bool, as_json: bool) -> None:
    """Run the main job on real input, and kill a worker in the middle.

    Every text file below a folder becomes a row and a job in one transaction. Two worker processes extract
    its terms and write one result each; one of them is killed with -9. The last line counts what was lost and
    what was doubled. It runs on a private PostgreSQL (or on SQLite, where the embedded server has no build),
    and leaves nothing behind.

    With --migrate the jobs begin in a SQLite file, and `jobctl migrate` moves them while the workers run.
    """
    console = Console(stderr=as_json)
    folder = documents or default_folder()
    console.print(f"Documents: the text files below {folder}", highlight=False, markup=False)
    outcome = run_demo(folder, console, migrate=migrate)
    if as_json:
        print_json(
            {
                "store": outcome.store,
                **outcome.found._asdict(),
                "jobs_done": outcome.jobs_done,
                "attempts": outcome.attempts,
                **({} if outcome.moved is None else {"moved": outcome.moved}),
                "seconds": round(outcome.seconds, 3),
            }
        )
    else:
        console.print(table(outcome))
    if not outcome.holds:
        raise CommandFailed("the count is not right: something was lost, doubled or not done")

"""`jobctl demo`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from jobcontract.demo.documents import default_folder
from jobcontract.demo.run import run_demo, table
from jobcontract.errors import JobContractError


@click.command()
@click.option(
    "--documents",
    type=click.Path(path_type=Path),
    help="Folder whose text files are worked on. Default: the standard library of this Python.",
)
def demo(documents: Path | None) -> None:
    """Run the main job on real input, and kill a worker in the middle.

    Every text file below a folder becomes a row and a job in one transaction. Two worker processes extract
    its terms and write one result each; one of them is killed with -9. The last line counts what was lost and
    what was doubled. Nothing is left behind.

    \b
    Example:
      jobctl demo --documents ~/notes
    """
    console = Console()
    folder = documents or default_folder()
    console.print(f"Documents: the text files below {folder}", highlight=False)
    try:
        outcome = run_demo(folder, console)
    except JobContractError as error:
        raise click.ClickException(str(error)) from None
    console.print(table(outcome))
    if not outcome.holds:
        raise click.ClickException("the count is not right: see the table")

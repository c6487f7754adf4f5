"""``jobctl init``: create or upgrade what a store needs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from jobcontract.cli.command import Command, json_option
from jobcontract.cli.escape import escape, one_line
from jobcontract.cli.exits import CommandFailed
from jobcontract.cli.output import note, print_json, say
from jobcontract.cli.session import Session, pass_session
from jobcontract.errors import JobContractError
from jobcontract.side_doors import Step


@click.command(
    cls=Command,
    examples=(
        "jobctl init",
        "jobctl init --dry-run > schema.sql",
        "jobctl init --all",
    ),
)
@click.option("--dry-run", is_flag=True, help="Change nothing; print the statements that would be run.")
@click.option("--all", "every", is_flag=True, help="Every configured backend, not only the one chosen.")
@json_option
@pass_session
def init(session: Session, dry_run: bool, every: bool, as_json: bool) -> None:
    """Create what the store needs: its schema, tables, queues.

    Safe to run again, by several at once, and with every new version: what is there is left alone or
    upgraded. No job is touched.
    """
    if every and session.backend_name is not None:
        raise click.UsageError("--all and --backend can't be combined.")
    names: Sequence[str | None] = sorted(session.settings.backends) if every else [None]
    if not names:
        raise click.UsageError("--all: no backend is configured.")
    found: list[dict[str, object]] = []
    failed = 0
    for name in names:
        try:
            steps = session.backend(name).install(dry_run=dry_run)
        except JobContractError as error:
            if not every:
                raise
            failed += 1
            note(f"Error: {name}: {one_line(str(error))}")
            continue
        if as_json:
            found += [_as_json(session.store(name).name, step) for step in steps]
        else:
            _print(session.describe(name), steps, dry_run=dry_run)
    if as_json:
        print_json(found)
    if failed:
        raise CommandFailed(f"{failed} of {len(names)} backends could not be initialised")


def _print(store: str, steps: list[Step], *, dry_run: bool) -> None:
    if dry_run:
        # SQL and nothing else, so that it can be kept and run: what is for people is a comment.
        say(f"-- {store}: {'nothing to do' if not steps else f'{len(steps)} steps'}")
        for step in steps:
            say(f"\n-- {one_line(step.title)}")
            if step.statements:
                say(escape(step.statements.strip(), keep="\n\t"))
        return
    say(f"{store}: {'up to date' if not steps else 'initialised'}")
    for step in steps:
        say(f"  {one_line(step.title)}")


def _as_json(backend: str, step: Step) -> dict[str, object]:
    return {"backend": backend, "title": step.title, "statements": step.statements}

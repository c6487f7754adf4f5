"""``jobctl prune``: forget jobs that ended long ago."""

from __future__ import annotations

import time
from datetime import timedelta

import click

from jobcontract.cli.command import Command, json_option, yes_option
from jobcontract.cli.exits import CommandFailed
from jobcontract.cli.output import confirm, count, print_json, progress, say
from jobcontract.cli.parameters import as_duration
from jobcontract.cli.session import Session, pass_session
from jobcontract.contract import State
from jobcontract.durations import format_duration
from jobcontract.errors import StoreError

_USUAL = (State.DONE, State.CANCELLED)


@click.command(
    cls=Command,
    examples=(
        "jobctl prune --older-than 7d --yes",
        "jobctl prune --older-than 90d --state dead --yes",
    ),
)
@click.option(
    "--older-than",
    required=True,
    callback=as_duration,
    metavar="DURATION",
    help="Jobs that ended longer ago than this: 7d, 12h, 0s.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(["done", "cancelled", "dead"]),
    help="Which; may be repeated. Else done and cancelled: dead jobs wait for somebody to look at them.",
)
@yes_option
@json_option
@pass_session
def prune(session: Session, older_than: timedelta, states: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Forget finished jobs for good, with their idempotency keys.

    A key that is forgotten can be registered anew. Works in small batches and can be interrupted at any time.
    """
    chosen = {State(state) for state in states} or set(_USUAL)
    backend = session.backend()
    names = " and ".join(sorted(chosen))
    confirm(
        f"Forget the {names} jobs of {session.describe()} that ended longer than "
        f"{format_duration(older_than)} ago, for good, and their idempotency keys?",
        yes=yes,
    )
    pruned = 0
    started = time.monotonic()
    with progress("Pruning", None, quiet=as_json) as advance:
        try:
            while True:
                # What ends from now on is younger than what was asked for, however long this takes.
                age = older_than + timedelta(seconds=time.monotonic() - started)
                batch = backend.prune(age, states=chosen)
                if not batch:
                    break
                pruned += batch
                advance(batch)
        except StoreError as error:
            raise CommandFailed(
                f"{error} ({count(pruned, 'job')} were pruned before; run it again)"
            ) from error
    if as_json:
        print_json({"pruned": pruned})
    else:
        say(f"pruned {count(pruned, 'job')}")

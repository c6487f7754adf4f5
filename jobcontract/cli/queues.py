"""``jobctl queues``: list queues, pause and resume them."""

from __future__ import annotations

import click

from jobcontract.backend import Backend
from jobcontract.cli.command import Command, Group, json_option
from jobcontract.cli.escape import escape
from jobcontract.cli.output import Column, note, print_json, say, show
from jobcontract.cli.session import Session, pass_session
from jobcontract.errors import Unsupported

names_argument = click.argument("names", metavar="QUEUE...", nargs=-1, required=True)


@click.group(cls=Group)
def queues() -> None:
    """List queues, pause and resume them."""


@queues.command("list", cls=Command, examples=("jobctl queues list", "jobctl queues list --json"))
@json_option
@pass_session
def list_queues(session: Session, as_json: bool) -> None:
    """List the queues that have jobs or are paused."""
    found = session.backend().stats()
    if as_json:
        print_json([{"queue": each.queue, "paused": each.paused} for each in found])
        return
    if not found:
        note("no queue has jobs or is paused")
        return
    columns = (Column("QUEUE"), Column("STATE"), Column("WAITING", right=True), Column("RUNNING", right=True))
    show(
        columns,
        [
            (
                each.queue,
                ("paused", "yellow") if each.paused else "open",
                f"{each.ready + each.scheduled:,}",
                f"{each.running:,}",
            )
            for each in found
        ],
    )


@queues.command(cls=Command, examples=("jobctl queues pause mail", "jobctl queues pause mail exports"))
@names_argument
@pass_session
def pause(session: Session, names: tuple[str, ...]) -> None:
    """Let no worker start jobs of these queues until they are resumed.

    Jobs can still be registered, and those that run go on to their end. A pause outlives restarts. A queue
    that holds no jobs can be paused too, and is named then, for the name may be mistyped.
    """
    backend = session.backend()
    for name in names:
        backend.pause(name)
        say(f"{escape(name)} is paused")
    for name in sorted({*names} & _empty(backend)):
        note(f"{name} holds no jobs; if that was mistyped, `jobctl queues resume {name}` takes it back")


def _empty(backend: Backend) -> set[str]:
    """Those paused queues in which there is no job of any state, as far as the store can tell."""
    try:
        found = backend.stats()
    except Unsupported:
        return set()
    return {
        each.queue
        for each in found
        if not any((each.ready, each.scheduled, each.running, each.dead, each.done, each.cancelled))
    }


@queues.command(cls=Command, examples=("jobctl queues resume mail",))
@names_argument
@pass_session
def resume(session: Session, names: tuple[str, ...]) -> None:
    """Let workers start jobs of these queues again."""
    backend = session.backend()
    for name in names:
        backend.resume(name)
        say(f"{escape(name)} is open")

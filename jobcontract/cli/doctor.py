"""``jobctl doctor``: what is wrong with the stores, and what helps."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import click

from jobcontract.backend import Backend
from jobcontract.cli.command import Command, json_option
from jobcontract.cli.escape import one_line
from jobcontract.cli.exits import CommandFailed
from jobcontract.cli.output import print_json, say
from jobcontract.cli.parameters import as_duration
from jobcontract.cli.session import Session, pass_session
from jobcontract.doctor import examine
from jobcontract.side_doors import Ailment, Expectations

_AT_ONCE = 8
"""Each store that does not answer takes its own deadline; together they take one."""


@click.command(
    cls=Command,
    examples=("jobctl doctor", "jobctl doctor --processes 20", "jobctl doctor --json"),
)
@click.option(
    "--processes",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="How many more processes there are to be: whether the store has connections for them.",
)
@click.option(
    "--patience",
    callback=as_duration,
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="How long a transaction may be open, and a job wait in an outbox.",
)
@json_option
@pass_session
def doctor(session: Session, processes: int, patience: timedelta, as_json: bool) -> None:
    """Say what hurts the stores, and what helps.

    Looks at every configured backend, or at --backend: missing indexes and plans that don't use them, whoever
    keeps vacuum from its work, poolers, connections, eviction and persistence, alarms and queue types,
    clocks, outboxes that nobody publishes. Changes nothing.

    A healthy system is silent, and the exit code 0; with any finding it is 1. Each finding has a name for
    programs, a sentence, and its remedy.
    """
    names: Sequence[str | None] = (
        [None] if session.backend_name else sorted(session.settings.backends) or [None]
    )
    expected = Expectations(processes, patience)
    backends = [session.backend(name) for name in names]

    def look(backend: Backend) -> list[Ailment]:
        return examine(backend, expected)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(zip(backends, pool.map(look, backends), strict=True))
    if as_json:
        print_json(
            [
                {
                    "backend": backend.name,
                    "ailment": each.name,
                    "finding": each.finding,
                    "remedy": each.remedy,
                }
                for backend, ailments in found
                for each in ailments
            ]
        )
    else:
        for backend, ailments in found:
            for each in ailments:
                say(f"{backend.name}: {each.name}: {one_line(each.finding)}")
                say(f"    remedy: {one_line(each.remedy)}")
    if any(ailments for _, ailments in found):
        raise CommandFailed

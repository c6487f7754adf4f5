"""Commands of other packages: entry points of group ``jobcontract.commands``, each a `click.Command`.

They are loaded when they are called, or when the help lists them. One that can't be loaded costs one line of
warning, and never the other commands.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

from jobcontract.cli.command import Command
from jobcontract.cli.escape import one_line
from jobcontract.cli.exits import CommandFailed

ENTRY_POINT_GROUP = "jobcontract.commands"


def installed() -> dict[str, EntryPoint]:
    """The commands that other packages bring, by name. Imports none of them."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


class BrokenCommand(Command):
    """Stands for a command that can't be loaded: listed, and failing with the reason when it is called."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            name,
            callback=self._fail,
            help="(can't be loaded)",
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        )
        self.reason = reason

    def _fail(self) -> None:
        raise CommandFailed(self.reason)


def load(point: EntryPoint) -> click.Command:
    """The command of `point`; a `BrokenCommand`, whatever its import raised, when it can't be loaded."""
    try:
        found = point.load()
    except Exception as error:  # a stranger's module may raise anything while it is imported
        return _broken(point, f"{type(error).__name__}: {error}")
    if not isinstance(found, click.Command):
        return _broken(point, f"{point.value} is a {type(found).__name__}, not a click.Command")
    return found


def _broken(point: EntryPoint, reason: str) -> BrokenCommand:
    package = point.dist.name if point.dist else point.module
    return BrokenCommand(
        point.name, one_line(f"the command {point.name!r} of package {package} can't be loaded ({reason})")
    )

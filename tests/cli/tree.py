"""All commands of `jobctl`, those that other parts of this project bring included."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import distribution
from typing import NamedTuple

import click

from jobcontract.cli import plugins
from jobcontract.cli.root import jobctl


class Entry(NamedTuple):
    """A command and how it is called."""

    path: str
    command: click.Command
    context: click.Context


def runs(command: click.Command) -> bool:
    """Whether it does something when it is called; a group may, beside having verbs."""
    return not isinstance(command, click.Group) or command.invoke_without_command


def examples_of(command: click.Command) -> tuple[str, ...]:
    """What its help shows as examples, where it holds them as data."""
    return tuple(getattr(command, "examples", ()))


def entries() -> list[Entry]:
    """`jobctl` first, then each command below it; not what strangers have installed."""
    context = click.Context(jobctl, info_name="jobctl", terminal_width=100)
    ours = {
        point.name
        for point in distribution("jobcontract").entry_points.select(group=plugins.ENTRY_POINT_GROUP)
    }
    names = [name for name in jobctl.list_commands(context) if name in jobctl.commands or name in ours]
    return [Entry("jobctl", jobctl, context), *_below(jobctl, context, names)]


def _below(group: click.Group, context: click.Context, names: list[str]) -> Iterator[Entry]:
    for name in names:
        command = group.get_command(context, name)
        assert command is not None, name
        deeper = click.Context(command, info_name=name, parent=context, terminal_width=100)
        yield Entry(deeper.command_path, command, deeper)
        if isinstance(command, click.Group):
            yield from _below(command, deeper, command.list_commands(deeper))

"""What people and programs read on standard output, and the questions that people are asked.

Everything goes through `click.echo`, which flushes: a reader that went away is noticed here, by one
`BrokenPipeError`, and not by the interpreter while it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeAlias

import click

from jobcontract.cli.escape import ascii_json, escape
from jobcontract.cli.exits import CommandFailed

if TYPE_CHECKING:  # rich is not cheap to import, and most commands end without it
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_UNBOUNDED = 1_000_000
_GAP = 2
_NARROWEST = 8


Cell: TypeAlias = str | tuple[str, str]
"""What stands in a table: text, or text and the style in which a terminal shows it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `gives_way`: cut when the terminal is too narrow for all."""

    title: str
    right: bool = False
    gives_way: bool = False


def say(text: str = "") -> None:
    """A line for people on standard output. The caller has escaped what is not his own."""
    click.echo(text)


def note(text: str) -> None:
    """A line for people on standard error, beside what goes to a pipe."""
    click.echo(text, err=True)


def print_json(value: object) -> None:
    """One JSON document, indented, in ASCII."""
    click.echo(ascii_json(value, indent=2))


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], room: int | None = None) -> Table:
    """A table without lines for `show`, at most `room` wide if that can be. Cells are escaped."""
    from rich.table import Table
    from rich.text import Text

    lines = [[_text(cell) for cell in row] for row in rows]
    widths = [
        max([len(column.title), *(line[position].cell_len for line in lines)])
        for position, column in enumerate(columns)
    ]
    if room is not None:
        _narrow(widths, [column.gives_way for column in columns], room - _GAP * (len(columns) - 1))
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        grid.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            width=width,
            no_wrap=True,
            overflow="ellipsis",
        )
    for line in lines:
        grid.add_row(*line)
    return grid


def _text(cell: Cell) -> Text:
    from rich.text import Text

    return Text(escape(cell)) if isinstance(cell, str) else Text(escape(cell[0]), style=cell[1])


def _narrow(widths: list[int], gives_way: list[bool], room: int) -> None:
    """Cut the widest of the columns that give way, again and again, until all fit or none can give more."""
    while sum(widths) > room:
        widest = max((width for width, may in zip(widths, gives_way, strict=True) if may), default=0)
        if widest <= _NARROWEST:
            return
        position = next(n for n, width in enumerate(widths) if width == widest and gives_way[n])
        widths[position] -= 1


def show(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a table: on a terminal in its width and colours, elsewhere plain and as wide as its content."""
    console = console_on_stdout()
    grid = table(columns, rows, console.width if console.is_terminal else None)
    # What can't be made narrow enough is for the terminal to wrap, not for rich to crop.
    console.width = _UNBOUNDED
    with console.capture() as captured:
        console.print(grid)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def print_fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one below the other; values of several lines are indented. Values are escaped."""
    found = list(pairs)
    width = max((len(name) for name, _ in found), default=0)
    for name, value in found:
        first, *rest = escape(value, keep="\n").split("\n")
        say(f"{name:<{width}}  {first}".rstrip())
        for line in rest:
            say(f"{'':<{width}}  {line}".rstrip())


def console_on_stdout() -> Console:
    """rich's console on standard output; it knows NO_COLOR and TERM=dumb by itself."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


class Advance(Protocol):
    """Moves a progress bar on by `steps`."""

    def __call__(self, steps: int = 1, /) -> None: ...


def _advance_nothing(steps: int = 1, /) -> None:
    del steps


@contextmanager
def progress(title: str, total: int | None, *, quiet: bool = False) -> Generator[Advance]:
    """A progress bar on standard error while the block runs, when that is a terminal; otherwise nothing."""
    if quiet or not sys.stderr.isatty():
        yield _advance_nothing
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=total)

        def advance(steps: int = 1, /) -> None:
            bar.advance(task, steps)

        yield advance


def confirm(question: str, *, yes: bool) -> None:
    """Go on when `yes`, or when the answer to `question` is y or yes; raise `CommandFailed` otherwise.

    The question stands on standard error, so that a pipe gets the output alone. Blocks for the answer.
    """
    if yes:
        return
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    answer = sys.stdin.readline()
    if not answer:
        click.echo(err=True)
        raise CommandFailed(
            "nobody answered, and nothing was changed; pass --yes to go on without a question"
        )
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was changed")


def instant(at: datetime | None) -> str:
    """`at` for people, in UTC to the second; nothing for None."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant_json(at: datetime | None) -> str | None:
    """`at` for programs: ISO 8601 in UTC, with microseconds where there are any."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def count(number: int, noun: str) -> str:
    """``1 job``, ``2,000 jobs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

"""``jobctl stats``: the queues in numbers, once or again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from jobcontract.backend import Backend
from jobcontract.cli.command import Command, json_option
from jobcontract.cli.escape import ascii_json, one_line
from jobcontract.cli.output import Cell, Column, console_on_stdout, note, print_json, say, show, table
from jobcontract.cli.parameters import as_duration
from jobcontract.cli.session import Session, pass_session
from jobcontract.contract import QueueStats
from jobcontract.durations import format_duration
from jobcontract.errors import StoreError

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHORTEST_INTERVAL = timedelta(milliseconds=100)


@click.command(
    cls=Command,
    examples=(
        "jobctl stats",
        "jobctl stats --json",
        "jobctl stats --watch --interval 5s",
    ),
)
@click.option(
    "--watch", is_flag=True, help="Show it again and again, with the rate of finished jobs, until Ctrl-C."
)
@click.option(
    "--interval",
    callback=as_duration,
    default="2s",
    show_default=True,
    metavar="DURATION",
    help="How often, with --watch.",
)
@json_option
@pass_session
def stats(session: Session, watch: bool, interval: timedelta, as_json: bool) -> None:
    """Show what each queue holds.

    READY is due now, SCHEDULED is not due yet, EXPIRED is running with a lease that ran out (the next worker
    takes it back), OLDEST is how long the job that has been due the longest has been waiting; ? is what
    this store does not count. A store that is away does not end --watch. With --watch and --json each look is
    one line.
    """
    given = click.get_current_context().get_parameter_source("interval")
    if not watch and given is not ParameterSource.DEFAULT:
        raise click.UsageError("--interval says how often to look again; it needs --watch.")
    backend = session.backend()
    if not watch:
        found = backend.stats()
        if as_json:
            print_json(_as_json(found, {}))
        elif found:
            show(*_table(found, None))
        else:
            note("no queue has jobs or is paused")
        return
    if interval < _SHORTEST_INTERVAL:
        raise click.BadParameter("must be 100ms or longer", param_hint="--interval")
    looks = _look_again_and_again(backend, interval)
    if as_json:
        _watch_as_json(looks)
    elif console_on_stdout().is_interactive:
        _watch_live(looks)
    else:
        _watch_plainly(looks)


class _Look:
    """What was seen at one time: the queues and how fast they finish jobs, or the error that hid them."""

    def __init__(self, queues: list[QueueStats], rates: dict[str, float], error: StoreError | None) -> None:
        self.at = datetime.now(UTC)
        self.queues = queues
        self.rates = rates
        self.error = error


def _look_again_and_again(backend: Backend, interval: timedelta) -> Iterator[_Look]:
    before: dict[str, int] = {}
    before_at = 0.0
    while True:
        now = time.monotonic()
        try:
            queues = backend.stats()
        except StoreError as error:
            before = {}
            yield _Look([], {}, error)
        else:
            done = {each.queue: each.done for each in queues if each.done is not None}
            # What is pruned meanwhile is not work undone.
            rates = {
                name: max(0, done[name] - before[name]) / (now - before_at)
                for name in done.keys() & before.keys()
            }
            before, before_at = done, now
            yield _Look(queues, rates, None)
        time.sleep(interval.total_seconds())


def _watch_live(looks: Iterator[_Look]) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    console = console_on_stdout()
    with Live(console=console, auto_refresh=False) as live:
        shown: RenderableType = Text("")
        for look in looks:
            if look.error is None:
                shown = table(*_table(look.queues, look.rates), console.width)
                live.update(shown, refresh=True)
            else:
                sentence = Text(f"{look.at:%H:%M:%S}Z {one_line(str(look.error))}", style="red")
                live.update(Group(shown, sentence), refresh=True)


def _watch_plainly(looks: Iterator[_Look]) -> None:
    for look in looks:
        say(f"{look.at:%Y-%m-%dT%H:%M:%SZ}")
        if look.error is None:
            show(*_table(look.queues, look.rates))
        else:
            note(f"Error: {one_line(str(look.error))}")


def _watch_as_json(looks: Iterator[_Look]) -> None:
    for look in looks:
        if look.error is not None:
            note(f"Error: {one_line(str(look.error))}")
            continue
        at = look.at.isoformat().replace("+00:00", "Z")
        say(ascii_json({"at": at, "queues": _as_json(look.queues, look.rates)}))


_COLUMNS = (
    Column("QUEUE", gives_way=True),
    Column("READY", right=True),
    Column("SCHEDULED", right=True),
    Column("RUNNING", right=True),
    Column("EXPIRED", right=True),
    Column("DEAD", right=True),
    Column("DONE", right=True),
    Column("CANCELLED", right=True),
    Column("OLDEST", right=True),
)


def _table(
    queues: Sequence[QueueStats], rates: dict[str, float] | None
) -> tuple[Sequence[Column], Sequence[Sequence[Cell]]]:
    columns = _COLUMNS if rates is None else (*_COLUMNS, Column("DONE/S", right=True))
    return columns, [_row(each, rates) for each in queues]


def _row(each: QueueStats, rates: dict[str, float] | None) -> Sequence[Cell]:
    cells: list[Cell] = [
        (f"{each.queue} (paused)", "yellow") if each.paused else each.queue,
        f"{each.ready:,}",
        f"{each.scheduled:,}",
        f"{each.running:,}",
        (f"{each.expired:,}", "yellow" if each.expired else ""),
        (f"{each.dead:,}", "red" if each.dead else ""),
        "?" if each.done is None else f"{each.done:,}",
        "?" if each.cancelled is None else f"{each.cancelled:,}",
        "" if each.oldest_ready is None else format_duration(each.oldest_ready),
    ]
    if rates is not None:
        rate = rates.get(each.queue)
        cells.append("" if rate is None else f"{rate:,.1f}")
    return cells


def _as_json(queues: Sequence[QueueStats], rates: dict[str, float]) -> list[dict[str, object]]:
    return [
        {
            "queue": each.queue,
            "paused": each.paused,
            "ready": each.ready,
            "scheduled": each.scheduled,
            "running": each.running,
            "expired": each.expired,
            "dead": each.dead,
            "done": each.done,
            "cancelled": each.cancelled,
            "oldest_ready_seconds": each.oldest_ready.total_seconds()
            if each.oldest_ready is not None
            else None,
            **({"done_per_second": rates[each.queue]} if each.queue in rates else {}),
        }
        for each in queues
    ]

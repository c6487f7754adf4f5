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
from jobcontract.durations import format_duration
from jobcontract.errors import StoreError
from jobcontract.observation import Observation, Rates, observe
from jobcontract.side_doors import COUNTED_UP_TO, OUTBOX_COUNTED_UP_TO, OutboxStats, QueueStats

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
    this store does not count, and 100,000+ where it stops. What waits in an outbox for this store is a line
    of its own. A store that is away does not end --watch. With --watch and --json each look is one line.
    """
    given = click.get_current_context().get_parameter_source("interval")
    if not watch and given is not ParameterSource.DEFAULT:
        raise click.UsageError("--interval says how often to look again; it needs --watch.")
    backend = session.backend()
    if not watch:
        seen = observe(backend)
        if as_json:
            print_json(_as_json(seen, {}))
        else:
            _show(seen, None)
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
    """What was seen at one time, and how fast each queue finishes jobs; or the error that hid it."""

    def __init__(self, seen: Observation, rates: dict[str, float], error: StoreError | None) -> None:
        self.at = datetime.now(UTC)
        self.seen = seen
        self.rates = rates
        self.error = error


def _look_again_and_again(backend: Backend, interval: timedelta) -> Iterator[_Look]:
    rates = Rates()
    while True:
        try:
            seen = observe(backend)
        except StoreError as error:
            rates.forget()
            yield _Look(Observation(None, None), {}, error)
        else:
            yield _Look(seen, rates.of(seen), None)
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
                shown = table(*_table(look.seen.queues or [], look.rates), console.width)
                if look.seen.outbox is not None:
                    shown = Group(shown, Text(_outbox_line(look.seen.outbox)))
                live.update(shown, refresh=True)
            else:
                sentence = Text(f"{look.at:%H:%M:%S}Z {one_line(str(look.error))}", style="red")
                live.update(Group(shown, sentence), refresh=True)


def _watch_plainly(looks: Iterator[_Look]) -> None:
    for look in looks:
        say(f"{look.at:%Y-%m-%dT%H:%M:%SZ}")
        if look.error is None:
            _show(look.seen, look.rates)
        else:
            note(f"Error: {one_line(str(look.error))}")


def _watch_as_json(looks: Iterator[_Look]) -> None:
    for look in looks:
        if look.error is not None:
            note(f"Error: {one_line(str(look.error))}")
            continue
        at = look.at.isoformat().replace("+00:00", "Z")
        say(ascii_json({"at": at, **_as_json(look.seen, look.rates)}))


def _show(seen: Observation, rates: dict[str, float] | None) -> None:
    if seen.queues or (rates is not None and seen.queues is not None):
        show(*_table(seen.queues, rates))
    elif seen.queues is None:
        note("this store does not count jobs")
    else:
        note("no queue has jobs or is paused")
    if seen.outbox is not None:
        say(_outbox_line(seen.outbox))


def _outbox_line(outbox: OutboxStats) -> str:
    oldest = "" if outbox.oldest is None else f" (the oldest for {format_duration(outbox.oldest)})"
    return (
        f"outbox: {_waiting(outbox.pending)} pending{oldest}, "
        f"{_waiting(outbox.scheduled)} scheduled, "
        f"{_waiting(outbox.parked)} parked"
    )


def _counted(number: int) -> str:
    return f"{COUNTED_UP_TO:,}+" if number == COUNTED_UP_TO + 1 else f"{number:,}"


def _waiting(number: int) -> str:
    return f"{OUTBOX_COUNTED_UP_TO:,}+" if number > OUTBOX_COUNTED_UP_TO else f"{number:,}"


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
        _counted(each.ready),
        _counted(each.scheduled),
        f"{each.running:,}",
        (f"{each.expired:,}", "yellow" if each.expired else ""),
        (_counted(each.dead), "red" if each.dead else ""),
        "?" if each.done is None else f"{each.done:,}",
        "?" if each.cancelled is None else _counted(each.cancelled),
        "" if each.oldest_ready is None else format_duration(each.oldest_ready),
    ]
    if rates is not None:
        rate = rates.get(each.queue)
        cells.append("" if rate is None else f"{rate:,.1f}")
    return cells


def _as_json(seen: Observation, rates: dict[str, float]) -> dict[str, object]:
    return {
        "queues": None if seen.queues is None else [_queue_json(each, rates) for each in seen.queues],
        "outbox": None if seen.outbox is None else _outbox_json(seen.outbox),
    }


def _queue_json(each: QueueStats, rates: dict[str, float]) -> dict[str, object]:
    rate = rates.get(each.queue, each.done_per_second)
    return {
        "queue": each.queue,
        "paused": each.paused,
        "ready": each.ready,
        "scheduled": each.scheduled,
        "running": each.running,
        "expired": each.expired,
        "dead": each.dead,
        "done": each.done,
        "cancelled": each.cancelled,
        "oldest_ready_seconds": each.oldest_ready.total_seconds() if each.oldest_ready is not None else None,
        **({} if rate is None else {"done_per_second": rate}),
    }


def _outbox_json(outbox: OutboxStats) -> dict[str, object]:
    return {
        "pending": outbox.pending,
        "held_up": outbox.held_up,
        "scheduled": outbox.scheduled,
        "parked": outbox.parked,
        "oldest_seconds": None if outbox.oldest is None else outbox.oldest.total_seconds(),
    }

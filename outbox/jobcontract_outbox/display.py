"""A relay in the foreground: a live line per target on a terminal, log lines otherwise, and its end."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta

from jobcontract.cli.escape import one_line
from jobcontract.cli.output import Column, console_on_stdout, table
from jobcontract.durations import format_duration
from jobcontract.errors import StoreError
from jobcontract.side_doors import OUTBOX_COUNTED_UP_TO, OutboxStats
from jobcontract_outbox.relay import Relay, TargetLoop
from jobcontract_outbox.statements import Statements
from jobcontract_outbox.status import read_status

log = logging.getLogger("jobcontract.relay")

_REFRESH = 1.0
_REPORT_EVERY = 30.0
_RATE_OVER = 5


def run_relay(relay: Relay) -> None:
    """Run until SIGTERM or Ctrl-C; then let each loop finish its batch. A second one does not wait."""
    names = ", ".join(loop.target_name for loop in relay.loops)
    log.info("relaying to %s", names)
    relay.start()
    try:
        if console_on_stdout().is_terminal:
            _show_live(relay.loops)
        else:
            _report(relay.loops)
    except KeyboardInterrupt:
        log.info("stopping: what is under way is confirmed first")
    relay.stop()
    total = sum(loop.published for loop in relay.loops)
    log.info("stopped; published %d", total, extra={"published": total})


def run_relay_once(relay: Relay) -> None:
    """`Relay.run_once`, which an interrupt ends between two batches. Raises what it raises."""
    faults: list[BaseException] = []

    def run() -> None:
        try:
            relay.run_once()
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=run, name="jobcontract-relay-once", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.5)
    except KeyboardInterrupt:
        for loop in relay.loops:
            loop.stop()
        thread.join()
        raise
    if faults:
        raise faults[0]


class Watch:
    """What is shown of one target: its rate, and what waits for it."""

    def __init__(self, loop: TargetLoop) -> None:
        self._loop = loop
        self._statements = Statements(loop.opened.tables)
        self._seen: deque[tuple[float, int]] = deque([(time.monotonic(), loop.published)], _RATE_OVER + 1)

    @property
    def name(self) -> str:
        """The target's."""
        return self._loop.target_name

    def rate(self) -> float:
        """Published per second, over the last few looks. Call it once per look."""
        now, published = time.monotonic(), self._loop.published
        then, before = self._seen[0]
        self._seen.append((now, published))
        return (published - before) / max(now - then, 1e-3)

    def status(self) -> OutboxStats | None:
        """None where the outbox can't be read now; the loop says why."""
        opened = self._loop.opened
        try:
            return read_status(opened.tables, opened.driver.schema, self._statements, self.name)
        except StoreError:
            return None


def state_of(loop: TargetLoop, status: OutboxStats | None) -> tuple[str, str]:
    """In words, and the style to show them in."""
    if loop.fault:
        return one_line(loop.fault), "red"
    if status is None:
        return "the outbox can't be read", "red"
    return ("publishing", "green") if status.pending else ("idle", "")


def pending_words(number: int) -> str:
    """``9,999``, or ``10,000+`` where counting ended."""
    return f"{OUTBOX_COUNTED_UP_TO:,}+" if number > OUTBOX_COUNTED_UP_TO else f"{number:,}"


def status_json(name: str, status: OutboxStats) -> dict[str, object]:
    """For programs. Counts end at 10,001."""
    return {
        "target": name,
        "oldest_seconds": None if status.oldest is None else status.oldest.total_seconds(),
        "pending": status.pending,
        "held_up": status.held_up,
        "scheduled": status.scheduled,
        "parked": status.parked,
    }


_COLUMNS = (
    Column("TARGET", gives_way=True),
    Column("PUBLISHED/S", right=True),
    Column("OLDEST", right=True),
    Column("PENDING", right=True),
    Column("PARKED", right=True),
    Column("STATE", gives_way=True),
)


def _show_live(loops: Sequence[TargetLoop]) -> None:
    from rich.live import Live

    console = console_on_stdout()
    watches = [(loop, Watch(loop)) for loop in loops]
    with Live(console=console, auto_refresh=False) as live:
        while True:
            rows: list[list[str | tuple[str, str]]] = []
            for loop, watch in watches:
                status = watch.status()
                rows.append(
                    [loop.target_name, f"{watch.rate():,.0f}", *_cells(status), state_of(loop, status)]
                )
            live.update(table(_COLUMNS, rows, console.width), refresh=True)
            time.sleep(_REFRESH)


def _cells(status: OutboxStats | None) -> list[str | tuple[str, str]]:
    if status is None:
        return ["?", "?", "?"]
    return [
        format_duration(status.oldest or timedelta()),
        pending_words(status.pending),
        (pending_words(status.parked), "yellow" if status.parked else ""),
    ]


def _report(loops: Sequence[TargetLoop]) -> None:
    """A line per target now and then, when there is something to tell."""
    watches = [(loop, Watch(loop)) for loop in loops]
    told = {loop.target_name: loop.published for loop in loops}
    while True:
        time.sleep(_REPORT_EVERY)
        for loop, watch in watches:
            status = watch.status()
            published = loop.published - told[loop.target_name]
            told[loop.target_name] = loop.published
            if status is None or not (published or status.pending):
                continue
            log.info(
                "%s: published %d in %.0f s; %s pending, the oldest for %s, %s parked",
                loop.target_name,
                published,
                _REPORT_EVERY,
                pending_words(status.pending),
                format_duration(status.oldest or timedelta()),
                pending_words(status.parked),
                extra=status_json(loop.target_name, status) | {"published": published},
            )

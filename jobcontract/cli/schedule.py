"""``jobctl schedule``: see what recurs, run it, and mend what was missed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from jobcontract.cli.command import Command, Group, json_option, yes_option
from jobcontract.cli.escape import escape
from jobcontract.cli.exits import CommandFailed, Exit
from jobcontract.cli.output import Column, confirm, count, instant, instant_json, note, print_json, say, show
from jobcontract.cli.parameters import as_instant
from jobcontract.cli.session import Session, pass_session
from jobcontract.durations import format_duration
from jobcontract.errors import ConfigError, Unsupported

if TYPE_CHECKING:  # the time zones and the parser of cron expressions: only these commands need them
    from jobcontract.schedules import Missing, Schedule

names_argument = click.argument("names", metavar="[NAME]...", nargs=-1)
since_option = click.option(
    "--since", callback=as_instant, metavar="TIME", help="Only ticks after this time (ISO 8601 with a zone)."
)
until_option = click.option(
    "--until", callback=as_instant, metavar="TIME", help="Only ticks up to this time."
)


@click.group(cls=Group)
def schedule() -> None:
    """Look after recurring work.

    The schedules are those of the configuration: [schedules.NAME].
    """


@schedule.command("list", cls=Command, examples=("jobctl schedule list", "jobctl schedule list --json"))
@json_option
@pass_session
def list_schedules(session: Session, as_json: bool) -> None:
    """List the schedules, and how far each has come.

    LAST is up to when all ticks are inserted, by the store's clock; empty when no scheduler has run yet.
    """
    from jobcontract.schedules import Place

    rows: list[dict[str, object]] = []
    for store, found in _by_backend(session, ()).items():
        read = session.backend(store).read_notes([each.note for each in found])
        for each in found:
            text = read.values.get(each.note)
            place = None if text is None else Place.read(each.note, text)
            rows.append(
                {
                    "name": each.name,
                    **_when(each),
                    "kind": each.kind,
                    "queue": each.queue,
                    "backend": store,
                    "last": instant_json(None if place is None else place.last),
                    "next": instant_json(each.ticks.following(read.now)),
                    "gaps": 0 if place is None else len(place.gaps),
                }
            )
    rows.sort(key=lambda row: str(row["name"]))
    if as_json:
        print_json(rows)
        return
    if not rows:
        note("no schedule is configured")
        return
    columns = (
        Column("NAME", gives_way=True),
        Column("WHEN"),
        Column("ZONE"),
        Column("KIND", gives_way=True),
        Column("BACKEND", gives_way=True),
        Column("LAST"),
        Column("NEXT"),
        Column("GAPS", right=True),
    )
    keys = ("name", "when", "timezone", "kind", "backend", "last", "next", "gaps")
    show(columns, [[_cell(row[key]) for key in keys] for row in rows])


@schedule.command(
    "next",
    cls=Command,
    takes_backend=False,
    examples=("jobctl schedule next", "jobctl schedule next nightly --count 3 --after 2027-03-27T00:00Z"),
)
@names_argument
@click.option(
    "--count", "how_many", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many."
)
@click.option("--after", callback=as_instant, metavar="TIME", help="After this time; else after now.")
@json_option
@pass_session
def show_next(
    session: Session, names: tuple[str, ...], how_many: int, after: datetime | None, as_json: bool
) -> None:
    """Show the next ticks.

    In UTC, and on the clock of the schedule's time zone. Contacts nothing.

    A change of the clock is seen here before it comes: a local time that is left out runs at the moment of
    the change, one that comes twice runs once (unless the schedule runs every hour).
    """
    from jobcontract.schedules import Cron, tick_name

    start = after or datetime.now(UTC)
    found: list[dict[str, object]] = []
    for each in _chosen(session, names):
        zone = each.ticks.zone if isinstance(each.ticks, Cron) else UTC
        for tick in each.ticks.upcoming(start, how_many):
            local = tick.astimezone(zone).isoformat()
            found.append({"name": each.name, "tick": tick_name(tick), "local": local})
    if as_json:
        print_json(found)
        return
    columns = (Column("NAME", gives_way=True), Column("TICK"), Column("LOCAL"))
    show(columns, [[str(value) for value in row.values()] for row in found])


@schedule.command(
    cls=Command, takes_backend=False, examples=("jobctl schedule run", "jobctl schedule run --once")
)
@click.option("--once", is_flag=True, help="Insert what is due now, and end.")
@pass_session
def run(session: Session, once: bool) -> None:
    """Run the schedules, without running jobs.

    Every `jobctl worker` does so too, unless it is told --no-schedules; any number at once insert each tick
    once. Runs until SIGTERM or Ctrl-C. A store that is away does not end it; one that can't have schedules
    does, with 2.

    A schedule begins when a scheduler sees it for the first time. After that its ticks are inserted, also
    those of the time in which none was running, up to `catch_up` late (an hour); later ones are left to
    `jobctl schedule gaps` and `backfill`.
    """
    from jobcontract.schedules import Scheduler
    from jobcontract.schedules.running import run_schedulers

    session.log_to_stderr(usual=logging.INFO)
    chosen = _by_backend(session, ())
    if not chosen:
        raise ConfigError("no schedule is configured; add [schedules.NAME] to the configuration")
    schedulers = {name: Scheduler(session.backend(name), found) for name, found in chosen.items()}
    try:
        if once:
            for scheduler in schedulers.values():
                scheduler.turn()
        else:
            run_schedulers(schedulers)
    except Unsupported as error:  # of a store that can't have schedules: a setting that can't work
        raise ConfigError(str(error)) from None


@schedule.command(
    cls=Command,
    examples=("jobctl schedule gaps", "jobctl schedule gaps nightly --json", "jobctl schedule gaps --check"),
)
@names_argument
@since_option
@until_option
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many.")
@click.option("--check", is_flag=True, help="Fail when there are any.")
@json_option
@pass_session
def gaps(
    session: Session,
    names: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    limit: int,
    check: bool,
    as_json: bool,
) -> None:
    """List the ticks that have no job.

    They were left out because they were too late, or because no scheduler ran. A tick is a gap when it is a
    minute old. With --check the exit code is 1 when there are gaps.
    """
    from jobcontract.schedules import find_missing, tick_name
    from jobcontract.schedules.gaps import BEGINNING, END

    rows: list[tuple[str, str]] = []
    for store, found in _by_backend(session, names).items():
        for each in found:
            missing = find_missing(
                session.backend(store), each, since=since or BEGINNING, until=until or END, limit=limit
            )
            rows += [(each.name, tick_name(tick)) for tick in missing.ticks]
            _say_more(each, missing)
    if as_json:
        print_json([{"name": name, "tick": tick} for name, tick in rows])
    elif rows:
        show((Column("NAME", gives_way=True), Column("TICK")), rows)
    else:
        note("no tick is missing")
    if check and rows:
        raise CommandFailed(f"{count(len(rows), 'tick')} missing")


def _say_more(schedule: Schedule, missing: Missing) -> None:
    if missing.place is None:
        note(f"{escape(schedule.name)}: no scheduler has run it yet")
    elif missing.more:
        note(f"{escape(schedule.name)}: and more, from {instant(missing.ticks[-1])} on; see --limit")


@schedule.command(
    cls=Command,
    examples=(
        "jobctl schedule backfill --yes",
        "jobctl schedule backfill nightly --since 2026-11-30T00:00Z --until 2026-11-30T12:00Z --yes",
        "jobctl schedule backfill nightly --forget --yes",
    ),
)
@names_argument
@since_option
@until_option
@click.option("--forget", is_flag=True, help="Insert nothing: the missing ticks are not wanted any more.")
@yes_option
@json_option
@pass_session
def backfill(
    session: Session,
    names: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    forget: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Insert the jobs of missing ticks, each once.

    They are those that `jobctl schedule gaps` lists, and are due at once.
    """
    from jobcontract.schedules import backfill as insert
    from jobcontract.schedules import find_missing
    from jobcontract.schedules.gaps import BEGINNING, END, close_gaps

    first, last = since or BEGINNING, until or END
    rows: list[dict[str, object]] = []
    for store, found in _by_backend(session, names).items():
        backend = session.backend(store)
        for each in found:
            missing = find_missing(backend, each, since=first, until=last)
            if not missing.ticks:
                continue
            number = f"{'over ' if missing.more else ''}{count(len(missing.ticks), 'missing tick')}"
            deed = "Forget" if forget else "Insert jobs for"
            confirm(f"{deed} {number} of {escape(each.name)} in {session.describe(store)}?", yes=yes)
            row: dict[str, object] = {"name": each.name}
            if forget:
                close_gaps(backend, each, since=first, until=min(last, missing.ticks[-1]))
                row |= {"forgotten": len(missing.ticks)}
            else:
                row |= insert(backend, each, since=first, until=last)._asdict()
            rows.append(row)
    if as_json:
        print_json(rows)
        return
    if not rows:
        note("no tick is missing")
    for row in rows:
        done = ", ".join(f"{value} {key}" for key, value in row.items() if key != "name")
        say(f"{escape(str(row['name']))}: {done}")


@schedule.command(
    "sql", cls=Command, examples=("jobctl schedule sql nightly > nightly.sql", "jobctl schedule sql")
)
@names_argument
@pass_session
def print_sql(session: Session, names: tuple[str, ...]) -> None:
    """Print the schedules as jobs of pg_cron.

    To be run once, in the database of their backend. pg_cron then inserts the same jobs under the same keys
    as workers do. Exit code 3 for what it can't do: another store than PostgreSQL, an interval that is no
    minutes of the clock, L, W and #.

    Contacts nothing.
    """
    from jobcontract.schedules.pg_cron import pg_cron_sql
    from jobcontract.side_doors import RegistersByStatement

    for store, found in _by_backend(session, names).items():
        driver = session.backend(store).driver
        if not isinstance(driver, RegistersByStatement):
            raise Unsupported(f"backend {store!r} is no PostgreSQL that registers jobs in itself")
        for each in found:
            say(escape(pg_cron_sql(each, driver), keep="\n"))


def _chosen(session: Session, names: Sequence[str]) -> list[Schedule]:
    """The schedules called `names`, or all. Raises `ConfigError`, and `CommandFailed` for an unknown one."""
    from jobcontract.schedules import load_schedules

    found = load_schedules(session.settings)
    known = [each.name for each in found]
    for name in names:
        if name not in known:
            raise CommandFailed(
                f"there is no schedule {name!r}; configured are: {', '.join(known) or 'none'}",
                Exit.NOT_APPLICABLE,
            )
    return [each for each in found if not names or each.name in names]


def _by_backend(session: Session, names: Sequence[str]) -> dict[str | None, list[Schedule]]:
    """The chosen schedules, by the backend that their jobs go to; with ``--backend`` those of that one."""
    only = None if session.backend_name is None else session.store().name
    found: dict[str | None, list[Schedule]] = {}
    for each in _chosen(session, names):
        store = session.settings.store(each.backend).name
        if only in (None, store):
            found.setdefault(store if store in session.settings.backends else None, []).append(each)
    return found


def _when(schedule: Schedule) -> dict[str, str | None]:
    from jobcontract.schedules import Cron, Interval

    if isinstance(schedule.ticks, Cron):
        return {"when": schedule.ticks.expression, "timezone": schedule.ticks.zone.key}
    assert isinstance(schedule.ticks, Interval)
    return {"when": f"every {format_duration(schedule.ticks.length)}", "timezone": None}


def _cell(value: object) -> str:
    return "" if value is None else str(value)

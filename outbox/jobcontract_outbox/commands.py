"""``jobctl relay``: publish what was committed, look after it, decide about what is parked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import click

from jobcontract.cli.by_id import ids_argument
from jobcontract.cli.command import Command, Group, format_options, json_option, shared_options, write_lines
from jobcontract.cli.exits import CommandFailed, Exit
from jobcontract.cli.output import (
    Column,
    count,
    instant,
    instant_json,
    note,
    print_fields,
    print_json,
    say,
    show,
)
from jobcontract.cli.parameters import as_duration
from jobcontract.cli.session import Session, pass_session
from jobcontract.durations import format_duration
from jobcontract.side_doors import OutboxStats
from jobcontract_outbox.display import pending_words, run_relay, run_relay_once, status_json
from jobcontract_outbox.ends import Ends, find_ends
from jobcontract_outbox.parked import ParkedJob, ParkedJobs
from jobcontract_outbox.relay import Relay, RelayOptions
from jobcontract_outbox.statements import Statements
from jobcontract_outbox.status import known_targets, read_status

Item = TypeVar("Item")

_EXAMPLES = (
    "jobctl relay",
    "jobctl relay --once",
    "jobctl relay --target rabbitmq --batch 1000",
    "jobctl relay --check --max-age 60s",
)


class RelayGroup(Group):
    """A group that does something by itself, with the options that all commands share."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:  # Any: click's own signature
        super().__init__(*arguments, **keywords)
        self.invoke_without_command, self.no_args_is_help = True, False
        self.params.extend(shared_options(takes_backend=False))
        self.examples = _EXAMPLES

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a verb it runs, instead of showing the help."""
        return click.Group.parse_args(self, ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options, those that all share, and its verbs."""
        format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        del ctx
        write_lines(formatter, "Examples", self.examples)


target_option = click.option(
    "--target", "targets", multiple=True, metavar="NAME", help="Only this backend; may be repeated."
)


@click.group(cls=RelayGroup)
@target_option
@click.option("--once", is_flag=True, help="Publish what is due, and end.")
@click.option("--batch", type=click.IntRange(1, 10_000), metavar="N", help="Jobs per transaction; else 500.")
@click.option("--check", is_flag=True, help="Publish nothing: fail when the oldest due job waits too long.")
@click.option(
    "--max-age",
    callback=as_duration,
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="With --check: how long a due job may wait.",
)
@json_option
@click.pass_context
def relay(
    context: click.Context,
    targets: tuple[str, ...],
    once: bool,
    batch: int | None,
    check: bool,
    max_age: timedelta,
    as_json: bool,
) -> None:
    """Publish the jobs of the outboxes.

    For every backend that is configured with an outbox: what was committed there is published, and deleted
    when the backend has confirmed it. Any number of relays may run.

    Runs until it is stopped: the first SIGTERM or Ctrl-C lets it finish the batch that it has, and the exit
    code is 0 then. A backend or a database that is away does not end it. With --once it ends by itself,
    with 1 when a backend could not be reached.

    --check is a health probe, and needs no relay to run: exit code 1 when a job that is due waits for longer
    than --max-age, whatever the reason.
    """
    session = context.ensure_object(Session)
    if context.invoked_subcommand is not None:
        if once or check or batch:
            raise click.UsageError("--once, --batch and --check are for the relay itself.", context)
        context.obj = session
        context.meta[_TARGETS] = targets
        return
    if session.backend_name is not None:
        raise click.UsageError("jobctl relay is not about one backend; use --target", context)
    if once and check:
        raise click.UsageError("--once and --check can't be combined.", context)
    if as_json and not check:
        raise click.UsageError("--json goes with --check.", context)
    session.log_to_stderr(usual=logging.INFO)
    ends = find_ends(session.settings, targets)
    if check:
        _check(ends, max_age, strays=not targets, as_json=as_json)
        return
    running = Relay(ends, RelayOptions.of(session.settings.relay, batch=batch))
    with closing(running):
        running.check()
        if once:
            run_relay_once(running)
            for loop in running.loops:
                say(f"{loop.target_name}: {count(loop.published, 'job')} published")
        else:
            run_relay(running)


_TARGETS = "jobcontract_outbox.targets"


def _statuses(ends: Sequence[Ends], *, strays: bool) -> list[tuple[str, OutboxStats]]:
    """Of each target; with `strays` also of those that the outboxes hold jobs for and nobody publishes to."""
    found: dict[str, OutboxStats] = {}
    for each in ends:
        opened = each.open()
        with closing(opened.driver):
            statements = Statements(opened.tables)
            look = partial(read_status, opened.tables, opened.driver.schema, statements)
            found[each.name] = look(each.name)
            served = {other.name for other in ends if other.host.name == each.host.name}
            for name in known_targets(opened.tables, opened.driver.schema, statements) if strays else ():
                if name not in served:
                    found[f"{name} (no relay publishes it from {each.host.name!r})"] = look(name)
    return list(found.items())


def _check(ends: Sequence[Ends], max_age: timedelta, *, strays: bool, as_json: bool) -> None:
    found = _statuses(ends, strays=strays)
    late = [(name, status) for name, status in found if status.oldest is not None and status.oldest > max_age]
    if as_json:
        print_json([status_json(name, status) | {"ok": (name, status) not in late} for name, status in found])
    else:
        show(_COLUMNS, [_row(name, status, late=(name, status) in late) for name, status in found])
    if late:
        name, status = max(late, key=lambda each: each[1].oldest or timedelta())
        raise CommandFailed(
            f"a job for {name!r} has been due for {format_duration(status.oldest or timedelta())}, "
            f"longer than {format_duration(max_age)}"
        )


_COLUMNS = (
    Column("TARGET", gives_way=True),
    Column("OLDEST", right=True),
    Column("PENDING", right=True),
    Column("HELD UP", right=True),
    Column("SCHEDULED", right=True),
    Column("PARKED", right=True),
)


def _row(name: str, status: OutboxStats, *, late: bool) -> list[str | tuple[str, str]]:
    oldest = "" if status.oldest is None else format_duration(status.oldest)
    return [
        name,
        (oldest, "red") if late else oldest,
        pending_words(status.pending),
        pending_words(status.held_up),
        pending_words(status.scheduled),
        (pending_words(status.parked), "yellow" if status.parked else ""),
    ]


@relay.group(cls=Group)
def parked() -> None:
    """Decide about jobs that their backend refused.

    A job that is refused again and again (its queue is missing or full, it is too large) is parked with the
    reason. Jobs behind it with the same ordering key stand still until it is retried or dropped.
    """


@parked.command(
    "list",
    cls=Command,
    takes_backend=False,
    examples=("jobctl relay parked list", "jobctl relay parked list --json"),
)
@target_option
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@json_option
@pass_session
def list_parked(session: Session, targets: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List parked jobs, the latest first, with the reason."""
    found = _of_all(session, targets, lambda jobs: jobs.newest(limit))
    found.sort(key=lambda job: job.parked_at, reverse=True)
    if as_json:
        print_json([_as_json(job) for job in found[:limit]])
        return
    columns = (
        Column("ID"),
        Column("TARGET", gives_way=True),
        Column("QUEUE", gives_way=True),
        Column("KIND", gives_way=True),
        Column("PARKED"),
        Column("ATTEMPTS", right=True),
        Column("REASON", gives_way=True),
    )
    show(
        columns,
        [
            [
                job.job_id,
                job.target,
                job.record.queue if job.record else "?",
                job.record.kind if job.record else "?",
                instant(job.parked_at),
                str(job.attempts),
                job.reason,
            ]
            for job in found[:limit]
        ],
    )


@parked.command(
    "show",
    cls=Command,
    takes_backend=False,
    examples=("jobctl relay parked show 0197b3a2-0000-7000-8000-000000000001",),
)
@ids_argument
@target_option
@json_option
@pass_session
def show_parked(session: Session, ids: tuple[UUID, ...], targets: tuple[str, ...], as_json: bool) -> None:
    """Show all about parked jobs.

    Exit code 3 when one of them is not parked.
    """
    names = [str(each) for each in ids]
    found = _of_all(session, targets, lambda jobs: jobs.find(names))
    if as_json:
        print_json([_as_json(job) for job in found])
    else:
        for number, job in enumerate(found):
            if number:
                say()
            print_fields((name, str(value)) for name, value in _as_json(job).items() if value is not None)
    _fail_for_missing(names, {job.job_id for job in found}, "shown")


@parked.command(
    "retry",
    cls=Command,
    takes_backend=False,
    examples=("jobctl relay parked retry 0197b3a2-0000-7000-8000-000000000001",),
)
@ids_argument
@target_option
@json_option
@pass_session
def retry_parked(session: Session, ids: tuple[UUID, ...], targets: tuple[str, ...], as_json: bool) -> None:
    """Let parked jobs go again, with all their attempts.

    Exit code 3 when one of them is not parked.
    """
    _change(session, ids, targets, ParkedJobs.retry, "released", as_json)


@parked.command(
    "drop",
    cls=Command,
    takes_backend=False,
    examples=("jobctl relay parked drop 0197b3a2-0000-7000-8000-000000000001",),
)
@ids_argument
@target_option
@json_option
@pass_session
def drop_parked(session: Session, ids: tuple[UUID, ...], targets: tuple[str, ...], as_json: bool) -> None:
    """Give parked jobs up for good: they are cancelled.

    Exit code 3 when one of them is not parked.
    """
    _change(session, ids, targets, ParkedJobs.drop, "dropped", as_json)


def _change(
    session: Session,
    ids: Sequence[UUID],
    targets: Sequence[str],
    verb: Callable[[ParkedJobs, Sequence[str]], set[str]],
    done: str,
    as_json: bool,
) -> None:
    names = [str(each) for each in ids]
    changed = set(_of_all(session, targets, lambda jobs: sorted(verb(jobs, names))))
    if as_json:
        print_json([{"id": name, "ok": name in changed} for name in names])
    else:
        for name in names:
            if name in changed:
                say(f"{name} {done}")
    _fail_for_missing(names, changed, done, quiet=as_json)


def _of_all(session: Session, targets: Sequence[str], look: Callable[[ParkedJobs], list[Item]]) -> list[Item]:
    chosen = tuple(targets) or click.get_current_context().meta.get(_TARGETS, ())
    found: list[Item] = []
    with ExitStack() as stack:
        for each in find_ends(session.settings, chosen):
            opened = each.open()
            stack.enter_context(closing(opened.driver))
            found += look(ParkedJobs(opened))
    return found


def _fail_for_missing(names: Sequence[str], found: set[str], done: str, *, quiet: bool = False) -> None:
    missing = [name for name in names if name not in found]
    if not quiet:
        for name in missing:
            note(f"{name} is not parked")
    if missing:
        raise CommandFailed(
            "" if len(names) == 1 else f"{len(missing)} of {len(names)} jobs were not {done}",
            Exit.NOT_APPLICABLE,
        )


def _as_json(job: ParkedJob) -> dict[str, object]:
    record = job.record
    return {
        "id": job.job_id,
        "target": job.target,
        "queue": record.queue if record else None,
        "kind": record.kind if record else None,
        "idempotency_key": record.idempotency_key if record else None,
        "ordering_key": job.ordering_key,
        "attempts": job.attempts,
        "reason": job.reason,
        "due_at": instant_json(job.due_at),
        "parked_at": instant_json(job.parked_at),
        "input_ref": record.input_ref if record else None,
    }

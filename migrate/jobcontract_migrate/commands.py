"""``jobctl migrate``: move the jobs to another store, while producers and workers go on."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import click

from jobcontract.cli.command import (
    Command,
    Group,
    format_options,
    json_option,
    shared_options,
    write_lines,
    yes_option,
)
from jobcontract.cli.escape import escape
from jobcontract.cli.exits import CommandFailed, Exit
from jobcontract.cli.output import confirm, console_on_stdout, print_fields, print_json, say
from jobcontract.cli.parameters import as_duration
from jobcontract.cli.session import Session, pass_session
from jobcontract.errors import StoreUnavailable
from jobcontract_migrate.charge import Busy, Superseded
from jobcontract_migrate.control import Control, Move
from jobcontract_migrate.coordinator import (
    Coordinator,
    Interrupted,
    Options,
    Progress,
    VerificationFailed,
)
from jobcontract_migrate.ends import NotNow
from jobcontract_migrate.plan import Plan, make_plan
from jobcontract_migrate.report import (
    next_command,
    plan_json,
    plan_lines,
    report_json,
    report_lines,
    status_fields,
    status_json,
)
from jobcontract_migrate.states import Phase
from jobcontract_migrate.verify import Difference

_EXAMPLES = (
    "jobctl migrate --from postgres --to redis --dry-run",
    "jobctl migrate --from postgres --to redis --yes",
    "jobctl migrate status --watch",
)
_UNTIL = ("dual_read", "moving", "verifying", "sealed")
_SHOWN = 20


class MigrateGroup(Group):
    """A group that does something by itself, with the options that all commands share."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:  # Any: click's own signature
        super().__init__(*arguments, **keywords)
        self.invoke_without_command, self.no_args_is_help = True, False
        self.params.extend(shared_options(takes_backend=False))
        self.examples = _EXAMPLES

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options, those that all share, and its verbs."""
        format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        del ctx
        write_lines(formatter, "Examples", self.examples)


def running_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every verb that moves jobs."""
    for option in reversed(
        (
            click.option(
                "--until",
                type=click.Choice(_UNTIL),
                default="sealed",
                show_default=True,
                help="Stop when this state is reached.",
            ),
            click.option(
                "--batch",
                type=click.IntRange(1, 10_000),
                default=1000,
                show_default=True,
                metavar="N",
                help="Jobs that are moved at a time.",
            ),
            click.option(
                "--cutover-timeout",
                callback=as_duration,
                default="5s",
                show_default=True,
                metavar="DURATION",
                help="How long nobody may register at the longest; then it is tried again later.",
            ),
            click.option(
                "--max-rate",
                type=click.FloatRange(min=0, min_open=True),
                metavar="N",
                help="The most jobs that are moved in a second.",
            ),
            click.option(
                "--max-target-age",
                callback=as_duration,
                metavar="DURATION",
                help="Rest while the oldest due job at the target has waited for longer.",
            ),
            click.option(
                "--pause-file",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Rest while there is such a file.",
            ),
        )
    ):
        command = option(command)
    return command


@click.group(cls=MigrateGroup)
@click.option("--from", "source", metavar="NAME", help="The backend in which jobs live.")
@click.option("--to", "target", metavar="NAME", help="The backend in which they shall live.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@running_options
@yes_option
@json_option
@click.pass_context
def migrate(
    context: click.Context,
    /,
    source: str | None,
    target: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    until: str,
    **options: Any,
) -> None:
    """Move all jobs to another store, live.

    Producers and workers that use get_backend() without a name, with `control` in their configuration, go on
    meanwhile: they follow. Shows the plan, asks, and moves until the source is sealed; `complete` is the
    point of no return, and until then `reverse` goes back, in either direction, as often as need be.

    It can be killed at any time: the same command, or `resume`, goes on. Exit codes: 0 done; 2 refused, with
    the reasons; 3 the comparison of both stores found differences; 4 interrupted, and can be resumed.
    """
    session = context.ensure_object(Session)
    if context.invoked_subcommand is not None:
        if source or target:
            raise click.UsageError("--from and --to are for the move itself.", context)
        context.obj = session
        return
    if source is None or target is None:
        raise click.UsageError("--from and --to say which stores.", context)
    session.log_to_stderr(usual=logging.WARNING)
    for name in (source, target):
        session.store(name)  # a name that leads nowhere is said before anything else
    with closing(Control.open(session.settings)) as control:
        move = control.read() if control.is_installed() else None
        goes_on = move is not None and not move.is_over and (move.source, move.target) == (source, target)
        plan = None if goes_on else make_plan(session.settings, source, target, control)
    if plan is not None:
        _show_plan(plan, as_json=as_json and (dry_run or bool(plan.refusals)))
        if plan.refusals:
            raise CommandFailed("", Exit.USAGE) if as_json else CommandFailed(plan.refusals[0], Exit.USAGE)
        if dry_run:
            return
        confirm(
            f"Move all jobs of {session.describe(source)} to {session.describe(target)}?", yes=yes or as_json
        )
    elif dry_run:
        assert move is not None
        say(f"under way already: {move.state.value}; nothing was changed")
        return
    with _coordinator(session, options) as coordinator:
        if plan is not None:
            jobs = plan_json(plan)["jobs"]
            coordinator.begin(source, target, {"jobs": jobs, "first_source": source})
        _run(coordinator, until, as_json=as_json)


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan_json(plan))
    else:
        for line in plan_lines(plan):
            say(escape(line))


@migrate.command(cls=Command, takes_backend=False, examples=("jobctl migrate resume",))
@running_options
@json_option
@pass_session
def resume(session: Session, /, as_json: bool, until: str, **options: Any) -> None:
    """Go on with the migration that is under way.

    After an interruption or a kill, or to end a pause: if its coordinator still runs, it goes on, and this
    command with it ends at once.
    """
    with _coordinator(session, options) as coordinator:
        move = coordinator.control.read() if coordinator.control.is_installed() else None
        if move is not None and move.paused:
            coordinator.control.set_paused(move, False)
        _run(coordinator, until, as_json=as_json)


@migrate.command(cls=Command, takes_backend=False, examples=("jobctl migrate pause",))
@pass_session
def pause(session: Session) -> None:
    """Let the mover rest until `resume`.

    Clients go on; jobs are registered and claimed where they are.
    """
    with closing(Control.open(session.settings)) as control:
        move = _move_under_way(control)
        if move.state is Phase.SEALED:
            raise CommandFailed(f"nothing moves any more: it is sealed; {next_command(move)}", Exit.USAGE)
        control.set_paused(move, True)
        say(f"paused ({move.state.value}); `jobctl migrate resume` goes on")


@migrate.command(cls=Command, takes_backend=False, examples=("jobctl migrate reverse --yes",))
@running_options
@yes_option
@json_option
@pass_session
def reverse(session: Session, /, yes: bool, as_json: bool, until: str, **options: Any) -> None:
    """Go back: what was the target becomes the source.

    Possible until it is completed, in the middle of a move too, and again in the other direction. Nothing is
    lost by it.
    """
    with _coordinator(session, options) as coordinator:
        move = _move_under_way(coordinator.control)
        confirm(f"Move all jobs back from {move.target} to {move.source}?", yes=yes or as_json)
        with _outcomes():
            coordinator.reverse()
        _run(coordinator, until, as_json=as_json)


@migrate.command(cls=Command, takes_backend=False, examples=("jobctl migrate abort",))
@pass_session
def abort(session: Session) -> None:
    """Give up a migration before the cut-over.

    Once jobs are registered at the target, `reverse` is the way back.
    """
    with _coordinator(session, {}) as coordinator, _outcomes():
        move = coordinator.abort()
        say(f"aborted; jobs live in {move.home}")


@migrate.command(cls=Command, takes_backend=False, examples=("jobctl migrate complete --yes",))
@yes_option
@pass_session
def complete(session: Session, yes: bool) -> None:
    """End a sealed migration for good.

    Removes the traces at the source. There is no way back from here but another migration.
    """
    with _coordinator(session, {}) as coordinator:
        move = _move_under_way(coordinator.control)
        confirm(f"Remove what {move.source} still knows of the jobs? There is no way back then.", yes=yes)
        with _outcomes():
            move = coordinator.complete()
        say(f"completed; jobs live in {move.home}")


@migrate.command(
    cls=Command, takes_backend=False, examples=("jobctl migrate status", "jobctl migrate status --json")
)
@click.option("--watch", is_flag=True, help="Again every second, until it is interrupted.")
@json_option
@pass_session
def status(session: Session, watch: bool, as_json: bool) -> None:
    """Say where the migration is, and which command leads on.

    Exit code 3 when there never was one.
    """
    with closing(Control.open(session.settings)) as control:
        while True:
            move = control.read() if control.is_installed() else None
            if move is None:
                raise CommandFailed("no jobs were ever moved", Exit.NOT_APPLICABLE)
            clients = control.clients()
            if as_json:
                print_json(status_json(move, clients))
            else:
                print_fields(status_fields(move, clients))
            if not watch:
                return
            time.sleep(1)
            say()


@migrate.command(cls=Command, takes_backend=False, examples=("jobctl migrate verify",))
@json_option
@pass_session
def verify(session: Session, as_json: bool) -> None:
    """Compare the two stores, job by job; changes nothing.

    Exit code 3 when a job is missing, altered, or there without having been moved or registered; 2 when the
    stores can't be compared, because jobs at the target (RabbitMQ) can't be looked up.
    """
    with _coordinator(session, {}) as coordinator:
        move = _move_under_way(coordinator.control)
        with _outcomes():
            found = list(coordinator.verify(move))
        _show_differences(found, as_json=as_json)
        if found:
            raise CommandFailed(
                f"{len(found)} jobs are not at {move.target} as they should be; `jobctl migrate repair` "
                "restores those that are missing",
                Exit.NOT_APPLICABLE,
            )


@migrate.command(cls=Command, takes_backend=False, examples=("jobctl migrate repair --yes",))
@yes_option
@json_option
@pass_session
def repair(session: Session, yes: bool, as_json: bool) -> None:
    """Store missing jobs at the target again.

    From the traces at the source. A job that somebody deleted after it had run would run again: look with
    `verify` first. What was altered or added is left for a person to decide about, and the exit code is 3
    then.
    """
    with _coordinator(session, {}) as coordinator:
        move = _move_under_way(coordinator.control)
        confirm(f"Store the jobs that are missing at {move.target} there again?", yes=yes or as_json)
        with _outcomes():
            restored, left = coordinator.repair()
        if as_json:
            print_json({"restored": restored, "left": [_difference_json(each) for each in left]})
        else:
            say(f"{restored} jobs were restored")
            _show_differences(left, as_json=False)
        if left:
            raise CommandFailed(f"{len(left)} jobs are left to decide about", Exit.NOT_APPLICABLE)


@migrate.command(cls=Command, takes_backend=False, examples=("jobctl migrate report --json",))
@json_option
@pass_session
def report(session: Session, as_json: bool) -> None:
    """Tell what happened, from the beginning."""
    with closing(Control.open(session.settings)) as control:
        move = control.read() if control.is_installed() else None
        if move is None:
            raise CommandFailed("no jobs were ever moved", Exit.NOT_APPLICABLE)
        _show_report(control, move, as_json=as_json)


# -- How -----------------------------------------------------------------------------------------------------


def _run(coordinator: Coordinator, until: str, *, as_json: bool) -> None:
    with _outcomes():
        move = coordinator.run(Phase(until))
    _show_report(coordinator.control, move, as_json=as_json)


def _show_report(control: Control, move: Move, *, as_json: bool) -> None:
    if as_json:
        print_json(report_json(control, move))
    else:
        for line in report_lines(control, move):
            say(escape(line))


def _show_differences(found: list[Difference], *, as_json: bool) -> None:
    if as_json:
        print_json([_difference_json(each) for each in found])
        return
    for each in found[:_SHOWN]:
        say(escape(f"{each.job_id} {each.finding}: {each.detail}"))
    if len(found) > _SHOWN:
        say(f"and {len(found) - _SHOWN} more")
    if not found:
        say("no differences")


def _difference_json(difference: Difference) -> dict[str, str]:
    return {"id": difference.job_id, "finding": difference.finding, "detail": difference.detail}


def _move_under_way(control: Control) -> Move:
    move = control.read() if control.is_installed() else None
    if move is None or move.is_over:
        raise CommandFailed(
            "no migration is under way; begin one with `jobctl migrate --from A --to B`", Exit.USAGE
        )
    return move


@contextmanager
def _coordinator(session: Session, options: dict[str, Any]) -> Generator[Coordinator]:
    """A coordinator that a signal stops between two batches."""
    chosen = replace(Options(), **{name: value for name, value in options.items() if value is not None})
    with closing(Coordinator(session.settings, chosen, watch=_Live().show)) as coordinator:

        def stop(number: int, frame: FrameType | None) -> None:
            del number, frame
            coordinator.stop()

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield coordinator
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _outcomes() -> Generator[None]:
    """What a coordinator raises, as the exit codes that `migrate` documents."""
    try:
        yield
    except NotNow as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    except VerificationFailed as error:
        _show_differences(list(error.differences), as_json=False)
        raise CommandFailed(str(error), Exit.NOT_APPLICABLE) from None
    except (Busy, Superseded) as error:
        raise CommandFailed(str(error)) from None
    except Interrupted as error:
        raise CommandFailed(str(error), Exit.RESUMABLE) from None
    except StoreUnavailable as error:
        raise CommandFailed(f"{error}; the same command goes on", Exit.RESUMABLE) from None


class _Live:
    """A line on a terminal that says what is going on: state, moved of total, rate, why it waits."""

    def __init__(self) -> None:
        self._terminal = console_on_stdout().is_terminal
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._said = ""

    def show(self, progress: Progress) -> None:
        """Now and then; elsewhere than on a terminal, when the state or the reason changes."""
        now = time.monotonic()
        move = progress.move
        if not self._terminal:
            said = f"{move.state.value}{': ' if progress.waiting_for else ''}{progress.waiting_for}"
            if progress.waiting_for and said != self._said and move.state.value != self._said:
                click.echo(escape(said), err=True)
                self._said = said
            return
        if now - self._shown_at < 0.25:
            return
        self._shown_at = now
        rate = progress.moved / max(now - self._began, 0.001)
        total = "" if progress.total is None else f" of {progress.total:,}"
        left = max(0, (progress.total or 0) - progress.moved)
        eta = f", {left / rate:.0f} s to go" if rate > 1 and left else ""
        know, clients = progress.acknowledged
        line = (
            f"{move.state.value}  {progress.moved:,}{total} moved, {rate:,.0f}/s{eta}; "
            f"{progress.running} running at {move.source}; step {move.epoch} known to {know} of {clients}"
            + (f"; {progress.waiting_for}" if progress.waiting_for else "")
        )
        click.echo(f"\r\x1b[K{escape(line)[:200]}", err=True, nl=False)

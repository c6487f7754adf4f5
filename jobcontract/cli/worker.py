"""``jobctl worker``: run an application's handlers."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from typing import Any

import click

from jobcontract.cli.command import Command
from jobcontract.cli.exits import CommandFailed, Exit
from jobcontract.cli.parameters import as_duration, as_queues
from jobcontract.cli.session import Session, pass_session
from jobcontract.errors import StoreError, Unsupported


@click.command(
    cls=Command,
    examples=(
        "jobctl worker app:handlers --until-empty",
        "jobctl worker app:handlers --queues critical,default --concurrency 16",
        "jobctl worker app:handlers --processes 4 --lease 10m --grace 1m",
    ),
)
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--queues",
    callback=as_queues,
    default="default",
    show_default=True,
    metavar="QUEUE,...",
    help="Where to take jobs: the best priority first, across all of them.",
)
@click.option(
    "--concurrency", type=int, metavar="N", help="How many handlers run at once in a process; else 16."
)
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="How many processes."
)
@click.option("--until-empty", is_flag=True, help="End when nothing is ready or running in these queues.")
@click.option(
    "--lease",
    callback=as_duration,
    metavar="DURATION",
    help="How long a claim holds, and how long a killed worker's jobs wait; renewed at a third; else 2m.",
)
@click.option(
    "--grace",
    callback=as_duration,
    metavar="DURATION",
    help="How long handlers may go on after the first SIGTERM or Ctrl-C; else 30s.",
)
@click.option("--batch", type=int, metavar="N", help="The most jobs that one claim takes; else 100.")
@click.option(
    "--poll-interval",
    callback=as_duration,
    metavar="DURATION",
    help="How long an idle worker waits between looks when nothing wakes it; else 2s.",
)
@click.option(
    "--rescue-interval",
    callback=as_duration,
    metavar="DURATION",
    help="How often it looks for the jobs of workers that died; else 15s.",
)
@click.option("--no-schedules", is_flag=True, help="Leave the schedules of the configuration to others.")
@pass_session
def worker(
    session: Session,
    /,
    target: str,
    queues: tuple[str, ...],
    processes: int,
    until_empty: bool,
    no_schedules: bool,
    **settings: int | timedelta | None,
) -> None:
    """Run jobs with an application's handlers.

    MODULE:ATTRIBUTE names them: a jobcontract.Handlers.

    Runs until it is stopped. The first SIGTERM or Ctrl-C ends it in order: no new jobs, those that run may
    finish within the grace, the others are given back without spending an attempt. The second gives all back
    at once. The exit code is 0 then. A store that is away does not end it. What trying again can't mend does,
    with 2: a setting that can't work, a schema that is missing or of another version, a store that refuses
    from the start.

    What is not given comes from [worker] in the configuration. The [schedules] of the backend are run, too.
    """
    # Here, so that the other commands don't import asyncio and all that a worker needs.
    from jobcontract.schedules import load_schedules
    from jobcontract.worker import (
        Supervisor,
        Worker,
        WorkerOptions,
        follow_supervisor,
        is_supervised,
        load_handlers,
    )

    session.log_to_stderr(usual=logging.INFO)
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    table = dict(session.settings.worker)
    options = WorkerOptions(queues=queues, until_empty=until_empty, **{**table, **given})
    if processes > 1 and not is_supervised():
        command = [sys.executable, "-m", "jobcontract", *session.arguments]
        code = Supervisor(command, processes, until_empty=until_empty).run()
        click.get_current_context().exit(code)
    schedules = [] if no_schedules else load_schedules(session.settings, session.store().name)
    running = Worker(session.backend(), load_handlers(target), options, schedules=schedules)
    follow_supervisor(running)
    try:
        running.run()
    except (Unsupported, StoreError) as error:  # for a worker that is a setting that can't work
        raise CommandFailed(str(error), Exit.USAGE) from error

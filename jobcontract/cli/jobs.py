"""``jobctl jobs``: look at jobs, cancel them, run them again."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import click

from jobcontract.cli.by_id import change, find, ids_argument
from jobcontract.cli.command import Command, Group, json_option
from jobcontract.cli.exits import CommandFailed, Exit
from jobcontract.cli.job_output import print_page, print_sheets
from jobcontract.cli.parameters import STATES
from jobcontract.cli.session import Session, pass_session
from jobcontract.contract import State


@click.group(cls=Group)
def jobs() -> None:
    """Look at jobs, cancel them, run them again."""


@jobs.command(
    "list",
    cls=Command,
    examples=(
        "jobctl jobs list --state ready --queue default",
        "jobctl jobs list --kind send_mail --limit 500 --json",
        "jobctl jobs list --key 7:v3",
    ),
)
@click.option("--queue", metavar="QUEUE", help="Jobs of this queue only.")
@click.option("--state", type=STATES, help="Jobs in this state only.")
@click.option("--kind", metavar="KIND", help="Jobs of this kind only.")
@click.option("--key", metavar="KEY", help="The job that holds this idempotency key, in each queue.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many.")
@click.option("--cursor", metavar="CURSOR", help="Go on where a list ended, with what it printed.")
@json_option
@pass_session
def list_jobs(
    session: Session,
    queue: str | None,
    state: str | None,
    kind: str | None,
    key: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    print_page(
        session.backend(),
        queue=queue,
        state=State(state) if state else None,
        kind=kind,
        key=key,
        limit=limit,
        cursor=cursor,
        as_json=as_json,
    )


@jobs.command(
    cls=Command,
    examples=("jobctl jobs show 0197b3a2-0000-7000-8000-000000000001",),
)
@ids_argument
@json_option
@pass_session
def show(session: Session, ids: tuple[UUID, ...], as_json: bool) -> None:
    """Show all about jobs: state, attempts, input, last error.

    Exit code 3 when one of them is not known.
    """
    found, missing = find(session.backend(), ids)
    print_sheets(found, as_json=as_json)
    fail_for_missing(missing)


@jobs.command(
    cls=Command,
    examples=("jobctl jobs cancel 0197b3a2-0000-7000-8000-000000000001",),
)
@ids_argument
@json_option
@pass_session
def cancel(session: Session, ids: tuple[UUID, ...], as_json: bool) -> None:
    """Cancel jobs that are ready.

    A job that runs, is done or dead stays what it is: exit code 3. One that was cancelled before is as it
    should be. A cancelled job can be retried.
    """
    change(ids, session.backend().cancel_many, wanted=State.CANCELLED, done="cancelled", as_json=as_json)


@jobs.command(
    cls=Command,
    examples=("jobctl jobs stop 0197b3a2-0000-7000-8000-000000000003",),
)
@ids_argument
@json_option
@pass_session
def stop(session: Session, ids: tuple[UUID, ...], as_json: bool) -> None:
    """Ask the workers of running jobs to stop them.

    A handler that heeds its context's cancellation ends within a second or two, and its job is dead; one that
    does not goes on. Exit code 3 for a job that does not run.
    """
    change(ids, session.backend().stop_many, wanted=State.RUNNING, done="told to stop", as_json=as_json)


@jobs.command(
    cls=Command,
    examples=("jobctl jobs retry 0197b3a2-0000-7000-8000-000000000001",),
)
@ids_argument
@json_option
@pass_session
def retry(session: Session, ids: tuple[UUID, ...], as_json: bool) -> None:
    """Make jobs due now.

    Dead and cancelled jobs are ready again, with all their attempts to spend anew; scheduled ones need not
    wait. A job that runs, or that is done, stays what it is: exit code 3.
    """
    change(ids, session.backend().requeue_many, wanted=State.READY, done="made ready", as_json=as_json)


def fail_for_missing(missing: Sequence[UUID]) -> None:
    """Exit code 3 when there are any."""
    if missing:
        names = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise CommandFailed(f"there is no job {names}", Exit.NOT_APPLICABLE)

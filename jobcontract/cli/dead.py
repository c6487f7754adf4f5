"""``jobctl dead``: what failed for good, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import click

from jobcontract.backend import Backend
from jobcontract.cli.by_id import change, find, ids_argument
from jobcontract.cli.command import Command, Group, json_option, yes_option
from jobcontract.cli.escape import ascii_json
from jobcontract.cli.exits import CommandFailed, Exit
from jobcontract.cli.job_output import each_job, print_page, print_sheets
from jobcontract.cli.jobs import fail_for_missing
from jobcontract.cli.output import confirm, count, instant_json, note, print_json, progress, say
from jobcontract.cli.session import Session, pass_session
from jobcontract.contract import State
from jobcontract.errors import StoreError
from jobcontract.side_doors import DeadLetters
from jobcontract.status import JobStatus

queue_option = click.option("--queue", metavar="QUEUE", help="Dead jobs of this queue only.")
kind_option = click.option("--kind", metavar="KIND", help="Dead jobs of this kind only.")


@click.group(cls=Group)
def dead() -> None:
    """Look at dead jobs, send them back, export them.

    A job is dead when its attempts are spent, when its handler said so, or when it can't be read.
    """


@dead.command(
    "list",
    cls=Command,
    examples=("jobctl dead list", "jobctl dead list --kind send_mail --limit 500 --json"),
)
@queue_option
@kind_option
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many.")
@click.option("--cursor", metavar="CURSOR", help="Go on where a list ended, with what it printed.")
@json_option
@pass_session
def list_dead(
    session: Session, queue: str | None, kind: str | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List dead jobs, newest first, with their last error."""
    print_page(
        session.backend(),
        queue=queue,
        state=State.DEAD,
        kind=kind,
        key=None,
        limit=limit,
        cursor=cursor,
        as_json=as_json,
    )


@dead.command(cls=Command, examples=("jobctl dead show 0197b3a2-0000-7000-8000-000000000002",))
@ids_argument
@json_option
@pass_session
def show(session: Session, ids: tuple[UUID, ...], as_json: bool) -> None:
    """Show all about dead jobs: attempts, input, last error.

    Exit code 3 when one of them is not known, or not dead.
    """
    backend = session.backend()
    look = _find_dead if isinstance(backend.driver, DeadLetters) else find
    found, missing = look(backend, ids)
    alive = [job for job in found if job.state is not State.DEAD]
    print_sheets([job for job in found if job.state is State.DEAD], as_json=as_json)
    for job in alive:
        note(f"{job.id} is {job.state}, not dead; see jobctl jobs show")
    fail_for_missing(missing)
    if alive:
        raise CommandFailed(code=Exit.NOT_APPLICABLE)


def _find_dead(backend: Backend, ids: Sequence[UUID]) -> tuple[list[JobStatus], list[UUID]]:
    """`find`, on a store that has to read all its dead jobs for it."""
    dead_by_id = {
        job.id: job for page in each_job(backend, state=State.DEAD) for job in page if job.id in ids
    }
    found = [dead_by_id[job_id] for job_id in ids if job_id in dead_by_id]
    return found, [job_id for job_id in ids if job_id not in dead_by_id]


@dead.command(
    cls=Command,
    examples=(
        "jobctl dead requeue 0197b3a2-0000-7000-8000-000000000002",
        "jobctl dead requeue --all --kind send_mail --yes",
    ),
)
@click.argument("ids", metavar="[ID]...", type=click.UUID, nargs=-1)
@click.option("--all", "every", is_flag=True, help="All dead jobs, or those of --queue and --kind.")
@queue_option
@kind_option
@yes_option
@json_option
@pass_session
def requeue(
    session: Session,
    ids: tuple[UUID, ...],
    every: bool,
    queue: str | None,
    kind: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Send dead jobs back to be run again.

    They have all their attempts to spend anew. Jobs that are named are sent back at once; for --all the store
    is shown, and you are asked. It can be interrupted at any time: what is back is back.
    """
    if bool(ids) == every:
        raise click.UsageError("Name the jobs, or give --all.")
    if not every and (queue or kind):
        raise click.UsageError("--queue and --kind choose among --all; the jobs are named already.")
    backend = session.backend()
    if ids:
        change(ids, backend.revive_many, wanted=State.READY, done="sent back", as_json=as_json)
        return
    which = "".join([f" of kind {kind!r}" if kind else "", f" of queue {queue!r}" if queue else ""])
    confirm(f"Send all dead jobs{which} of {session.describe()} back to be run again?", yes=yes)
    sent = _requeue_all(backend, queue, kind, quiet=as_json)
    if as_json:
        print_json({"requeued": sent})
    else:
        say(f"sent {count(sent, 'job')} back")


def _requeue_all(backend: Backend, queue: str | None, kind: str | None, *, quiet: bool) -> int:
    sent = 0
    with progress("Requeueing", None, quiet=quiet) as advance:
        try:
            for page in each_job(backend, queue=queue, kind=kind, state=State.DEAD):
                states = backend.revive_many([job.id for job in page])
                ready = sum(state is State.READY for state in states)
                sent += ready
                advance(ready)
        except StoreError as error:
            raise CommandFailed(
                f"{error} ({count(sent, 'job')} were sent back before; run it again)"
            ) from error
    return sent


@dead.command(
    cls=Command,
    examples=(
        "jobctl dead export > dead.jsonl",
        "jobctl dead export --kind send_mail | jobctl register --from-file - --backend sqlite:///other.db",
    ),
)
@queue_option
@kind_option
@pass_session
def export(session: Session, queue: str | None, kind: str | None) -> None:
    """Print dead jobs as JSON lines, for register --from-file.

    Each line has the job's own fields, its id among them, and under "exported" what became of it (state,
    attempt, error, times), which is not read again. The jobs stay where they are. Registered in another
    store, or here once they were pruned, they are due at once. Here and now they are still known, so that
    nothing happens: send them back with `jobctl dead requeue`.
    """
    undecodable: list[UUID] = []
    for page in each_job(session.backend(), queue=queue, kind=kind, state=State.DEAD):
        lines = list(_lines(page, undecodable))
        if lines:
            say("\n".join(lines))
    if undecodable:
        names = ", ".join(map(str, undecodable[:5])) + (", ..." if len(undecodable) > 5 else "")
        raise CommandFailed(
            f"{count(len(undecodable), 'job')} can't be exported, for they are not valid: {names}"
        )


def _lines(page: list[JobStatus], undecodable: list[UUID]) -> Iterator[str]:
    for status in page:
        job = status.job
        if job is None:
            undecodable.append(status.id)
            continue
        line: dict[str, object] = {
            "id": str(job.id),
            "kind": job.kind,
            "queue": job.queue,
            "priority": job.priority,
            "max_attempts": job.max_attempts,
        }
        if job.idempotency_key is not None:
            line["idempotency_key"] = job.idempotency_key
        if job.headers:
            line["headers"] = dict(job.headers)
        line["input_ref"] = dict(job.input_ref)
        line["exported"] = {
            "state": status.state.value,
            "attempt": status.attempt,
            "error": status.last_error,
            "created_at": instant_json(status.created_at),
            "finished_at": instant_json(status.finished_at),
        }
        yield ascii_json(line)

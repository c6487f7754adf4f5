"""``jobctl register``: one job from the command line, or a file of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from jobcontract.cli.command import Command, json_option
from jobcontract.cli.exits import CommandFailed, Exit
from jobcontract.cli.output import print_json, say
from jobcontract.cli.parameters import as_duration, as_headers, as_input_ref, as_instant
from jobcontract.cli.register_file import register_file
from jobcontract.cli.session import Session, pass_session
from jobcontract.contract import Job, Registration
from jobcontract.errors import InvalidJob, StoreUnavailable
from jobcontract.jsontext import JsonObject

# What a single job has on the command line, a file says in its lines.
_OF_ONE_JOB = {
    "input_ref": "--input-ref",
    "key": "--key",
    "queue": "--queue",
    "delay": "--in",
    "run_at": "--at",
    "priority": "--priority",
    "max_attempts": "--max-attempts",
    "headers": "--header",
}


@click.command(
    cls=Command,
    examples=(
        "jobctl register send_mail --input-ref '{\"message_id\": 7}' --key mail:7",
        "jobctl register send_mail --in 10m --priority 5 --queue mail",
        "jobctl register report --at 2030-01-31T06:00:00+01:00 --header tenant=acme",
        "jobctl register --from-file jobs.jsonl",
        "gzip -dc jobs.jsonl.gz | jobctl register --from-file -",
    ),
)
@click.argument("kind", required=False)
@click.option(
    "--input-ref", callback=as_input_ref, metavar="JSON", help="The job's input, a JSON object; else {}."
)
@click.option("--key", metavar="KEY", help="Its idempotency key: a second job with it is not made.")
@click.option("--queue", metavar="QUEUE", help="Else default.")
@click.option(
    "--in",
    "delay",
    callback=as_duration,
    metavar="DURATION",
    help="Not before so long from now, by this machine's clock: 10m, 1h30m, 7d.",
)
@click.option(
    "--at", "run_at", callback=as_instant, metavar="TIME", help="Not before this time: 2030-01-31T06:00:00Z."
)
@click.option("--priority", type=int, metavar="N", help="0 to 9, larger is sooner; else 0.")
@click.option("--max-attempts", type=int, metavar="N", help="How often it may be tried, 1 to 1000; else 5.")
@click.option(
    "--header", "headers", multiple=True, callback=as_headers, metavar="NAME=VALUE", help="May be repeated."
)
@click.option("--from-file", metavar="FILE", help="Jobs from a file of JSON lines; - is standard input.")
@json_option
@pass_session
def register(
    session: Session,
    kind: str | None,
    input_ref: JsonObject | None,
    key: str | None,
    queue: str | None,
    delay: timedelta | None,
    run_at: datetime | None,
    priority: int | None,
    max_attempts: int | None,
    headers: dict[str, str] | None,
    from_file: str | None,
    as_json: bool,
) -> None:
    """Register a job of KIND, or all jobs of a file.

    A key that is taken is an answer, not an error: the job that holds it is named. When that job has another
    kind or input, the exit code is 3.

    A file has a JSON object on each line, with the fields of a job: kind (required), input_ref,
    idempotency_key, queue, priority, run_at, max_attempts, headers, id. All lines are checked before the
    first job is sent: a bad line is named by its number, and then nothing is registered. The file may have
    millions of lines; a pipe is copied to a temporary file.

    A line with an id (a UUID) or an idempotency_key can be sent again: what is there already is counted as a
    duplicate. So when the store fails in the middle, run the same command again. A line with neither is a new
    job each time.
    """
    if from_file is not None:
        given = click.get_current_context().params
        wrong = ["KIND"] if kind is not None else []
        wrong += [option for name, option in _OF_ONE_JOB.items() if given[name] is not None]
        if wrong:
            raise click.UsageError(f"{wrong[0]} is about one job; with --from-file each line says it itself.")
        register_file(session, from_file, as_json=as_json)
        return
    if kind is None:
        raise click.UsageError("Give the KIND of the job, or --from-file.")
    if delay is not None and run_at is not None:
        raise click.UsageError("--in and --at say the same thing; give one.")
    if delay is not None:
        run_at = _from_now(delay)
    given_fields = {
        "input_ref": input_ref,
        "idempotency_key": key,
        "queue": queue,
        "run_at": run_at,
        "priority": priority,
        "max_attempts": max_attempts,
        "headers": headers,
    }
    job = Job(kind=kind, **{name: value for name, value in given_fields.items() if value is not None})
    registration = _register(session, job)
    if as_json:
        print_json(_as_json(registration))
    else:
        say(_sentence(registration))
    if registration.conflict:
        raise CommandFailed(
            f"key {key!r} is held by job {registration.job_id}, which has another kind or input; "
            "nothing was registered",
            Exit.NOT_APPLICABLE,
        )


def _register(session: Session, job: Job) -> Registration:
    try:
        return session.backend().register(job)
    except StoreUnavailable as error:
        if error.nothing_written:
            raise CommandFailed(f"{error}; nothing was registered") from error
        again = "; with its key it is safe to run it again" if job.idempotency_key is not None else ""
        raise CommandFailed(f"{error}; whether job {job.id} is stored is not known{again}") from error


def _from_now(delay: timedelta) -> datetime:
    try:
        return datetime.now(UTC) + delay
    except OverflowError:
        raise InvalidJob("run_at", "must lie before the year 2100") from None


def _sentence(registration: Registration) -> str:
    state = f" ({registration.state})" if registration.state else ""
    if registration.created:
        return f"registered {registration.job_id}{state}"
    return f"already there: {registration.job_id}{state}"


def _as_json(registration: Registration) -> dict[str, object]:
    return {
        "job_id": str(registration.job_id),
        "created": registration.created,
        "state": registration.state.value if registration.state else None,
        "conflict": registration.conflict,
    }

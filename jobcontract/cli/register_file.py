"""``jobctl register --from-file``: check all lines, send them in batches, say truly how far it came."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobcontract.backend import Backend
from jobcontract.cli.escape import one_line
from jobcontract.cli.exits import CommandFailed, Exit
from jobcontract.cli.job_lines import Checked, JobLines, NumberedJob, open_lines
from jobcontract.cli.output import count, note, print_json, progress, say
from jobcontract.cli.session import Session
from jobcontract.contract import Job, Registration
from jobcontract.errors import StoreError, StoreUnavailable

# An ASCII escape takes six bytes for one character. The rest: headers, key, and a past that was exported.
_BYTES_PER_CHARACTER = 6
_REST_OF_A_LINE = 256 * 1024
_MOST_AT_ONCE = 1000
_MOST_CONFLICTS = 10


@dataclass
class _Sent:
    """How far the second pass came."""

    stored: int = 0
    """Jobs whose registration was acknowledged."""
    created: int = 0
    conflicts: int = 0
    first_conflicts: list[tuple[int, Registration]] = field(default_factory=list[tuple[int, Registration]])
    under_way: list[NumberedJob] = field(default_factory=list[NumberedJob])
    """The batch that is being sent: until it is acknowledged, nobody knows."""


def register_file(session: Session, name: str, *, as_json: bool) -> None:
    """Register the jobs of the file `name`, "-" for standard input. Nothing, when a line of it is bad."""
    longest = _BYTES_PER_CHARACTER * session.settings.max_input_ref_bytes + _REST_OF_A_LINE
    backend = session.backend()
    try:
        with open_lines(name, longest) as lines:
            checked = _check(backend, lines, quiet=as_json)
            sent = _send(backend, lines, checked, quiet=as_json)
    except BrokenPipeError:  # of the progress bar
        raise
    except OSError as error:
        raise CommandFailed(f"{name} can't be read: {error.strerror}", Exit.USAGE) from None
    if as_json:
        print_json(_as_json(sent))
    else:
        say(_summary(sent))
    if sent.conflicts:
        for number, registration in sent.first_conflicts:
            note(f"line {number}: job {registration.job_id} has its key, and another kind or input")
        raise CommandFailed(
            f"{count(sent.conflicts, 'job')} of {sent.stored:,} were not registered: others hold their keys",
            Exit.NOT_APPLICABLE,
        )


def _check(backend: Backend, lines: JobLines, *, quiet: bool) -> Checked:
    def accept(job: Job) -> None:
        backend.check([job])

    with progress("Checking", lines.size, quiet=quiet) as advance:
        checked = lines.check(accept, advance)
    if checked.bad:
        for bad in checked.first_bad:
            note(f"line {bad.number}: {one_line(bad.reason)}")
        raise CommandFailed(
            f"{count(checked.bad, 'line')} can't be registered, and so nothing was registered", Exit.USAGE
        )
    return checked


def _send(backend: Backend, lines: JobLines, checked: Checked, *, quiet: bool) -> _Sent:
    sent = _Sent()
    if not checked.jobs:
        return sent
    most = min(_MOST_AT_ONCE, backend.capabilities.max_register_batch)
    try:
        with progress("Registering", checked.jobs, quiet=quiet) as advance:
            for batch in lines.batches(most):
                sent.under_way = batch
                registrations = backend.register_many([job for _, job in batch])
                _count(sent, batch, registrations)
                advance(len(batch))
    except (StoreError, CommandFailed) as error:
        if isinstance(error, StoreUnavailable) and error.nothing_written:
            sent.under_way = []
        raise CommandFailed(f"{error}; {_how_far(backend, sent, checked)}") from error
    except KeyboardInterrupt:
        raise CommandFailed(f"interrupted; {_how_far(backend, sent, checked)}", Exit.INTERRUPTED) from None
    return sent


def _count(sent: _Sent, batch: list[NumberedJob], registrations: list[Registration]) -> None:
    for (number, _), registration in zip(batch, registrations, strict=True):
        sent.created += registration.created
        if registration.conflict:
            sent.conflicts += 1
            if len(sent.first_conflicts) < _MOST_CONFLICTS:
                sent.first_conflicts.append((number, registration))
    sent.stored += len(batch)
    sent.under_way = []


def _how_far(backend: Backend, sent: _Sent, checked: Checked) -> str:
    """What is stored, what is unknown, and whether the same command can be run again."""
    so_far = f"{sent.stored:,} of {count(checked.jobs, 'job')} are stored"
    if sent.under_way:
        so_far += f", and perhaps those of lines {sent.under_way[0].number} to {sent.under_way[-1].number}"
    if not backend.capabilities.has("deduplication"):
        return f"{so_far}; this store does not know a job again: send only the lines that are missing"
    if checked.nameless:
        return (
            f"{so_far}; {count(checked.nameless, 'line')} with neither an id nor an idempotency_key "
            "would be registered again: send only the lines that are missing, or give each line an id"
        )
    return f"{so_far}; it is safe to run it again, for every line has an id or an idempotency_key"


def _summary(sent: _Sent) -> str:
    duplicates = sent.stored - sent.created - sent.conflicts
    parts = [f"registered {count(sent.created, 'job')}"]
    if duplicates:
        parts.append(f"{count(duplicates, 'duplicate')} already there")
    if sent.conflicts:
        parts.append(count(sent.conflicts, "conflict"))
    return ", ".join(parts)


def _as_json(sent: _Sent) -> dict[str, object]:
    return {
        "jobs": sent.stored,
        "created": sent.created,
        "duplicates": sent.stored - sent.created - sent.conflicts,
        "conflicts": [
            {"line": number, "job_id": str(registration.job_id)}
            for number, registration in sent.first_conflicts
        ],
        "conflict_count": sent.conflicts,
    }

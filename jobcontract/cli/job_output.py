"""Jobs as people and programs read them: the table, the sheet and the JSON of ``jobs`` and ``dead``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from jobcontract.backend import Backend
from jobcontract.cli.escape import brief
from jobcontract.cli.output import (
    Cell,
    Column,
    instant,
    instant_json,
    note,
    print_fields,
    print_json,
    say,
    show,
)
from jobcontract.contract import MAX_CLAIM_LIMIT, State
from jobcontract.status import JobStatus

_COLUMNS = (
    Column("ID"),
    Column("KIND", gives_way=True),
    Column("QUEUE", gives_way=True),
    Column("STATE"),
    Column("ATTEMPTS", right=True),
    Column("WHEN", gives_way=True),
    Column("KEY", gives_way=True),
    Column("LAST ERROR", gives_way=True),
)
_STYLES = {State.DEAD: "red", State.RUNNING: "green", State.CANCELLED: "yellow"}


def each_job(
    backend: Backend,
    *,
    queue: str | None = None,
    state: State | None = None,
    kind: str | None = None,
    key: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    page: int = MAX_CLAIM_LIMIT,
) -> Iterator[list[JobStatus]]:
    """The jobs that match, newest first, page by page; `limit` at the most, None for all of them.

    Each page goes on below the last id of the one before: it ends, although jobs are changed meanwhile.
    """
    left = limit
    while left is None or left > 0:
        size = page if left is None else min(page, left)
        if state is State.DEAD and key is None:  # which more stores can than look up any job
            found = backend.dead_jobs(queue=queue, kind=kind, limit=size, cursor=cursor)
        else:
            found = backend.jobs(
                queue=queue, state=state, kind=kind, idempotency_key=key, limit=size, cursor=cursor
            )
        if found:
            yield found
        if len(found) < size:
            return
        cursor = found[-1].cursor
        left = None if left is None else left - len(found)


def print_page(
    backend: Backend,
    *,
    queue: str | None,
    state: State | None,
    kind: str | None,
    key: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """At most `limit` jobs, and with which ``--cursor`` the list goes on."""
    found: list[JobStatus] = []
    pages = each_job(backend, queue=queue, state=state, kind=kind, key=key, limit=limit + 1, cursor=cursor)
    for page in pages:
        found += page
    following = found[limit - 1].cursor if len(found) > limit else None
    found = found[:limit]
    if as_json:
        print_json({"jobs": [job_json(job) for job in found], "next_cursor": following})
        return
    if not found:
        note("no such jobs")
        return
    show(_COLUMNS, [_row(job) for job in found])
    if following:
        note(f"there are more; go on with --cursor {following}")


def _row(job: JobStatus) -> Sequence[Cell]:
    return (
        str(job.id),
        job.kind,
        job.queue,
        (job.state, _STYLES.get(job.state, "")),
        _attempts(job),
        _when(job),
        (job.job.idempotency_key if job.job else None) or "",
        brief(job.problem or job.last_error),
    )


def _attempts(job: JobStatus) -> str:
    """What was spent of what may be; of a job that is done, the number of its last attempt."""
    if job.job is None or job.state is State.DONE:
        return str(job.attempt)
    return f"{job.spent}/{job.job.max_attempts}"


def _when(job: JobStatus) -> str:
    if job.finished_at is not None:
        return f"{job.state} {instant(job.finished_at)}"
    if job.lease_expires_at is not None:
        return f"until {instant(job.lease_expires_at)}"
    due = job.job.run_at if job.job else None
    return f"due {instant(due)}" if due else ""


def print_sheet(job: JobStatus) -> None:
    """Everything about one job."""
    fields: list[tuple[str, str]] = [
        ("id", str(job.id)),
        ("kind", job.kind),
        ("queue", job.queue),
        ("state", job.state),
        ("attempt", str(job.attempt)),
        ("created at", instant(job.created_at)),
    ]
    if job.lease_expires_at is not None:
        fields.append(("leased until", instant(job.lease_expires_at)))
    if job.finished_at is not None:
        fields.append((f"{job.state} at", instant(job.finished_at)))
    if job.job is not None:
        fields += [
            ("max attempts", str(job.job.max_attempts)),
            ("spent", "" if job.state is State.DONE else str(job.spent)),
            ("priority", str(job.job.priority)),
            ("run at", instant(job.job.run_at)),
            ("key", job.job.idempotency_key or ""),
            ("headers", _pretty(job.job.headers) if job.job.headers else ""),
            ("input_ref", _pretty(job.job.input_ref)),
        ]
    if job.problem is not None:
        fields.append(("problem", job.problem))
    if job.last_error is not None:
        fields.append(("last error", job.last_error))
    print_fields((name, value) for name, value in fields if value)


def print_sheets(jobs: Sequence[JobStatus], *, as_json: bool) -> None:
    """`print_sheet` for each, or one JSON list."""
    if as_json:
        print_json([job_json(job) for job in jobs])
        return
    for position, job in enumerate(jobs):
        if position:
            say()
        print_sheet(job)


def job_json(job: JobStatus) -> dict[str, object]:
    """One job for programs. Where it can't be decoded, what only a valid job has is null; see `problem`."""
    valid = job.job
    return {
        "id": str(job.id),
        "kind": job.kind,
        "queue": job.queue,
        "state": job.state.value,
        "attempt": job.attempt,
        "attempts_spent": job.spent,
        "max_attempts": valid.max_attempts if valid else None,
        "priority": valid.priority if valid else None,
        "idempotency_key": valid.idempotency_key if valid else None,
        "run_at": instant_json(valid.run_at) if valid else None,
        "created_at": instant_json(job.created_at),
        "lease_expires_at": instant_json(job.lease_expires_at),
        "finished_at": instant_json(job.finished_at),
        "last_error": job.last_error,
        "problem": job.problem,
        "headers": dict(valid.headers) if valid else None,
        "input_ref": dict(valid.input_ref) if valid else None,
    }


def _pretty(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)

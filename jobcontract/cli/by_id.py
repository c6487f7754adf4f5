"""A verb on jobs that were named one by one, and what became of each: in words, as JSON, as exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import click

from jobcontract.backend import Backend
from jobcontract.cli.exits import CommandFailed, Exit
from jobcontract.cli.output import note, print_json, say
from jobcontract.contract import State
from jobcontract.status import JobStatus

ids_argument = click.argument("ids", metavar="ID...", type=click.UUID, nargs=-1, required=True)


def change(
    ids: Sequence[UUID],
    verb: Callable[[Sequence[UUID]], list[State | None]],
    *,
    wanted: State,
    done: str,
    as_json: bool,
) -> None:
    """Call `verb` on `ids` and say what became of each. Exit code 3 unless all of them are `wanted` now."""
    states = verb(ids)
    failed = sum(state is not wanted for state in states)
    if as_json:
        print_json(
            [
                {"id": str(job_id), "state": state.value if state else None, "ok": state is wanted}
                for job_id, state in zip(ids, states, strict=True)
            ]
        )
    else:
        for job_id, state in zip(ids, states, strict=True):
            if state is wanted:
                say(f"{job_id} {done}")
            elif state is None:
                note(f"{job_id} is not known")
            else:
                note(f"{job_id} is {state}, and can't be {done}")
    if failed:
        raise CommandFailed(
            "" if len(ids) == 1 else f"{failed} of {len(ids)} jobs were not {done}", Exit.NOT_APPLICABLE
        )


def find(backend: Backend, ids: Sequence[UUID]) -> tuple[list[JobStatus], list[UUID]]:
    """The jobs called `ids`, and those of `ids` that nobody knows."""
    found: list[JobStatus] = []
    missing: list[UUID] = []
    for job_id in ids:
        job = backend.get(job_id)
        if job is None:
            missing.append(job_id)
        else:
            found.append(job)
    return found, missing

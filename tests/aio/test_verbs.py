"""`jobcontract.aio` gives the verbs of `Backend`, each of them, with the same arguments."""

from __future__ import annotations

import asyncio
import inspect

from jobcontract import Job, State
from jobcontract.aio import AsyncBackend, get_backend
from jobcontract.backend import Backend
from jobcontract.config import Settings

NOT_VERBS = {"driver", "failure", "registration_in_transaction"}
"""What does no I/O, or is for faces such as this one."""
FOR_PROGRAMS_OF_OUR_OWN = {"clock", "diagnose", "outbox_stats"}
"""What `jobctl doctor` and `jobctl metrics` ask."""


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_no_verb_is_missing() -> None:
    assert public(Backend) - public(AsyncBackend) == NOT_VERBS | FOR_PROGRAMS_OF_OUR_OWN
    assert public(AsyncBackend) <= public(Backend)


def test_each_takes_what_its_twin_takes_and_is_awaited() -> None:
    for name in public(AsyncBackend) - {"capabilities"}:
        verb = vars(AsyncBackend)[name]
        assert inspect.iscoroutinefunction(verb), name
        assert inspect.signature(verb).parameters == inspect.signature(vars(Backend)[name]).parameters, name


def test_a_job_goes_its_way() -> None:
    async def go() -> None:
        async with get_backend("sqlite://", settings=Settings()) as backend:
            await backend.install()
            await backend.require(["notes", "lookup"])
            job = Job(kind="k")
            await backend.check([job])
            assert (await backend.register(job)).created
            (claim,) = await backend.claim()
            assert await backend.stop(job.id) is State.RUNNING
            await backend.complete(claim)
            status = await backend.get(job.id)
            assert status is not None
            assert status.state is State.DONE

    asyncio.run(go())

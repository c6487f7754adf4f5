"""The asynchronous face: the same verbs, awaited.

There is one implementation, the synchronous one. A verb that goes to the store's own connections runs on a
thread, which costs a few tens of microseconds beside a round trip. `register` with an asynchronous
`connection` can't: it has to run inside the caller's transaction. There the very same statements
(`JoinsTransactions.register_steps`) are awaited on the caller's connection, one by one::

    backend = jobcontract.aio.get_backend()
    async with connection.transaction():  # psycopg's AsyncConnection; SQLAlchemy's, or its AsyncSession
        await connection.execute("INSERT INTO documents ...")
        await backend.register(job, connection=connection)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import ParamSpec, Self, TypeVar
from uuid import UUID

from jobcontract import telemetry
from jobcontract.arguments import Registrable
from jobcontract.backend import DEFAULT_QUEUES, FINISHED_STATES, Backend
from jobcontract.config import Settings
from jobcontract.connections import bind_async, run_steps_async
from jobcontract.contract import (
    MAX_CLAIM_LIMIT,
    Capabilities,
    Claim,
    Failure,
    Feature,
    JobRecord,
    Registration,
    Rescued,
    State,
    Verdict,
)
from jobcontract.effects import DEFAULT_SCHEMA, HasJob, once_steps
from jobcontract.registry import get_backend as get_synchronous_backend
from jobcontract.side_doors import NotesRead, QueueStats, Step
from jobcontract.status import JobStatus

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def get_backend(
    name_or_url: str | None = None, *, require: Collection[Feature] = (), settings: Settings | None = None
) -> AsyncBackend:
    """`jobcontract.get_backend`, for asyncio. With `require` it contacts the store and blocks: call it at
    start-up.
    """
    return AsyncBackend(get_synchronous_backend(name_or_url, require=require, settings=settings))


async def once(connection: object, running: HasJob, *, schema: str = DEFAULT_SCHEMA) -> bool:
    """`jobcontract.once` on an asynchronous connection of psycopg or SQLAlchemy."""
    bound = await bind_async(connection)
    return await run_steps_async(bound, once_steps(bound.dialect, running.job, schema))


class AsyncBackend:
    """A `Backend` whose verbs are awaited. Each says, blocks and raises what the verb of the same name in
    `Backend` does.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def register(self, job: Registrable, *, connection: object | None = None) -> Registration:
        """`Backend.register`; `connection` is an asynchronous one."""
        return (await self.register_many([job], connection=connection))[0]

    async def register_many(
        self, jobs: Iterable[Registrable], *, connection: object | None = None
    ) -> list[Registration]:
        """`Backend.register_many`; `connection` is an asynchronous one."""
        if connection is None:
            return await _on_thread(self.backend.register_many, jobs)
        with telemetry.registering(self.backend.name):
            bound = await bind_async(connection)
            # On a thread: the first look at the store's capabilities contacts it.
            records, steps = await _on_thread(
                self.backend.registration_in_transaction, jobs, bound.dialect, bound.client
            )
            most = (await self.capabilities()).max_register_batch
            answers: dict[JobRecord, Registration] = {}
            left = list(dict.fromkeys(records))
            while left:  # a driver is never given one job twice in a call: see `Backend`
                firsts: dict[str, JobRecord] = {}
                for record in left:
                    firsts.setdefault(record.id, record)
                turn = list(firsts.values())
                for start in range(0, len(turn), most):
                    batch = turn[start : start + most]
                    answers.update(zip(batch, await run_steps_async(bound, steps(batch)), strict=True))
                left = [record for record in left if record not in answers]
            registrations: list[Registration] = []
            seen: set[JobRecord] = set()
            for record in records:
                answer = answers[record]
                registrations.append(replace(answer, created=False) if record in seen else answer)
                seen.add(record)
            return registrations

    async def require(self, features: Collection[Feature]) -> None:
        """`Backend.require`."""
        await _on_thread(self.backend.require, features)

    async def check(self, jobs: Iterable[Registrable]) -> None:
        """`Backend.check`."""
        await _on_thread(self.backend.check, jobs)

    async def claim(
        self, *, queues: Sequence[str] = DEFAULT_QUEUES, limit: int = 1, lease: timedelta | None = None
    ) -> list[Claim]:
        """`Backend.claim`."""
        return await _on_thread(self.backend.claim, queues=queues, limit=limit, lease=lease)

    async def complete(self, claim: Claim) -> None:
        """`Backend.complete`."""
        await _on_thread(self.backend.complete, claim)

    async def complete_many(self, claims: Sequence[Claim]) -> list[Verdict]:
        """`Backend.complete_many`."""
        return await _on_thread(self.backend.complete_many, claims)

    async def fail(
        self,
        claim: Claim,
        error: str | BaseException,
        *,
        retry_in: timedelta | None = None,
        permanent: bool = False,
    ) -> Verdict:
        """`Backend.fail`."""
        return await _on_thread(self.backend.fail, claim, error, retry_in=retry_in, permanent=permanent)

    async def fail_many(self, failures: Sequence[Failure]) -> list[Verdict]:
        """`Backend.fail_many`."""
        return await _on_thread(self.backend.fail_many, failures)

    async def extend(self, claim: Claim, lease: timedelta | None = None) -> Claim:
        """`Backend.extend`."""
        return await _on_thread(self.backend.extend, claim, lease)

    async def extend_many(self, claims: Sequence[Claim], lease: timedelta | None = None) -> list[Verdict]:
        """`Backend.extend_many`."""
        return await _on_thread(self.backend.extend_many, claims, lease)

    async def release(self, claims: Sequence[Claim], *, delay: timedelta = timedelta()) -> list[Verdict]:
        """`Backend.release`."""
        return await _on_thread(self.backend.release, claims, delay=delay)

    async def wait(
        self, queues: Sequence[str] = DEFAULT_QUEUES, timeout: timedelta = timedelta(seconds=1)
    ) -> bool:
        """`Backend.wait`. Cancelling it leaves the thread waiting until `timeout`."""
        return await _on_thread(self.backend.wait, queues, timeout)

    async def rescue(self, limit: int = 100) -> Rescued:
        """`Backend.rescue`."""
        return await _on_thread(self.backend.rescue, limit)

    async def get(self, job_id: UUID | str) -> JobStatus | None:
        """`Backend.get`."""
        return await _on_thread(self.backend.get, job_id)

    async def jobs(
        self,
        *,
        queue: str | None = None,
        state: State | None = None,
        kind: str | None = None,
        idempotency_key: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> list[JobStatus]:
        """`Backend.jobs`."""
        return await _on_thread(
            self.backend.jobs,
            queue=queue,
            state=state,
            kind=kind,
            idempotency_key=idempotency_key,
            limit=limit,
            cursor=cursor,
        )

    async def stats(self) -> list[QueueStats]:
        """`Backend.stats`."""
        return await _on_thread(self.backend.stats)

    async def cancel(self, job_id: UUID | str) -> State | None:
        """`Backend.cancel`."""
        return await _on_thread(self.backend.cancel, job_id)

    async def cancel_many(self, job_ids: Sequence[UUID | str]) -> list[State | None]:
        """`Backend.cancel_many`."""
        return await _on_thread(self.backend.cancel_many, job_ids)

    async def stop(self, job_id: UUID | str) -> State | None:
        """`Backend.stop`."""
        return await _on_thread(self.backend.stop, job_id)

    async def stop_many(self, job_ids: Sequence[UUID | str]) -> list[State | None]:
        """`Backend.stop_many`."""
        return await _on_thread(self.backend.stop_many, job_ids)

    async def requeue(self, job_id: UUID | str) -> State | None:
        """`Backend.requeue`."""
        return await _on_thread(self.backend.requeue, job_id)

    async def requeue_many(self, job_ids: Sequence[UUID | str]) -> list[State | None]:
        """`Backend.requeue_many`."""
        return await _on_thread(self.backend.requeue_many, job_ids)

    async def dead_jobs(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> list[JobStatus]:
        """`Backend.dead_jobs`."""
        return await _on_thread(self.backend.dead_jobs, queue=queue, kind=kind, limit=limit, cursor=cursor)

    async def revive_many(self, job_ids: Sequence[UUID | str]) -> list[State | None]:
        """`Backend.revive_many`."""
        return await _on_thread(self.backend.revive_many, job_ids)

    async def prune(
        self,
        older_than: timedelta,
        *,
        states: Collection[State] = FINISHED_STATES,
        limit: int = MAX_CLAIM_LIMIT,
    ) -> int:
        """`Backend.prune`."""
        return await _on_thread(self.backend.prune, older_than, states=states, limit=limit)

    async def pause(self, queue: str) -> None:
        """`Backend.pause`."""
        await _on_thread(self.backend.pause, queue)

    async def resume(self, queue: str) -> None:
        """`Backend.resume`."""
        await _on_thread(self.backend.resume, queue)

    async def read_notes(self, names: Sequence[str]) -> NotesRead:
        """`Backend.read_notes`."""
        return await _on_thread(self.backend.read_notes, names)

    async def write_note(self, name: str, text: str, *, expected: str | None) -> bool:
        """`Backend.write_note`."""
        return await _on_thread(self.backend.write_note, name, text, expected=expected)

    async def capabilities(self) -> Capabilities:
        """`Backend.capabilities`, as a method: it may contact the server."""
        return await _on_thread(lambda: self.backend.capabilities)

    async def install(self, *, dry_run: bool = False) -> list[Step]:
        """`Backend.install`."""
        return await _on_thread(self.backend.install, dry_run=dry_run)

    async def close(self) -> None:
        """`Backend.close`."""
        await _on_thread(self.backend.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _on_thread(
    verb: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
) -> Result:
    return await asyncio.to_thread(verb, *arguments, **options)

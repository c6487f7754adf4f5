"""What a Redis store can do beyond the verbs of `Driver`: look up, count, cancel, requeue, prune, pause,
diagnose, leave notes, install.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import cast

from jobcontract.contract import State
from jobcontract.errors import StoreError
from jobcontract.side_doors import Ailment, Expectations, NotesRead, Page, QueueStats, Step, StoredJob
from jobcontract_redis import diagnosis
from jobcontract_redis.bodies import instant, milliseconds, stored_job
from jobcontract_redis.namespace import Namespace
from jobcontract_redis.scripts import (
    CANCEL,
    GET,
    JOBS,
    PAUSE,
    PRUNE,
    READ_NOTES,
    REQUEUE,
    RESUME,
    STATS,
    WRITE_NOTE,
    Script,
)

_LOOKED_AT = 1000
"""How many jobs one script looks at for a page."""


class SideDoors:
    """A job is known by its queue and its id: a verb that names only the id asks every known queue."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    # -- Lookup --------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> StoredJob | None:
        queues = self._namespace.queues()
        calls = [self._namespace.call(queue, GET, self._namespace.prefix(queue), job_id) for queue in queues]
        for queue, found in zip(queues, self._namespace.link.run(calls) if calls else (), strict=True):
            if found is not None:
                return stored_job(queue, cast("list[bytes]", found))
        return None

    def jobs(self, page: Page) -> list[StoredJob]:
        queues = self._namespace.queues()
        if page.queue is not None:
            queues = [queue for queue in queues if queue == page.queue]
        found = [job for queue in queues for job in self._jobs_of(queue, page)]
        found.sort(key=lambda job: job.record.id, reverse=True)
        return found[: page.limit]

    def _jobs_of(self, queue: str, page: Page) -> list[StoredJob]:
        if page.idempotency_key is not None:
            return self._holder(queue, page, page.idempotency_key)
        deadline = time.monotonic() + self._namespace.options.timeout.total_seconds()
        found: list[StoredJob] = []
        below = (page.cursor or "").encode()
        while True:
            call = self._namespace.call(
                queue,
                JOBS,
                self._namespace.prefix(queue),
                below,
                page.state or "",
                page.kind or "",
                page.limit - len(found),
                _LOOKED_AT,
            )
            (answer,) = self._namespace.link.run([call])
            below, *rows = cast("list[bytes]", answer)
            found += [stored_job(queue, row) for row in cast("list[list[bytes]]", rows)]
            if not below or len(found) == page.limit:
                return found
            if time.monotonic() > deadline:
                raise StoreError(
                    f"too many jobs of queue {queue!r} lie before the next one that fits; "
                    "ask for another kind or state"
                )

    def _holder(self, queue: str, page: Page, key: str) -> list[StoredJob]:
        idem = self._namespace.key(queue, "idem")
        held = cast("bytes | None", self._namespace.link.command(idem, "HGET", idem, key))
        if held is None:
            return []
        job_id = held[:36].decode("ascii", "replace")
        call = self._namespace.call(queue, GET, self._namespace.prefix(queue), job_id)
        (answer,) = self._namespace.link.run([call])
        if answer is None:
            return []
        job = stored_job(queue, cast("list[bytes]", answer))
        fits = (
            (page.cursor is None or job.cursor < page.cursor)
            and (page.state is None or job.state is page.state)
            and (page.kind is None or job.record.kind == page.kind)
        )
        return [job] if fits else []

    # -- Statistics ----------------------------------------------------------------------------------------

    def stats(self) -> list[QueueStats]:
        queues = self._namespace.queues()
        answers = (
            self._namespace.link.run([self._namespace.call(queue, STATS) for queue in queues])
            if queues
            else []
        )
        rows = [
            _stats(queue, cast("list[int]", answer)) for queue, answer in zip(queues, answers, strict=True)
        ]
        return [row for row in rows if row is not None]

    # -- Cancellation, Requeue -----------------------------------------------------------------------------

    def cancel(self, job_ids: Sequence[str]) -> list[State | None]:
        return self._by_id(CANCEL, job_ids)

    def requeue(self, job_ids: Sequence[str]) -> list[State | None]:
        return self._by_id(REQUEUE, job_ids)

    def _by_id(self, script: Script, job_ids: Sequence[str]) -> list[State | None]:
        """Every queue is told of every id, and one of them knows it."""
        queues = self._namespace.queues()
        calls = [
            self._namespace.call(queue, script, self._namespace.prefix(queue), *job_ids) for queue in queues
        ]
        states: list[State | None] = [None] * len(job_ids)
        for answer in self._namespace.link.run(calls) if calls else ():
            for at, state in enumerate(cast("list[bytes]", answer)):
                if state:
                    states[at] = State(state.decode())
        return states

    # -- Pruning -------------------------------------------------------------------------------------------

    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int:
        forgotten = 0
        for queue in self._namespace.queues():
            for state in sorted(states):
                if forgotten < limit:
                    call = self._namespace.call(
                        queue,
                        PRUNE,
                        self._namespace.prefix(queue),
                        milliseconds(older_than),
                        limit - forgotten,
                        finished=state.value,
                    )
                    (count,) = self._namespace.link.run([call])
                    forgotten += cast(int, count)
        return forgotten

    # -- Pausing -------------------------------------------------------------------------------------------

    def pause(self, queue: str) -> None:
        link = self._namespace.contact()
        self._namespace.write_down([queue])
        link.run([self._namespace.call(queue, PAUSE)])

    def resume(self, queue: str) -> None:
        self._namespace.contact().run([self._namespace.call(queue, RESUME)])

    # -- Diagnosis -----------------------------------------------------------------------------------------

    def diagnose(self, expected: Expectations) -> list[Ailment]:
        return diagnosis.diagnose(self._namespace.link, self._namespace.options, expected)

    def clock(self) -> datetime:
        return diagnosis.clock(self._namespace.link)

    # -- Notes ---------------------------------------------------------------------------------------------

    def read_notes(self, names: Sequence[str]) -> NotesRead:
        (answer,) = self._namespace.contact().run([self._namespace.call("", READ_NOTES, *names)])
        now, *texts = cast("list[bytes]", answer)
        found = zip(names, texts, strict=True)
        return NotesRead(instant(int(now)), {name: text[1:].decode() for name, text in found if text})

    def write_note(self, name: str, text: str, expected: str | None) -> bool:
        words = (name, text) if expected is None else (name, text, expected)
        call = self._namespace.call("", WRITE_NOTE, *words)
        (answer,) = self._namespace.contact().run([call], replicas=self._namespace.options.wait_replicas)
        return bool(answer)

    # -- Installation --------------------------------------------------------------------------------------

    def install(self, *, dry_run: bool = False) -> list[Step]:
        return self._namespace.install(dry_run=dry_run)


def _stats(queue: str, answer: Sequence[int]) -> QueueStats | None:
    ready, scheduled, running, expired, dead, done, cancelled, oldest, paused = answer
    if not (ready or scheduled or running or dead or done or cancelled or paused):
        return None
    return QueueStats(
        queue=queue,
        ready=ready,
        scheduled=scheduled,
        running=running,
        expired=expired,
        dead=dead,
        done=done,
        cancelled=cancelled,
        oldest_ready=timedelta(milliseconds=oldest) if oldest >= 0 else None,
        paused=bool(paused),
    )

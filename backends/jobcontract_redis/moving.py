"""The side door `Movable`: jobs that leave for another store, and jobs that come from one.

The gate is kept twice: in a key of the namespace, which is the one that is asked, and in a key of each
queue, which is in the queue's slot and read by its scripts. The namespace's is set first, and refuses new
queues while it is shut; so those that were written down before are all there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast
from uuid import UUID

from jobcontract.contract import JobRecord, Registration, State
from jobcontract.errors import StoreError
from jobcontract.side_doors import Arrival, Gate, MovedJob
from jobcontract_redis.bodies import departed_job, moved_words
from jobcontract_redis.namespace import Namespace
from jobcontract_redis.scripts import (
    ADMIT,
    BURIED,
    BURY,
    FORGET_BURIED,
    GATE_SET,
    HIDDEN,
    HIDE,
    KEYED,
    RECALL,
    REVEAL,
    Script,
)

Item = TypeVar("Item")

_LOOKED_AT = 1000
_CHUNK = 200
"""The most jobs in one script that writes: a body is read and written by it, unlike by a claim."""


class MovingDoors:
    """`Gated`, `MovesOut` and `MovesIn`."""

    _namespace: Namespace

    # -- Gated -------------------------------------------------------------------------------------------

    def gate(self) -> Gate:
        """As `Gated.gate`."""
        return self._namespace.gate()

    def set_gate(self, gate: Gate) -> Gate:
        """As `Gated.set_gate`. When it returns, every queue has it."""
        found = self._set_gate("", gate)
        if found == gate:
            for queue in self._namespace.queues():
                self._set_gate(queue, gate)
        return found

    def open_registrations(self) -> frozenset[str]:
        """As `Gated.open_registrations`: none. A script runs from its beginning to its end."""
        return frozenset()

    # -- MovesOut ----------------------------------------------------------------------------------------

    def hide(self, epoch: int, limit: int) -> list[MovedJob]:
        """As `MovesOut.hide`, one queue after the other."""
        self._check(epoch)
        found: list[MovedJob] = []
        for queue in self._namespace.queues():
            while len(found) < limit:
                wanted = min(limit - len(found), _CHUNK)
                batch = self._step(epoch, queue, HIDE, wanted)
                found += [departed_job(queue, cast("list[bytes]", each)) for each in batch]
                if len(batch) < wanted:
                    break
        return found

    def hidden(self, limit: int) -> list[MovedJob]:
        """As `MovesOut.hidden`."""
        found: list[MovedJob] = []
        for queue in self._namespace.queues():
            if len(found) < limit:
                found += self._departed(queue, HIDDEN, limit - len(found))
        return found

    def reveal(self, epoch: int, limit: int) -> int:
        """As `MovesOut.reveal`."""
        return self._count(epoch, limit, REVEAL)

    def bury(self, epoch: int, job_ids: Sequence[str]) -> int:
        """As `MovesOut.bury`. A job is known by its queue too, which is looked for in all."""
        self._check(epoch)
        return sum(
            self._step_number(epoch, queue, BURY, *job_ids[start : start + _CHUNK])
            for queue in self._namespace.queues()
            for start in range(0, len(job_ids), _CHUNK)
        )

    def buried(self, below: str, limit: int) -> list[MovedJob]:
        """As `MovesOut.buried`."""
        pages = [self._departed(queue, BURIED, below, limit) for queue in self._namespace.queues()]
        return list(heapq.merge(*pages, key=_id_of, reverse=True))[:limit]

    def keyed(self, after: str, limit: int) -> list[MovedJob]:
        """As `MovesOut.keyed`."""
        pages = [list(self._keyed(queue, after, limit)) for queue in self._namespace.queues()]
        return list(heapq.merge(*pages, key=_id_of))[:limit]

    def recall(self, records: Sequence[JobRecord]) -> list[Registration | None]:
        """As `MovesOut.recall`."""
        answers: list[Registration | None] = [None] * len(records)
        for queue, places in _by_queue(records, lambda record: record.queue).items():
            for start in range(0, len(places), _CHUNK):
                chunk = places[start : start + _CHUNK]
                words = [word for at in chunk for word in _key_words(records[at])]
                for at, found in zip(
                    chunk, cast("list[bytes]", self._run(queue, RECALL, *words)), strict=True
                ):
                    if found:
                        job_id, state, conflict = found.decode().split(" ")
                        answers[at] = Registration(UUID(job_id), False, State(state), conflict == "1")
        return answers

    def forget_buried(self, epoch: int, limit: int) -> int:
        """As `MovesOut.forget_buried`."""
        return self._count(epoch, limit, FORGET_BURIED)

    # -- MovesIn -----------------------------------------------------------------------------------------

    def admit(self, epoch: int, jobs: Sequence[MovedJob]) -> list[Arrival]:
        """As `MovesIn.admit`."""
        gate = self._check(epoch)
        by_queue = _by_queue(jobs, lambda job: job.record.queue)
        for queue in self._namespace.write_down_for_a_move(by_queue):
            self._set_gate(queue, gate)
        arrivals: list[Arrival] = [Arrival(stored=False)] * len(jobs)
        for queue, places in by_queue.items():
            for start in range(0, len(places), _CHUNK):
                chunk = places[start : start + _CHUNK]
                words = [word for at in chunk for word in moved_words(jobs[at])]
                answers = cast("list[bytes]", self._step(epoch, queue, ADMIT, *words))
                for at, answer in zip(chunk, answers, strict=True):
                    stored, holder = answer.decode().split(" ")
                    arrivals[at] = Arrival(stored == "1", None if holder == "-" else holder)
        return arrivals

    # -- How ---------------------------------------------------------------------------------------------

    def _run(self, queue: str, script: Script, *arguments: object) -> object:
        call = self._namespace.call(queue, script, self._namespace.prefix(queue), *arguments)
        return self._namespace.contact().run([call], replicas=self._namespace.options.wait_replicas)[0]

    def _step(self, epoch: int, queue: str, script: Script, *arguments: object) -> list[object]:
        """A script of the step `epoch` that answers with a list."""
        return cast("list[object]", self._checked(epoch, queue, script, arguments))

    def _step_number(self, epoch: int, queue: str, script: Script, *arguments: object) -> int:
        return cast(int, self._checked(epoch, queue, script, arguments))

    def _count(self, epoch: int, limit: int, script: Script) -> int:
        self._check(epoch)
        count = 0
        for queue in self._namespace.queues():
            if count < limit:
                count += self._step_number(epoch, queue, script, min(limit - count, _CHUNK))
        return count

    def _departed(self, queue: str, script: Script, *arguments: object) -> list[MovedJob]:
        found = cast("list[list[bytes]]", self._run(queue, script, *arguments))
        return [departed_job(queue, each) for each in found]

    def _keyed(self, queue: str, after: str, limit: int) -> Iterator[MovedJob]:
        while True:
            go_on, *found = cast("list[bytes]", self._run(queue, KEYED, after, _LOOKED_AT))
            for each in found:
                yield departed_job(queue, cast("list[bytes]", each))
            limit -= len(found)
            after = go_on.decode()
            if not after or limit <= 0:
                return

    def _set_gate(self, queue: str, gate: Gate) -> Gate:
        call = self._namespace.call(queue, GATE_SET, gate.epoch, int(gate.intake), int(gate.claims))
        epoch, intake, claims = cast("list[bytes]", self._namespace.contact().run([call])[0])
        return Gate(int(epoch), intake=intake == b"1", claims=claims == b"1")

    def _check(self, epoch: int) -> Gate:
        gate = self.gate()
        if gate.epoch != epoch:
            raise _over(epoch, gate.epoch)
        return gate

    def _checked(self, epoch: int, queue: str, script: Script, arguments: Sequence[object]) -> object:
        answer = self._run(queue, script, epoch, *arguments)
        if answer == -1:
            # Or the queue is younger than the step, and has no gate of its own yet.
            self._set_gate(queue, self._check(epoch))
            answer = self._run(queue, script, epoch, *arguments)
        if answer == -1:
            raise _over(epoch, self.gate().epoch)
        return answer


def _over(epoch: int, now: int) -> StoreError:
    return StoreError(
        f"step {epoch} of the migration is over: this store is at step {now}, and nothing was changed"
    )


def _id_of(job: MovedJob) -> str:
    return job.record.id


def _key_words(record: JobRecord) -> tuple[object, ...]:
    return record.id, record.idempotency_key or "", record.fingerprint or b""


def _by_queue(items: Sequence[Item], queue_of: Callable[[Item], str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for at, item in enumerate(items):
        places.setdefault(queue_of(item), []).append(at)
    return places

"""The Redis driver: the verbs of the contract, each one script on each queue it concerns."""

from __future__ import annotations

import heapq
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import islice, zip_longest
from typing import TypeVar, cast
from uuid import UUID

from jobcontract.contract import (
    LOST,
    Capabilities,
    ClaimedRecord,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    State,
    Verdict,
)
from jobcontract.errors import StoreClosed, StoreError, StoreUnavailable
from jobcontract_redis.bodies import claimed_record, instant, milliseconds, registration_words
from jobcontract_redis.doors import SideDoors
from jobcontract_redis.link import Call
from jobcontract_redis.moving import MovingDoors
from jobcontract_redis.namespace import SHUT_CLAIMS, SHUT_INTAKE, Namespace
from jobcontract_redis.pool import Reply
from jobcontract_redis.scripts import (
    CLAIM,
    COMPLETE,
    DUE,
    EXTEND,
    FAIL,
    PRUNE,
    REGISTER,
    RELEASE,
    REPAIR,
    RESCUE,
)
from jobcontract_redis.server import capabilities_from
from jobcontract_redis.waiting import Waiter

Item = TypeVar("Item")

_CHUNK = 500
"""The most jobs in one script: some 20 ms in which the server does nothing else."""
_CHUNK_BYTES = 4 * 1024 * 1024
_REPAIRS = 100
"""How many jobs of each queue one call of rescue looks at."""


class RedisDriver(SideDoors, MovingDoors):
    """Jobs in one namespace of a Redis, Valkey, Sentinel group or cluster. Made by `open_driver`."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(namespace)
        self._waiter = Waiter(namespace)
        self._capabilities: Capabilities | None = None

    @property
    def capabilities(self) -> Capabilities:
        found = self._capabilities
        if found is None:
            found = capabilities_from(self._namespace.facts(), self._namespace.options, self)
            self._capabilities = found
        return found

    @property
    def location(self) -> str:
        """As `Located.location`."""
        return self._namespace.location

    # -- Producing -----------------------------------------------------------------------------------------

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        link = self._namespace.contact()
        by_queue = _by_queue([record.queue for record in records])
        self._namespace.write_down(by_queue)
        answers: list[Registration | None] = [None] * len(records)
        # The chunks of one queue go one after the other: of two jobs with one key, the first must win.
        for chunks in zip_longest(*(_chunks(positions, records) for positions in by_queue.values())):
            sent = {queue: chunk for queue, chunk in zip(by_queue, chunks, strict=True) if chunk}
            calls = [
                self._registration(queue, [records[at] for at in chunk]) for queue, chunk in sent.items()
            ]
            found = link.run(calls, replicas=self._namespace.options.wait_replicas)
            for chunk, replies in zip(sent.values(), found, strict=True):
                for at, answer in zip(chunk, cast("list[Reply]", replies), strict=True):
                    answers[at] = _registration(records[at], answer)
        if None in answers:
            raise StoreClosed(SHUT_INTAKE)
        return cast("list[Registration]", answers)

    # -- Running -------------------------------------------------------------------------------------------

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        link = self._namespace.contact()
        nonce = secrets.token_hex(16)
        shares = self._shares(queues, limit) if len(queues) > 1 else {queues[0]: limit}
        calls = [
            self._namespace.call(
                queue, CLAIM, self._namespace.prefix(queue), share, milliseconds(lease), f"{nonce}:{number}"
            )
            for number, (queue, share) in enumerate(shares.items())
        ]
        if not calls:
            return []
        claimed: list[ClaimedRecord] = []
        errors: list[StoreError] = []
        answers = link.try_run(calls, replicas=self._namespace.options.wait_replicas)
        for (queue, _), call, answer in zip(shares.items(), calls, answers, strict=True):
            if isinstance(answer, StoreError):
                errors.append(answer)
                continue
            expires, *found = cast("list[bytes]", answer)
            if int(expires) < 0:
                errors.append(StoreClosed(SHUT_CLAIMS))
                continue
            expires_at = instant(int(expires))
            token = cast(str, call.arguments[3])
            claimed += [
                claimed_record(queue, job, f"{token}:{number}", expires_at)
                for number, job in enumerate(found, start=1)
            ]
        if errors and not claimed:  # of a cluster, what the healthy nodes gave must not run into its expiry
            raise errors[0]
        if len(calls) > 1:
            claimed.sort(key=_order)
        return claimed

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        keep = milliseconds(self._namespace.options.retention)
        answers = self._settle(
            leases,
            leases,
            lambda queue, words: self._namespace.call(
                queue, COMPLETE, self._namespace.prefix(queue), keep, *words
            ),
            lambda lease: (lease.job_id, lease.token),
        )
        return [_DONE if answer else LOST for answer in answers]

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        answers = self._settle(
            failures,
            [failure.lease for failure in failures],
            lambda queue, words: self._namespace.call(queue, FAIL, self._namespace.prefix(queue), *words),
            lambda failure: (
                failure.lease.job_id,
                failure.lease.token,
                failure.error,
                milliseconds(failure.retry_in),
                1 if failure.permanent else 0,
            ),
        )
        return [_verdict(answer, State.READY) for answer in answers]

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        answers = self._settle(
            leases,
            leases,
            lambda queue, words: self._namespace.call(queue, EXTEND, milliseconds(lease), *words),
            lambda held: (held.job_id, held.token),
        )
        return [_verdict(answer, State.RUNNING) for answer in answers]

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        answers = self._settle(
            leases,
            leases,
            lambda queue, words: self._namespace.call(
                queue, RELEASE, self._namespace.prefix(queue), milliseconds(delay), *words
            ),
            lambda held: (held.job_id, held.token),
        )
        return [_verdict(answer, State.READY) for answer in answers]

    def rescue(self, limit: int) -> Rescued:
        queues = self._namespace.queues()
        if not queues:
            return Rescued(0, 0)
        # It begins anywhere, so that no queue waits for ever behind a busy one or a node that is down; and a
        # queue whose keys are spoilt does not keep the others from being rescued.
        turn = random.randrange(len(queues))
        ready = dead = 0
        spoilt: StoreError | None = None
        for queue in queues[turn:] + queues[:turn]:
            try:
                moved, died = self._rescue(queue, limit - ready - dead)
            except StoreUnavailable:
                raise
            except StoreError as error:
                spoilt = error
            else:
                ready, dead = ready + moved, dead + died
        if spoilt is not None:
            raise spoilt
        self._drop_outdated(queues, limit)
        return Rescued(ready, dead)

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        return self._waiter.wait(queues, timeout)

    def close(self) -> None:
        self._waiter.close()
        self._namespace.link.close()

    # -- How -----------------------------------------------------------------------------------------------

    def _registration(self, queue: str, records: Sequence[JobRecord]) -> Call:
        words = [word for record in records for word in registration_words(record)]
        return self._namespace.call(queue, REGISTER, self._namespace.prefix(queue), *words)

    def _rescue(self, queue: str, limit: int) -> Rescued:
        """Expired leases of one queue, at most `limit`, and what else is found to be broken."""
        prefix = self._namespace.prefix(queue)
        calls = [self._namespace.call(queue, REPAIR, prefix, _REPAIRS)]
        if limit > 0:
            calls.append(self._namespace.call(queue, RESCUE, prefix, limit))
        found = [Rescued(*cast("list[int]", answer)) for answer in self._namespace.link.run(calls)]
        return Rescued(sum(each.ready for each in found), sum(each.dead for each in found))

    def _shares(self, queues: Sequence[str], limit: int) -> dict[str, int]:
        """How many jobs to claim from each queue, so that together they are the best `limit` due ones."""
        calls = [self._namespace.call(queue, DUE, limit) for queue in queues]
        answers = self._namespace.link.try_run(calls)
        errors = [answer for answer in answers if isinstance(answer, StoreError)]
        if len(errors) == len(answers):
            raise errors[0]
        scores = [
            [(score, queue) for score in cast("list[int]", answer)[1:]]
            for queue, answer in zip(queues, answers, strict=True)
            if not isinstance(answer, StoreError)
        ]
        shares: dict[str, int] = {}
        for _, queue in islice(heapq.merge(*scores), limit):
            shares[queue] = shares.get(queue, 0) + 1
        return shares

    def _settle(
        self,
        items: Sequence[Item],
        leases: Sequence[Lease],
        call: Callable[[str, list[object]], Call],
        words_of: Callable[[Item], tuple[object, ...]],
    ) -> list[int]:
        """One script for each chunk of each queue, all in one round trip; the answers in the order of the
        items.
        """
        link = self._namespace.contact()
        calls: list[Call] = []
        places: list[Sequence[int]] = []
        for queue, positions in _by_queue([lease.queue for lease in leases]).items():
            for start in range(0, len(positions), _CHUNK):
                chunk = positions[start : start + _CHUNK]
                calls.append(call(queue, [word for at in chunk for word in words_of(items[at])]))
                places.append(chunk)
        answers = [0] * len(items)
        for place, found in zip(places, link.run(calls), strict=True):
            for at, answer in zip(place, cast("list[int]", found), strict=True):
                answers[at] = answer
        return answers

    def _drop_outdated(self, queues: Sequence[str], limit: int) -> None:
        retention = milliseconds(self._namespace.options.retention)
        if retention:
            self._namespace.link.run(
                [
                    self._namespace.call(
                        queue, PRUNE, self._namespace.prefix(queue), retention, limit, finished=state.value
                    )
                    for queue in queues
                    for state in (State.DONE, State.CANCELLED)
                ]
            )


_DONE = Verdict(applied=True, state=State.DONE)


def _verdict(answer: int, state: State) -> Verdict:
    """0 is a lost lease, -1 a dead job, anything else the instant in ms that belongs to `state`."""
    if answer == 0:
        return LOST
    return Verdict(True, State.DEAD) if answer < 0 else Verdict(True, state, instant(answer))


def _registration(record: JobRecord, answer: Reply) -> Registration | None:
    if answer == 0:  # the store is shut
        return None
    if answer == 1:
        return Registration(UUID(record.id), created=True)
    job_id, state, conflict = cast(bytes, answer).decode().split(" ")
    return Registration(UUID(job_id), created=False, state=State(state), conflict=conflict == "1")


def _order(claimed: ClaimedRecord) -> tuple[int, float, str]:
    record = claimed.record
    return -record.priority, record.run_at.timestamp() if record.run_at else 0.0, record.id


def _by_queue(queues: Sequence[str]) -> dict[str, Sequence[int]]:
    """For each of `queues`, where it stands among them."""
    distinct = set(queues)
    if len(distinct) == 1:
        return {queues[0]: range(len(queues))}
    places: dict[str, list[int]] = {queue: [] for queue in dict.fromkeys(queues)}
    for at, queue in enumerate(queues):
        places[queue].append(at)
    return dict[str, Sequence[int]](places)


def _chunks(positions: Sequence[int], records: Sequence[JobRecord]) -> Iterator[Sequence[int]]:
    """`positions` in pieces that one script takes: bounded in number and in bytes, one job at least."""
    chunk: list[int] = []
    size = 0
    for at in positions:
        length = len(records[at].input_ref)
        if chunk and (len(chunk) == _CHUNK or size + length > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(at)
        size += length
    yield chunk

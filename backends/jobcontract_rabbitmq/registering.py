"""Registration: what is confirmed is stored, and is not sent again when the caller repeats himself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import overload

from jobcontract.contract import JobRecord
from jobcontract.errors import StoreError
from jobcontract_rabbitmq.message import Message, first_message
from jobcontract_rabbitmq.problems import Problems
from jobcontract_rabbitmq.publisher import Outcome, Published, Publisher
from jobcontract_rabbitmq.topology import Address, Topology

_MOST_REMEMBERED = 100_000

Create = Callable[[Iterable[str]], Awaitable[None]]
"""Makes the queues of these names."""


class Registering:
    """The producing half of a driver. Belongs to the driver's loop."""

    def __init__(
        self, publisher: Publisher, topology: Topology, problems: Problems, create: Create | None
    ) -> None:
        """`create` is asked for a queue that is missing; None refuses its jobs."""
        self._publisher = publisher
        self._topology = topology
        self._problems = problems
        self._create = create
        self._confirmed: dict[str, None] = {}
        """Jobs that are stored although their registration failed, for the sake of others; oldest first."""

    async def register(self, records: Sequence[JobRecord], until: float) -> frozenset[str]:
        """Publish; the ids of those that were stored before.

        Raises `StoreError`, which says what was stored and what was refused, unless everything is stored.
        """
        known = frozenset(record.id for record in records if record.id in self._confirmed)
        if known:
            records = [record for record in records if record.id not in known]
        published = await self._publish(records, until)
        if self._create is not None and Outcome.UNROUTABLE in published.outcomes:
            published = await self._publish_to_new_queues(self._create, records, published, until)
        try:
            self._check(records, published)
        except StoreError as error:
            error.stored = known | _ids(records, published, Outcome.CONFIRMED)
            error.refused = _ids(records, published, Outcome.UNROUTABLE, Outcome.REFUSED)
            self._remember(error.stored)
            raise
        for job_id in known:
            self._confirmed.pop(job_id, None)
        return known

    async def _publish(self, records: Sequence[JobRecord], until: float) -> Published:
        if not records:
            return Published([])
        return await self._publisher.publish(_Messages(records, self._topology), until)

    async def _publish_to_new_queues(
        self, create: Create, records: Sequence[JobRecord], published: Published, until: float
    ) -> Published:
        missing = _with(records, published, Outcome.UNROUTABLE)
        await create(dict.fromkeys(record.queue for record in missing))
        again = await self._publish(missing, until)
        repeated = iter(again.outcomes)
        outcomes = [
            next(repeated) if outcome is Outcome.UNROUTABLE else outcome for outcome in published.outcomes
        ]
        return Published(outcomes, again.reason or published.reason, again.code or published.code)

    def _check(self, records: Sequence[JobRecord], published: Published) -> None:
        unroutable = _with(records, published, Outcome.UNROUTABLE)
        if unroutable:
            queues = sorted({record.queue for record in unroutable})
            stored = len(_with(records, published, Outcome.CONFIRMED))
            raise self._problems.no_queue(queues, stored, len(records))
        self._problems.check(published, "jobs")

    def _remember(self, stored: Iterable[str]) -> None:
        """The caller may register all of them again, and what is stored must not be stored twice."""
        self._confirmed.update(dict.fromkeys(stored))
        while len(self._confirmed) > _MOST_REMEMBERED:
            del self._confirmed[next(iter(self._confirmed))]


class _Messages(Sequence[Message]):
    """The messages of records, made when they are asked for: while the server takes the ones, we make the
    others.
    """

    def __init__(self, records: Sequence[JobRecord], topology: Topology) -> None:
        self._records = records
        self._topology = topology
        self._now = datetime.now(UTC)

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self._message(record) for record in self._records[index]]
        return self._message(self._records[index])

    def _message(self, record: JobRecord) -> Message:
        route = self._topology.to_ready(Address(record.queue, record.priority))
        return first_message(record, route, self._now)


def _with(records: Sequence[JobRecord], published: Published, outcome: Outcome) -> list[JobRecord]:
    return [record for record, found in zip(records, published.outcomes, strict=True) if found is outcome]


def _ids(records: Sequence[JobRecord], published: Published, *outcomes: Outcome) -> frozenset[str]:
    return frozenset(record.id for each in outcomes for record in _with(records, published, each))

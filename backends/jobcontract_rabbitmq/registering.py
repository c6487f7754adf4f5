"""Registration: what is confirmed is stored, and is not sent again when the caller repeats himself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime

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
    """The producing half of a driver. Its coroutine belongs to the driver's loop."""

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

    def messages(self, records: Sequence[JobRecord]) -> list[Message]:
        """One for each. In the caller's thread, for it takes its time."""
        now = datetime.now(UTC)
        return [
            first_message(record, self._topology.to_ready(Address(record.queue, record.priority)), now)
            for record in records
        ]

    async def register(
        self, records: Sequence[JobRecord], messages: Sequence[Message], until: float
    ) -> frozenset[str]:
        """Publish `messages`, which are those of `records`; the ids of those that were stored before.

        Raises `StoreError`, which says what was stored and what was refused, unless everything is stored.
        """
        known = frozenset(record.id for record in records if record.id in self._confirmed)
        if known:
            messages = [message for message in messages if message.properties.message_id not in known]
        published = await self._publish(messages, until)
        if self._create is not None and Outcome.UNROUTABLE in published.outcomes:
            published = await self._publish_to_new_queues(self._create, records, messages, published, until)
        try:
            self._check(records, messages, published)
        except StoreError as error:
            error.stored = known | _ids(messages, published, Outcome.CONFIRMED)
            error.refused = _ids(messages, published, Outcome.UNROUTABLE, Outcome.REFUSED)
            self._remember(error.stored)
            raise
        for job_id in known:
            self._confirmed.pop(job_id, None)
        return known

    async def _publish(self, messages: Sequence[Message], until: float) -> Published:
        return await self._publisher.publish(messages, until) if messages else Published([])

    async def _publish_to_new_queues(
        self,
        create: Create,
        records: Sequence[JobRecord],
        messages: Sequence[Message],
        published: Published,
        until: float,
    ) -> Published:
        missing = [
            message
            for message, outcome in zip(messages, published.outcomes, strict=True)
            if outcome is Outcome.UNROUTABLE
        ]
        ids = _ids(messages, published, Outcome.UNROUTABLE)
        await create(dict.fromkeys(record.queue for record in records if record.id in ids))
        again = await self._publish(missing, until)
        repeated = iter(again.outcomes)
        outcomes = [
            next(repeated) if outcome is Outcome.UNROUTABLE else outcome for outcome in published.outcomes
        ]
        return Published(outcomes, again.reason or published.reason, again.code or published.code)

    def _check(self, records: Sequence[JobRecord], messages: Sequence[Message], published: Published) -> None:
        unroutable = _ids(messages, published, Outcome.UNROUTABLE)
        if unroutable:
            queues = sorted({record.queue for record in records if record.id in unroutable})
            stored = len(_ids(messages, published, Outcome.CONFIRMED))
            raise self._problems.no_queue(queues, stored, len(messages))
        self._problems.check(published, "jobs")

    def _remember(self, stored: Iterable[str]) -> None:
        """The caller may register all of them again, and what is stored must not be stored twice."""
        self._confirmed.update(dict.fromkeys(stored))
        while len(self._confirmed) > _MOST_REMEMBERED:
            del self._confirmed[next(iter(self._confirmed))]


def _ids(messages: Sequence[Message], published: Published, *outcomes: Outcome) -> frozenset[str]:
    """The jobs with one of these outcomes."""
    return frozenset(
        message.properties.message_id
        for message, outcome in zip(messages, published.outcomes, strict=True)
        if outcome in outcomes
    )

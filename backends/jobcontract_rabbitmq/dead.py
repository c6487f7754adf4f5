"""The dead jobs: read by consuming all of them and acknowledging none, sent back by publishing first.

A queue can't be searched, so each call reads it from its head to where it ended when the call began, on a
channel of its own. What was not acknowledged is put back where it was, at the latest by the end of the
channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from uuid import UUID

from jobcontract.contract import JobRecord, State
from jobcontract.side_doors import Page, StoredJob
from jobcontract_rabbitmq.amqp import NOT_FOUND, Channel, ChannelClosed, ConnectionLost
from jobcontract_rabbitmq.link import Link
from jobcontract_rabbitmq.message import Message, Reading, read
from jobcontract_rabbitmq.publisher import Outcome, Published, Publisher
from jobcontract_rabbitmq.topology import Address, Topology

_MOST_CREDIT = 65_535
"""AMQP counts a consumer's credit in two bytes."""
_PUTTING_BACK = 1.0
"""Seconds that the server has for what was read to be in its queue again."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Dead:
    """One dead job, as its queue holds it."""

    queue: str
    tag: int
    body: bytes
    reading: Reading

    @property
    def record(self) -> JobRecord:
        return self.reading.record


Look = Callable[[_Dead], bool]
"""Given a dead job; whether enough was seen."""


class DeadJobs:
    """Those of the queues in the settings. Belongs to the driver's loop."""

    def __init__(self, link: Link, publisher: Publisher, topology: Topology, queues: Sequence[str]) -> None:
        self._link = link
        self._publisher = publisher
        self._topology = topology
        self._queues = queues

    async def page(self, page: Page) -> list[StoredJob]:
        """The newest that fit."""
        newest: list[_Dead] = []

        def look(dead: _Dead) -> bool:
            if page.kind in (None, dead.record.kind) and (
                page.cursor is None or dead.record.id < page.cursor
            ):
                newest.append(dead)
                if len(newest) > 2 * page.limit:
                    _keep_newest(newest, page.limit)
            return False

        for queue in self._queues if page.queue is None else [page.queue]:
            async with _Reader(self._link, self._topology.dead_queue(queue)) as reader:
                await reader.read(queue, look)
        _keep_newest(newest, page.limit)
        return [_stored(dead) for dead in newest]

    async def revive(self, job_ids: Iterable[str], until: float) -> tuple[set[str], Published]:
        """Which of `job_ids` were dead and are ready now."""
        left = set(job_ids)
        revived: set[str] = set()
        all_outcomes: list[Outcome] = []
        failed = Published([])
        for queue in self._queues:
            found: list[_Dead] = []

            def look(dead: _Dead, found: list[_Dead] = found) -> bool:
                if dead.record.id in left:
                    left.discard(dead.record.id)
                    found.append(dead)
                return not left

            if not left:
                break
            async with _Reader(self._link, self._topology.dead_queue(queue)) as reader:
                await reader.read(queue, look)
                if not found:
                    continue
                published = await self._publisher.publish([self._again(dead) for dead in found], until)
                for dead, outcome in zip(found, published.outcomes, strict=True):
                    if outcome is Outcome.CONFIRMED:
                        reader.settle(dead)
                        revived.add(dead.record.id)
                await reader.barrier()
            all_outcomes += published.outcomes
            failed = published if published.reason else failed
        return revived, Published(all_outcomes, failed.reason, failed.code)

    def _again(self, dead: _Dead) -> Message:
        """With every attempt so far given back, and due now."""
        level = dead.record.priority if dead.record.priority in range(self._topology.levels) else 0
        history = dead.reading.history._replace(
            refunded=dead.reading.history.attempts,
            run_at=datetime.now(UTC),
            died_at=None,
        )
        return dead.reading.again(self._topology.to_ready(Address(dead.queue, level)), history, dead.body)


class _Reader:
    """Reads a queue on a channel of its own. What was not settled is there again when the block ends."""

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._name = name
        self._channel: Channel
        self._consumers: list[str] = []
        self._unsettled = 0
        self._last_tag = 0

    async def __aenter__(self) -> _Reader:
        self._channel = await (await self._link.connect()).channel()
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ChannelClosed, ConnectionLost):
            await self._put_back()
            await self._channel.close()

    async def read(self, queue: str, look: Look) -> None:
        """Show `look` each message that is there now, until it has seen enough. A missing queue is empty."""
        try:
            left = await self._channel.count_ready(self._name)
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise
            return
        over = asyncio.Event()

        def arrived(tag: int, headers: Mapping[str, object], message_id: str | None, body: bytes) -> None:
            nonlocal left
            self._unsettled, self._last_tag, left = self._unsettled + 1, tag, left - 1
            if over.is_set():
                return
            # How often it was delivered here says nothing: that was looking.
            known = {name: value for name, value in headers.items() if name != "x-delivery-count"}
            if look(_Dead(queue, tag, body, read(body, known, message_id, queue))) or left <= 0:
                over.set()

        for credit in _credits(left):
            self._consumers.append(token_hex(8))
            await self._channel.consume(self._name, self._consumers[-1], credit, arrived)
        # Whoever reads at the same time has what does not come here.
        while not over.is_set() and self._consumers and await self._channel.count_ready(self._name):
            await self._channel.barrier()
        await self._channel.barrier()

    def settle(self, dead: _Dead) -> None:
        """It is somewhere else now."""
        self._channel.ack(dead.tag)
        self._unsettled -= 1

    async def barrier(self) -> None:
        """Until the server has taken what was settled."""
        await self._channel.barrier()

    async def _put_back(self) -> None:
        """And wait for it, or the next reader would find the queue empty."""
        for tag in self._consumers:
            await self._channel.cancel(tag)
        await self._channel.barrier()
        if self._unsettled:
            self._channel.nack(self._last_tag, multiple=True)
            until = asyncio.get_running_loop().time() + _PUTTING_BACK
            while await self._channel.count_ready(self._name) < self._unsettled:
                if asyncio.get_running_loop().time() > until:
                    return  # somebody else has them


def _credits(count: int) -> list[int]:
    return [min(_MOST_CREDIT, count - start) for start in range(0, count, _MOST_CREDIT)]


def _keep_newest(dead: list[_Dead], count: int) -> None:
    dead.sort(key=lambda each: each.record.id, reverse=True)
    del dead[count:]


def _stored(dead: _Dead) -> StoredJob:
    history = dead.reading.history
    return StoredJob(
        record=dead.record,
        state=State.DEAD,
        attempt=history.attempts,
        created_at=history.created_at or created_at(dead.record.id),
        finished_at=history.died_at,
        lease_expires_at=None,
        last_error=history.error,
        cursor=dead.record.id,
    )


def created_at(job_id: str) -> datetime:
    """The instant in a UUIDv7, which is when the producer made the job."""
    identifier = UUID(job_id)
    return _EPOCH + timedelta(milliseconds=identifier.int >> 80 if identifier.version == 7 else 0)

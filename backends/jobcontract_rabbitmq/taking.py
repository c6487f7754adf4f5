"""What a mover holds: messages out of every queue of an installation, on a channel of its own.

They are not settled until they are elsewhere, so that whatever ends the channel puts them back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import NamedTuple

from jobcontract.contract import State
from jobcontract.records import Undecodable, decode
from jobcontract.side_doors import MovedJob, TakenCopy
from jobcontract_rabbitmq.amqp import NOT_FOUND, Channel, ChannelClosed
from jobcontract_rabbitmq.dead import created_at
from jobcontract_rabbitmq.link import Link
from jobcontract_rabbitmq.message import Reading, is_filler, read
from jobcontract_rabbitmq.tap import MOST_FILLERS, Fill
from jobcontract_rabbitmq.topology import DELAY_BITS, Address, Topology

_MOST_LOOKS = 20
"""How often to look for what is on its way."""


class _Place(NamedTuple):
    """A queue that jobs can be in."""

    name: str
    state: State
    address: Address | None = None
    """Where others take from it too."""


class Taking:
    """`CarriesCopies.take`. Belongs to the driver's loop."""

    def __init__(self, link: Link, topology: Topology, queues: Sequence[str], fill: Fill) -> None:
        self._link = link
        self._fill = fill
        self._topology = topology
        self._queues = queues
        self._busy = asyncio.Lock()
        self._holding: Channel | None = None
        self._looking: Channel | None = None
        self._epoch = ""
        self._held: set[int] = set()

    async def take(self, queues: Iterable[str], limit: int) -> list[TakenCopy]:
        """At most `limit`, ready ones first."""
        found: list[TakenCopy] = []
        async with self._busy:
            channel = await self._open()
            for place in self._places(dict.fromkeys((*self._queues, *queues))):
                while len(found) < limit and (ready := await self._count_ready(place.name)):
                    taken = await self._consume(channel, place, min(ready, limit - len(found)))
                    if taken is None:
                        break  # somebody else was faster
                    found += taken
                if len(found) >= limit:
                    break
        return found

    async def drop(self, tokens: Sequence[str]) -> int:
        """Acknowledge those of the present channel."""
        async with self._busy:
            parts = [token.partition(".") for token in tokens]
            tags = [int(tag) for epoch, _, tag in parts if epoch == self._epoch]
            held = [tag for tag in tags if tag in self._held]
            channel = self._holding
            if channel is None or not held:
                return 0
            for tag in held:
                channel.ack(tag)
            await channel.barrier()
            self._held.difference_update(held)
            return len(held)

    def _places(self, queues: Iterable[str]) -> Iterator[_Place]:
        queues = list(queues)
        for queue in queues:
            for address in self._topology.addresses(queue):
                yield _Place(self._topology.ready_queue(address), State.READY, address)
        for bit in range(DELAY_BITS):
            yield _Place(self._topology.delay(bit), State.READY)
        for queue in queues:
            yield _Place(self._topology.dead_queue(queue), State.DEAD)

    async def _consume(self, channel: Channel, place: _Place, count: int) -> list[TakenCopy] | None:
        """The jobs in `count` messages at `place`, or in what of them came; None when none came. Those that
        hold no job are kept until the channel ends, so that they are not seen again.
        """
        found: list[TakenCopy] = []
        fillers: list[int] = []
        arrived = 0
        arrived_all = asyncio.Event()

        def take(tag: int, headers: Mapping[str, object], message_id: str | None, body: bytes) -> None:
            nonlocal arrived
            arrived += 1
            if arrived >= count:
                arrived_all.set()
            if is_filler(headers, body):
                fillers.append(tag)
                return
            if place.address is None:  # nobody runs jobs out of there, however often they were delivered
                headers = {name: value for name, value in headers.items() if name != "x-delivery-count"}
            reading = read(body, headers, message_id, "")
            with suppress(Undecodable):
                decode(reading.record)
                self._held.add(tag)
                found.append(_taken(f"{self._epoch}.{tag}", place.state, reading))

        consumer = token_hex(8)
        await channel.consume(place.name, consumer, count, take)
        for look in range(_MOST_LOOKS):
            # The queue answers before it delivers, and it answers what is asked later after that.
            ready = await self._count_ready(place.name)
            await channel.barrier()
            if arrived_all.is_set():
                break
            if ready:
                continue
            if place.address is None:
                break
            # Somebody else was faster. What comes now must not meet a consumer that is being cancelled: see
            # `jobcontract_rabbitmq.tap`.
            if not await self._fill(place.address, min((count - arrived) << look, MOST_FILLERS)):
                break
        await channel.cancel(consumer)
        await channel.barrier()
        for tag in fillers:
            channel.ack(tag)
        return found if arrived else None

    async def _count_ready(self, name: str) -> int:
        """On another channel, which a queue that is missing closes."""
        connection = await self._link.connect()
        looking = self._looking
        if looking is None or looking.closed is not None or looking.connection is not connection:
            looking = self._looking = await connection.channel()
        try:
            return await looking.count_ready(name)
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise
            return 0

    async def _open(self) -> Channel:
        connection = await self._link.connect()
        channel = self._holding
        if channel is None or channel.closed is not None or channel.connection is not connection:
            channel = self._holding = await connection.channel()
            self._epoch = token_hex(8)
            self._held.clear()
        return channel


def _taken(token: str, state: State, reading: Reading) -> TakenCopy:
    record, history = reading.record, reading.history
    created = history.created_at or created_at(record.id)
    if record.run_at is None:
        record = record._replace(run_at=created)
    finished = (history.died_at or created) if state is State.DEAD else None
    job = MovedJob(record, state, history.attempts, history.refunded, created, finished, history.error)
    return TakenCopy(token, history.copy, job)

"""What is taken from one RabbitMQ queue: its channel, its consumers, its deliveries that are not settled.

A message that is on its way to a consumer when that is cancelled is returned by the server, which counts it
as a delivery (3.10 to 4.2): an attempt is spent, of a job that may have no other, and nobody ran it. Nothing
can be on its way to a consumer whose credit is used up. So credit that is open is used up before a consumer
is cancelled, with *fillers*: messages of our own, which are no jobs. One of them may reach another worker in
place of a job that came to us meanwhile; whoever gets one drops it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from secrets import token_hex

from jobcontract_rabbitmq.amqp import NOT_FOUND, Channel, ChannelClosed
from jobcontract_rabbitmq.iothread import all_of
from jobcontract_rabbitmq.link import Link
from jobcontract_rabbitmq.message import Reading, is_filler, read
from jobcontract_rabbitmq.topology import Address

_MANY_CONSUMERS = 8
"""So many are replaced by one, as soon as no delivery can be on its way to them."""

LONGEST_FILLING = 2.0
"""Seconds to use up credit that is open, before it is closed in spite of what may be on its way: a server
that is short of memory takes no fillers.
"""

MOST_FILLERS = 100
"""At a time."""

DEAF = 1.0
"""Seconds for which a consumer gets nothing, although it has credit and messages are there, before it is held
to be gone. RabbitMQ (3.10) does not always say that a consumer ended when its queue was deleted: no word came
in about 1 of 200 deletions, and the queue that was made again in its place knows no consumer of ours.
"""

Fill = Callable[[Address, int], Awaitable[bool]]
"""Publishes so many fillers; whether the server has taken them, within `LONGEST_FILLING`."""


class QueueMissing(Exception):
    """There is no such queue on the server."""


class Hand(Enum):
    """In whose hands a delivery is."""

    BUFFER = "buffer"
    """Delivered to us, and to nobody here yet."""
    CLAIM = "claim"
    """Claimed: its token is current."""
    GONE = "gone"
    """Being settled, or settled, or lost. No token is good for it any more."""


@dataclass(slots=True, eq=False)
class Consumer:
    """A subscription with its own credit. Credit can't be changed, so a tap has several."""

    tag: str
    credit: int
    unsettled: int = 0
    ending: asyncio.Future[None] | None = None
    """Since it is being cancelled, or was, before what it holds is settled."""
    passed_over: float | None = None
    """Since when messages are there that it should have got, by the monotonic clock."""

    @property
    def is_full(self) -> bool:
        """Whether all of its credit is used: then nothing can be on its way to it."""
        return self.unsettled >= self.credit


@dataclass(slots=True, eq=False)
class Delivery:
    """One message that was delivered and not settled yet."""

    tap: Tap
    epoch: str
    tag: int
    consumer: Consumer
    headers: Mapping[str, object]
    message_id: str | None
    body: bytes
    arrived: float
    """By the monotonic clock."""
    hand: Hand = Hand.BUFFER
    reading: Reading | None = None
    """Since it was claimed; with this claim counted in."""
    expires_at: datetime | None = None
    """Since it was claimed: when the server will take it back."""

    def read(self) -> Reading:
        """What is in it."""
        return read(self.body, self.headers, self.message_id, self.tap.address.queue)

    @property
    def token(self) -> str:
        """Good for this delivery alone, on this channel alone."""
        return f"{self.epoch}.{self.tag}"


@dataclass(slots=True)
class _Session:
    """What ends with a channel. A tag means something on its own channel only; on a later one it is another
    message's, or nobody's, and then the server closes that channel with everything on it.
    """

    channel: Channel
    epoch: str = field(default_factory=lambda: token_hex(8))
    consumers: dict[str, Consumer] = field(default_factory=dict[str, Consumer])
    unsettled: dict[int, Delivery] = field(default_factory=dict[int, Delivery])
    """By tag, in the order of the tags."""
    filling: bool = False
    """Whether the consumers are being filled up, to be cancelled."""
    fillers: dict[int, Delivery] = field(default_factory=dict[int, Delivery])
    """What came of that, by tag, and waits for the next word to the server."""
    dropped: int = 0
    """How many fillers came to us while we wanted jobs."""
    complete: bool = True
    """Whether `unsettled` holds all that the server counts as such, so that "all before it" is what we mean.
    """


class Tap:
    """One RabbitMQ queue as seen by one driver. Belongs to the driver's loop.

    It has a channel of its own, so that whatever closes it (a job that was held longer than the server's
    consumer_timeout, a queue that was deleted) loses no lease of another queue or priority.
    """

    def __init__(
        self,
        link: Link,
        address: Address,
        name: str,
        by_epoch: dict[str, Tap],
        on_change: Callable[[], None],
        fill: Fill,
    ) -> None:
        """`by_epoch` is where taps are found by the epoch of their present channel. `on_change` is called
        when something arrived, and when nothing will any more.
        """
        self.address = address
        self.name = name
        self.buffer: list[Delivery] = []
        """Delivered and not claimed, in the order of arrival."""
        self.asked_at = 0.0
        """When somebody last wanted something of it, by the monotonic clock."""
        self._link = link
        self._by_epoch = by_epoch
        self._on_change = on_change
        self._fill = fill
        self._session: _Session | None = None
        self._opening = asyncio.Lock()
        self._changing = asyncio.Lock()

    # -- Looking -------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """How many more deliveries may come without a further word from us."""
        if self._session is None:
            return 0
        return sum(consumer.credit - consumer.unsettled for consumer in self._session.consumers.values())

    @property
    def listening(self) -> bool:
        """Whether anything can come by itself."""
        return self.free > 0

    def claimed(self, token: str, job_id: str) -> Delivery | None:
        """The delivery that `token` is current for."""
        session = self._session
        epoch, _, tag = token.partition(".")
        if session is None or session.epoch != epoch or not tag.isdigit():
            return None
        delivery = session.unsettled.get(int(tag))
        if delivery is None or delivery.hand is not Hand.CLAIM or delivery.reading is None:
            return None
        return delivery if delivery.reading.record.id == job_id else None

    async def count_ready(self) -> int:
        """How many messages are nobody's now. What was already on its way to us is in the buffer afterwards:
        the queue sent it before it answered, and the channel passes it on before it answers once more.
        Consumers that turn out to be `DEAF` are dropped.

        Raises `QueueMissing`.
        """
        session = await self._open()
        try:
            ready = await session.channel.count_ready(self.name)
        except ChannelClosed as error:
            if error.code == NOT_FOUND:
                raise QueueMissing(self.name) from None
            raise
        if self.listening:
            await session.channel.barrier()
            await self._drop_deaf(session, ready)
        return ready

    async def _drop_deaf(self, session: _Session, ready: int) -> None:
        """Cancel the consumers that got none of what is `ready` for too long. Once does not tell: credit that
        an acknowledgement gives back reaches the queue later than the next question. Nothing is returned by
        that, for nothing was on its way: what is there now is not put right as in `_fetch_returned`.
        """
        now = time.monotonic()
        deaf: list[Consumer] = []
        for consumer in session.consumers.values():
            if not ready or consumer.is_full:
                consumer.passed_over = None
            elif consumer.passed_over is None:
                consumer.passed_over = now
            elif now - consumer.passed_over >= DEAF:
                deaf.append(consumer)
        if deaf:
            async with self._changing:
                await self._cancel(session, deaf)

    # -- Taking --------------------------------------------------------------------------------------

    async def listen(self, more: int) -> None:
        """Let `more` deliveries come. Those that are there now have come when it returns."""
        session = await self._open()
        async with self._changing:
            if len(session.consumers) >= _MANY_CONSUMERS and not self.free:
                await self._cancel(session, list(session.consumers.values()))
            consumer = Consumer(f"{session.epoch}.{token_hex(4)}", more)
            session.consumers[consumer.tag] = consumer

            def arrived(tag: int, headers: Mapping[str, object], message_id: str | None, body: bytes) -> None:
                self._arrived(session, consumer, tag, headers, message_id, body)

            await session.channel.consume(self.name, consumer.tag, more, arrived)
        dropped = -1
        while dropped != session.dropped:  # a filler that was in front of a job made room for it
            dropped = session.dropped
            await self._flush(session)

    async def _flush(self, session: _Session) -> None:
        """Return when everything has arrived that the queue had sent by now."""
        # The queue answers before it delivers, and it answers what is asked later after that.
        await session.channel.count_ready(self.name)
        await session.channel.barrier()

    async def stop_listening(self) -> None:
        """Let nothing more come. What came stays, and settling it brings nothing new."""
        session = self._session
        if session is None or not session.consumers:
            return
        async with self._changing:
            session.filling = True
            try:
                await self._use_up_credit(session)
                unused = await self._cancel(session, list(session.consumers.values()))
                await self._fetch_returned(session, unused)
            finally:
                session.filling = False
                if self._session is session and len(session.fillers) == len(session.unsettled):
                    self.ack([])

    async def _use_up_credit(self, session: _Session) -> None:
        """Fillers go to whoever's turn it is, so more of them are sent each time."""
        until = time.monotonic() + LONGEST_FILLING
        share = 1
        if self.free:
            await self._flush(session)
        while (free := self.free) and time.monotonic() < until:
            taken = await self._fill(self.address, min(share * free, MOST_FILLERS))
            await self._flush(session)
            if not taken:
                break
            share *= 2

    async def _fetch_returned(self, session: _Session, most: int) -> None:
        """Take what the server returned, which is first in its queue, and put its count right."""
        for _ in range(most):
            if not await session.channel.count_ready(self.name):
                return
            got = await session.channel.get(self.name)
            if got is None:
                return
            headers = dict(got.headers)
            count = headers.get("x-delivery-count")
            if isinstance(count, int) and count > 0:
                headers["x-delivery-count"] = count - 1
            self._arrived(session, Consumer("", 0), got.tag, headers, got.message_id, got.body)
            if not got.redelivered:
                return

    @staticmethod
    async def _cancel(session: _Session, consumers: Iterable[Consumer]) -> int:
        """Returns the credit that was not used."""
        # At once, so that nobody cancels one a second time (pika would never answer), or gives credit back.
        cancelled = [each for each in consumers if session.consumers.pop(each.tag, None) is not None]
        for consumer in cancelled:
            consumer.ending = asyncio.ensure_future(session.channel.cancel(consumer.tag))
        await all_of(consumer.ending for consumer in cancelled if consumer.ending is not None)
        await session.channel.barrier()
        return sum(consumer.credit - consumer.unsettled for consumer in cancelled)

    def take(self, count: int) -> list[Delivery]:
        """At most `count` deliveries out of the buffer, into the hand of a claim."""
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        for delivery in taken:
            delivery.hand = Hand.CLAIM
        return taken

    def give_up_buffer(self) -> list[Delivery]:
        """All of the buffer, to be settled by whoever asked for it."""
        spare, self.buffer = self.buffer, []
        for delivery in spare:
            delivery.hand = Hand.GONE
        return spare

    # -- Settling ------------------------------------------------------------------------------------

    def hold(self, delivery: Delivery) -> None:
        """It could not be settled, and is in its claim's hand again, if it is still ours."""
        session = self._session
        if session is not None and session.unsettled.get(delivery.tag) is delivery:
            delivery.hand = Hand.CLAIM

    async def before_ack(self, deliveries: Iterable[Delivery], *, refill: bool, stay: bool) -> None:
        """To be awaited before `ack`. With `refill`, as many messages may come as will be settled; without,
        none: consumers that have used all of their credit get none of it back, but for one if we are to
        `stay` listening and nothing else does.

        Raises `ChannelClosed` or `ConnectionLost`.
        """
        session = self._session
        if session is None:
            return
        consumers = {delivery.consumer for delivery in deliveries if delivery.epoch == session.epoch}
        if not refill:
            for consumer in sorted(consumers, key=_credit, reverse=True):
                if not consumer.is_full or consumer.tag not in session.consumers:
                    continue
                if stay and len(session.consumers) == 1:
                    continue
                del session.consumers[consumer.tag]
                consumer.ending = asyncio.ensure_future(session.channel.cancel(consumer.tag))
        # Also with `refill`: what is acknowledged before a cancel that is on its way gives the credit back.
        endings = {consumer.ending for consumer in consumers if consumer.ending is not None}
        if endings:
            await all_of(endings)

    def ack(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """The messages are settled. Returns those: what the server took back meanwhile is not spoken of.

        In as few words as possible: what is said of more than 32 messages one by one can wait in the server
        (3.10) until the queue took those, and is forgotten when the connection is closed right then. So
        fillers wait for the jobs before them.
        """
        session = self._session
        if session is None:
            return []
        ours = [each for each in deliveries if session.unsettled.get(each.tag) is each]
        tags = {delivery.tag for delivery in ours}
        if not session.filling:
            tags.update(session.fillers)
            session.fillers.clear()
        if not tags:
            return []
        first: list[int] = []
        for tag in session.unsettled:  # as many as are the oldest of all go in one word
            if tag not in tags or not session.complete:
                break
            first.append(tag)
        if first:
            session.channel.ack(first[-1], multiple=len(first) > 1)
        for tag in tags.difference(first):
            session.channel.ack(tag)
        for tag in tags:
            self._forget(session, tag)
        return ours

    def nack(self, deliveries: Iterable[Delivery]) -> None:
        """The messages go back into the queue. Costs each an attempt before RabbitMQ 4.3."""
        session = self._session
        for delivery in deliveries:
            if session is not None and delivery.epoch == session.epoch:
                session.channel.nack(delivery.tag)
                self._forget(session, delivery.tag)

    async def barrier(self) -> None:
        """Return when the server has taken what was acknowledged."""
        if self._session is not None:
            await self._session.channel.barrier()

    @staticmethod
    def _forget(session: _Session, tag: int) -> None:
        delivery = session.unsettled.pop(tag, None)
        if delivery is not None:
            delivery.hand = Hand.GONE
            delivery.consumer.unsettled -= 1

    # -- What the server does ------------------------------------------------------------------------

    async def _open(self) -> _Session:
        async with self._opening:
            connection = await self._link.connect()
            session = self._session
            if session is None or session.channel.connection is not connection:
                channel = await connection.channel()
                session = self._session = _Session(channel)
                self._by_epoch[session.epoch] = self
                channel.on_closed = lambda _: self._end(session)
                channel.on_cancelled = lambda tag: self._end_consumer(session, tag)
                if channel.closed is not None:
                    self._end(session)
                    raise channel.closed
            return session

    def _arrived(
        self,
        session: _Session,
        consumer: Consumer,
        tag: int,
        headers: Mapping[str, object],
        message_id: str | None,
        body: bytes,
    ) -> None:
        consumer.unsettled += 1
        consumer.passed_over = None
        delivery = Delivery(self, session.epoch, tag, consumer, headers, message_id, body, time.monotonic())
        session.unsettled[tag] = delivery
        if not is_filler(headers, body):
            self.buffer.append(delivery)
            self._on_change()
            return
        delivery.hand = Hand.GONE
        if session.filling:
            session.fillers[tag] = delivery
        elif self._session is session:
            session.dropped += 1
            self.ack([delivery])

    def _end(self, session: _Session) -> None:
        """The channel is gone, and with it every lease on it: the server gives the jobs to others."""
        self._lose(session.unsettled.values())
        session.unsettled.clear()
        session.fillers.clear()
        session.consumers.clear()
        self._by_epoch.pop(session.epoch, None)
        if self._session is session:
            self._session = None
        self._on_change()

    def _end_consumer(self, session: _Session, tag: str) -> None:
        """The server ended a consumer: the queue is gone, or (from 4.3) a job was held for too long. It took
        back what that consumer held.
        """
        if session.consumers.pop(tag, None) is None:
            return
        held = [each for each in session.unsettled.values() if each.consumer.tag == tag]
        session.complete = session.complete and not held
        self._lose(held)
        for delivery in held:
            session.unsettled.pop(delivery.tag, None)
            session.fillers.pop(delivery.tag, None)
        self._on_change()

    def _lose(self, deliveries: Iterable[Delivery]) -> None:
        lost = list(deliveries)
        for delivery in lost:
            delivery.hand = Hand.GONE
        if lost:
            self.buffer = [delivery for delivery in self.buffer if delivery.hand is Hand.BUFFER]


def _credit(consumer: Consumer) -> int:
    return consumer.credit

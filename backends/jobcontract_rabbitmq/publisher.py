"""Publishing with confirms, a window at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from jobcontract_rabbitmq.amqp import Channel, ChannelClosed, ConnectionLost
from jobcontract_rabbitmq.link import Link
from jobcontract_rabbitmq.message import Message

_ROUND = 100
"""How many messages are sent at a time. In between the loop may receive."""


class Outcome(Enum):
    """What became of one message."""

    CONFIRMED = "confirmed"
    UNROUTABLE = "unroutable"
    """No queue is bound there. It is nowhere."""
    REFUSED = "refused"
    """The queue did not take it (no majority of its nodes, or it is full). It is nowhere."""
    UNKNOWN = "unknown"
    """The answer did not come."""


class Published(NamedTuple):
    """The outcomes in the order of the messages; why some are unknown; the server's code where it closed the
    channel.
    """

    outcomes: list[Outcome]
    reason: str = ""
    code: int = 0


class _Batch:
    """The messages of one call that are on their way."""

    def __init__(self, size: int) -> None:
        self.outcomes = [Outcome.UNKNOWN] * size
        self.missing = size
        self.sent = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(self, position: int, outcome: Outcome) -> None:
        self.outcomes[position] = outcome
        self.missing -= 1
        if self.missing == 0 and not self.done.done():
            self.done.set_result(None)


class _Outlet:
    """One channel with confirms, and what is on its way there."""

    def __init__(self, channel: Channel, window: int) -> None:
        self.channel = channel
        self._window = window
        self._encode = channel.encoder().encode
        self._writing = asyncio.Lock()
        self._number = 0
        self._pending: dict[int, tuple[_Batch, int, Message]] = {}
        """By the number of the message on this channel, in that order."""
        self._returned: set[tuple[str, str, str | None]] = set()
        self._change = asyncio.Event()
        channel.on_closed = lambda _: self._change.set()

    async def open(self) -> None:
        """Have the server confirm."""
        await self.channel.confirm(self._on_confirm, self._on_return)

    async def send(self, messages: Sequence[Message], batch: _Batch) -> None:
        """Send them, and return when each is answered. Raises when the channel goes away before."""
        async with self._writing:
            await self._write(messages, batch)
        await self.channel.wait_for(batch.done)

    async def _write(self, messages: Sequence[Message], batch: _Batch) -> None:
        pending, position = self._pending, 0
        while position < len(messages):
            while len(pending) >= self._window or self.channel.connection.blocked is not None:
                await self._until_change()
            if self.channel.closed is not None:
                raise self.channel.closed
            end = position + min(_ROUND, self._window - len(pending))
            pieces: list[bytes] = []
            for message in messages[position:end]:
                pieces.append(self._encode(*message.route, message.body, message.properties))
                self._number += 1
                pending[self._number] = (batch, position, message)
                position += 1
            batch.sent = position
            self.channel.send(b"".join(pieces))
            await asyncio.sleep(0)

    async def _until_change(self) -> None:
        if self.channel.connection.blocked is not None:
            await self.channel.connection.until_unblocked()
            return
        self._change.clear()
        await self._change.wait()
        if self.channel.closed is not None:
            raise self.channel.closed

    async def retire(self) -> None:
        """Close the channel when everything on it is answered."""
        while self._pending and self.channel.closed is None:
            self._change.clear()
            await self._change.wait()
        await self.channel.close()

    def _on_confirm(self, number: int, multiple: bool, taken: bool) -> None:
        outcome = Outcome.CONFIRMED if taken else Outcome.REFUSED
        if multiple:
            numbers: list[int] = []
            for each in self._pending:
                if each > number:
                    break
                numbers.append(each)
        else:
            numbers = [number]
        for each in numbers:
            self._answer(each, outcome)
        self._change.set()

    def _answer(self, number: int, outcome: Outcome) -> None:
        found = self._pending.pop(number, None)
        if found is None:
            return
        batch, position, message = found
        if self._returned:
            # A message that is returned is confirmed as well, right after.
            name = (*message.route, message.properties.message_id)
            if name in self._returned:
                self._returned.discard(name)
                outcome = Outcome.UNROUTABLE
        batch.answer(position, outcome)

    def _on_return(self, exchange: str, key: str, message_id: str | None) -> None:
        self._returned.add((exchange, key, message_id))


class Publisher:
    """Publishes on a connection that nothing is consumed on: an alarm stops reading from whoever publishes,
    and acknowledgements must not stop with it. Belongs to the driver's loop.
    """

    def __init__(self, link: Link, window: int) -> None:
        self._link = link
        self._window = window
        self._opening = asyncio.Lock()
        self._outlet: _Outlet | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    async def publish(self, messages: Sequence[Message], until: float) -> Published:
        """Publish, and wait for the answers until the loop's time `until`. What is unanswered then will not
        be sent any more, as far as that is in our hands.

        Raises `StoreUnavailable` when there is no connection to be had, and nothing was sent.
        """
        batch = _Batch(len(messages))
        try:
            async with asyncio.timeout_at(until):
                outlet = await self._open()
                await outlet.send(messages, batch)
        except TimeoutError:
            reason = self._trouble()
            if batch.sent:
                self._link.abort()
            return Published(batch.outcomes, reason)
        except ConnectionLost as error:
            return Published(batch.outcomes, str(error))
        except ChannelClosed as error:
            return Published(batch.outcomes, str(error), error.code)
        if Outcome.REFUSED in batch.outcomes and outlet is self._outlet:
            # A channel that was opened while a queue had no leader goes on refusing for as long as it lives,
            # also when there is one again: it keeps asking the node that is gone (seen with 3.10).
            self._retire(outlet)
        return Published(batch.outcomes)

    async def _open(self) -> _Outlet:
        async with self._opening:
            connection = await self._link.connect()
            outlet = self._outlet
            if (
                outlet is None
                or outlet.channel.closed is not None
                or outlet.channel.connection is not connection
            ):
                outlet = _Outlet(await connection.channel(), self._window)
                await outlet.open()
                self._outlet = outlet
            return outlet

    def _retire(self, outlet: _Outlet) -> None:
        self._outlet = None
        task = asyncio.ensure_future(outlet.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _trouble(self) -> str:
        connection = self._link.connection
        if connection is not None and connection.blocked is not None:
            return f"the server takes no messages now, for it is short of something ({connection.blocked})"
        return "the server did not answer in time"

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


class Publisher:
    """One confirmed channel on a connection that nothing is consumed on: an alarm stops reading from whoever
    publishes, and acknowledgements must not stop with it. Belongs to the driver's loop.
    """

    def __init__(self, link: Link, window: int) -> None:
        self._link = link
        self._window = window
        self._writing = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._channel: Channel | None = None
        self._number = 0
        self._pending: dict[int, tuple[_Batch, int, Message]] = {}
        self._returned: set[tuple[str, str, str | None]] = set()
        self._room = asyncio.Event()

    async def publish(self, messages: Sequence[Message], until: float) -> Published:
        """Publish, and wait for the answers until the loop's time `until`. What is unanswered then will not
        be sent any more, as far as that is in our hands.

        Raises `StoreUnavailable` when there is no connection to be had, and nothing was sent.
        """
        batch = _Batch(len(messages))
        try:
            async with asyncio.timeout_at(until):
                channel = await self._open()
                async with self._writing:
                    await self._write(channel, messages, batch)
                await channel.wait_for(batch.done)
        except TimeoutError:
            reason = self._trouble()
            if batch.sent:
                self._link.abort()
            return Published(batch.outcomes, reason)
        except ConnectionLost as error:
            return Published(batch.outcomes, str(error))
        except ChannelClosed as error:
            return Published(batch.outcomes, str(error), error.code)
        return Published(batch.outcomes)

    async def _write(self, channel: Channel, messages: Sequence[Message], batch: _Batch) -> None:
        pending, encode = self._pending, channel.encoder().encode
        position = 0
        while position < len(messages):
            while len(pending) >= self._window or channel.connection.blocked is not None:
                await self._until_room(channel)
            if channel.closed is not None:
                raise channel.closed
            end = position + min(_ROUND, self._window - len(pending))
            pieces: list[bytes] = []
            for message in messages[position:end]:
                pieces.append(encode(*message.route, message.body, message.properties))
                self._number += 1
                pending[self._number] = (batch, position, message)
                position += 1
            batch.sent = position
            channel.send(b"".join(pieces))
            await asyncio.sleep(0)

    async def _until_room(self, channel: Channel) -> None:
        if channel.connection.blocked is not None:
            await channel.connection.until_unblocked()
            return
        self._room.clear()
        await self._room.wait()
        if channel.closed is not None:
            raise channel.closed

    async def _open(self) -> Channel:
        async with self._opening:
            connection = await self._link.connect()
            channel = self._channel
            if channel is None or channel.closed is not None or channel.connection is not connection:
                channel = self._channel = await connection.channel()
                self._pending, self._returned, self._number = {}, set(), 0
                channel.on_closed = lambda _: self._room.set()
                await channel.confirm(self._on_confirm, self._on_return)
            return channel

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
        self._room.set()

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

    def _trouble(self) -> str:
        connection = self._link.connection
        if connection is not None and connection.blocked is not None:
            return f"the server takes no messages now, for it is short of something ({connection.blocked})"
        return "the server did not answer in time"

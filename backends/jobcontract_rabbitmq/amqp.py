"""AMQP as coroutines: the only module that knows pika.

pika calls back; here a call is awaited, a channel or connection that went away is an exception in everybody
who waits for it, and what pika keeps to itself (dropping a connection at once, frames that are encoded
already, deliveries before they are decoded) is reached by a subclass.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import pika
import pika.channel
import pika.exceptions
import pika.spec
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflowFailed, AMQPConnectorPhaseErrorBase

from jobcontract_rabbitmq.deliveries import Deliveries, OnDelivery, Seen
from jobcontract_rabbitmq.frames import PublishEncoder

# pika logs each failed connection several times, and each channel that the server closes, which is an answer
# here. All of it is raised, and whoever catches it says it once. To hear pika too, set a level of its own.
if (_pika_log := logging.getLogger("pika")).level == logging.NOTSET:
    _pika_log.setLevel(logging.CRITICAL)

Result = TypeVar("Result")
OnConfirm = Callable[[int, bool, bool], None]
"""Given the publish number, whether it stands for all before it too, and whether the message was taken."""
OnReturn = Callable[[str, str, str | None], None]
"""Given exchange, routing key and message id of a message that no queue took."""

NOT_FOUND = 404
REFUSED = 403
INEQUIVALENT = 406
_NOT_ALLOWED = 530
_FRAME_HEAD = 7

_FORMER_CONSUMERS = 50
"""How many consumers that were cancelled are still delivered to."""


class ConnectionLost(Exception):
    """The connection is gone, or was not to be had. The text says why, without credentials."""


class TurnedAway(ConnectionLost):
    """There was a server, and we and it do not agree: nothing that waiting would mend. `remedy` would."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


class ChannelClosed(Exception):
    """The channel was closed, by the server where `code` is not 0."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server, and how to log in there. Its repr holds no credentials."""

    host: str
    port: int
    vhost: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    heartbeat: int
    """In seconds."""
    connect_timeout: float
    """In seconds, for TCP, TLS and AMQP together."""
    silence: float
    """How many seconds sent bytes may stay unacknowledged before the kernel gives the connection up."""
    purpose: str
    """What the server shows of the connection."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str | None = None

    def parameters(self) -> pika.ConnectionParameters:
        """For pika. Blocking is unbounded there, for each call has its own deadline."""
        return pika.ConnectionParameters(
            host=self.host,
            port=self.port,
            virtual_host=self.vhost,
            credentials=pika.PlainCredentials(self.user, self.password),
            heartbeat=self.heartbeat,
            socket_timeout=self.connect_timeout,
            stack_timeout=self.connect_timeout,
            blocked_connection_timeout=None,
            connection_attempts=1,
            ssl_options=pika.SSLOptions(self.tls, self.server_name or self.host) if self.tls else None,
            tcp_options={"TCP_USER_TIMEOUT": int(self.silence * 1000)},
            client_properties={"connection_name": self.purpose},
        )


class Got(NamedTuple):
    """A message that was asked for."""

    tag: int
    redelivered: bool
    headers: Mapping[str, object]
    message_id: str | None
    body: bytes


class _PikaConnection(AsyncioConnection):
    _terminate_stream: Callable[[Exception | None], None]
    _output_marshaled_frames: Callable[[list[bytes]], None]
    _frame_buffer: bytes
    bytes_received: int

    deliveries: Deliveries | None = None
    """What takes deliveries out of that which arrives, once the connection is open. pika would do so as well,
    and it rejects what comes between basic.cancel and its answer, which costs an attempt, and drops what
    comes after the answer, which nobody would get before the channel ends. Both happen, for the server
    answers before it delivers what is on its way.
    """
    _arrived: bytes = b""

    def emit(self, frames: bytes) -> None:
        """Whole frames, as they are."""
        self._output_marshaled_frames([frames])

    def abort(self) -> None:
        """Drop the connection without asking the server. What was not sent yet is not sent."""
        if not self.is_closed:
            self._terminate_stream(pika.exceptions.StreamLostError("given up by the driver"))

    def _on_data_available(self, data_in: bytes) -> None:
        if self.deliveries is None or self._frame_buffer:
            super()._on_data_available(data_in)  # type: ignore[misc]  # the stubs leave out what is private
            return
        data, start = self._arrived + data_in, 0
        while start < len(data) and (end := self._take(self.deliveries, data, start)) is not None:
            start = end
        self._arrived = data[start:]

    def _take(self, deliveries: Deliveries, data: bytes, start: int) -> int | None:
        """Handle what begins at `start`, a delivery or a frame; where it ends, None when it is not there
        whole.
        """
        seen = deliveries.take(data, start)
        if isinstance(seen, int):
            self.bytes_received += seen - start  # which its heartbeats go by
            return seen
        end = None if seen is Seen.PART else _end_of_frame(data, start)
        if end is not None:
            super()._on_data_available(data[start:end])  # type: ignore[misc]
        return end


def _end_of_frame(data: bytes, start: int) -> int | None:
    """Where the frame that begins at `start` ends; None when it is not there as a whole."""
    if len(data) < start + _FRAME_HEAD:
        return None
    end = start + _FRAME_HEAD + int.from_bytes(data[start + 3 : start + _FRAME_HEAD]) + 1
    return end if end <= len(data) else None


class Connection:
    """One open connection. Belongs to the loop that opened it."""

    def __init__(self, raw: _PikaConnection) -> None:
        self._raw = raw
        self.deliveries = raw.deliveries = Deliveries()
        self.server: Mapping[str, object] = raw.server_properties or {}
        self.blocked: str | None = None
        """Why the server takes nothing from publishers now (an alarm), as far as we published anything."""
        self.lost: ConnectionLost | None = None
        """Why it is gone; None while it lives."""
        self._gone = asyncio.get_running_loop().create_future()
        self._unblocked = asyncio.Event()
        self._unblocked.set()
        raw.add_on_close_callback(self._on_close)
        raw.add_on_connection_blocked_callback(self._on_blocked)
        raw.add_on_connection_unblocked_callback(self._on_unblocked)

    @classmethod
    async def open(cls, endpoints: Sequence[Endpoint]) -> Connection:
        """Connect to the first of `endpoints` that answers. Raises `ConnectionLost`.

        Not to be cancelled: pika can't give up a handshake that has begun, and ends it by its own timeout.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[object] = loop.create_future()
        _PikaConnection.create_connection(
            [endpoint.parameters() for endpoint in endpoints],
            lambda result: _fulfil(done, result),
            custom_ioloop=loop,
        )
        result = await done
        if isinstance(result, _PikaConnection):
            return cls(result)
        raise _as_lost(result)

    async def channel(self) -> Channel:
        """A new channel. Raises `ConnectionLost`."""
        self.check()
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        raw = self._raw.channel(on_open_callback=lambda _: _fulfil(opened, None))
        channel = Channel(self, raw)
        await channel.wait_for(opened)
        return channel

    def check(self) -> None:
        """Raise `ConnectionLost` when it is gone or going."""
        if self.lost is not None:
            raise self.lost
        if not self._raw.is_open:
            raise ConnectionLost("the connection is being closed")

    async def until_unblocked(self) -> None:
        """Return when the server takes messages. Raises `ConnectionLost`."""
        while self.blocked is not None:
            self.check()
            await self._unblocked.wait()
        self.check()

    async def close(self) -> None:
        """Say goodbye and wait for the answer."""
        if self._raw.is_open:
            self._raw.close()
        await asyncio.shield(self._gone)

    def abort(self) -> None:
        """Drop it. What was not sent yet is not sent."""
        self._raw.abort()

    @property
    def frame_max(self) -> int:
        """The largest frame, in bytes."""
        return int(self._raw.params.frame_max)

    def emit(self, frames: bytes) -> None:
        """Send whole frames. Raises `ConnectionLost`."""
        self.check()
        self._raw.emit(frames)

    def _on_close(self, _: object, reason: BaseException) -> None:
        self.lost = _as_lost(reason)
        self._unblocked.set()
        if not self._gone.done():
            self._gone.set_result(None)

    def _on_blocked(self, _: object, frame: Any) -> None:
        self.blocked = str(frame.method.reason)
        self._unblocked.clear()

    def _on_unblocked(self, _: object, __: object) -> None:
        self.blocked = None
        self._unblocked.set()


class Channel:
    """One open channel. Its calls are coroutines where the server answers, and plain where it does not."""

    def __init__(self, connection: Connection, raw: pika.channel.Channel) -> None:
        self.connection = connection
        self.closed: Exception | None = None
        """Why it is gone; None while it lives."""
        self.on_closed: Callable[[Exception], None] = lambda _: None
        self.on_cancelled: Callable[[str], None] = lambda _: None
        """Called when the server ends a consumer: its queue was deleted, or (from 4.3) its time is over."""
        self._raw = raw
        self._prefetch = -1
        self._consumers: set[str] = set()
        self._former: deque[str] = deque()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._getting: asyncio.Future[Got | None] | None = None
        raw.add_on_close_callback(self._on_close)
        raw.add_on_cancel_callback(self._on_cancel)
        raw.add_callback(self._on_nothing_to_get, [pika.spec.Basic.GetEmpty], one_shot=False)

    async def wait_for(self, answer: asyncio.Future[Result]) -> Result:
        """The answer, or why there will be none."""
        if self.closed is not None:
            raise self.closed
        self._waiting.add(answer)
        try:
            return await answer
        finally:
            self._waiting.discard(answer)

    async def _call(self, send: Callable[[Callable[[Any], None]], object]) -> Any:
        if self.closed is not None:
            raise self.closed
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            send(lambda frame: _fulfil(answer, frame.method))
        except pika.exceptions.AMQPError as error:
            raise self.closed or ChannelClosed(0, _text(error)) from None
        return await self.wait_for(answer)

    # -- Topology ------------------------------------------------------------------------------------

    async def count_ready(self, queue: str) -> int:
        """How many messages of `queue` are nobody's. Raises `ChannelClosed` (404) when there is no such
        queue.
        """
        answer = await self._call(lambda done: self._raw.queue_declare(queue, passive=True, callback=done))
        return int(answer.message_count)

    async def declare_queue(self, name: str, arguments: Mapping[str, object]) -> None:
        """Create a durable queue. Raises `ChannelClosed` (406) when it exists with other arguments."""
        await self._call(
            lambda done: self._raw.queue_declare(name, durable=True, arguments=dict(arguments), callback=done)
        )

    async def declare_exchange(self, name: str, kind: str, *, passive: bool = False) -> None:
        """Create a durable exchange, or (`passive`) see whether it is there: `ChannelClosed` (404) if not."""
        await self._call(
            lambda done: self._raw.exchange_declare(
                name, kind, passive=passive, durable=not passive, callback=done
            )
        )

    async def bind(self, source: str, destination: str, pattern: str, *, to_exchange: bool) -> None:
        """From an exchange to a queue, or to another exchange. Doing it twice is doing it once."""
        if to_exchange:
            await self._call(
                lambda done: self._raw.exchange_bind(destination, source, pattern, callback=done)
            )
        else:
            await self._call(lambda done: self._raw.queue_bind(destination, source, pattern, callback=done))

    # -- Consuming -----------------------------------------------------------------------------------

    async def consume(self, queue: str, tag: str, credit: int, on_delivery: OnDelivery) -> None:
        """Have at most `credit` unsettled messages of `queue` delivered at a time, until `cancel`. `tag` is
        new.
        """
        if self._prefetch != credit:
            # Before it is sent: a `barrier` in between would set the former one again, for this consumer.
            self._prefetch = credit
            await self._call(lambda done: self._raw.basic_qos(prefetch_count=credit, callback=done))

        self.connection.deliveries.expect(self._raw.channel_number, tag, on_delivery)
        await self._call(
            lambda done: self._raw.basic_consume(queue, _never_called, consumer_tag=tag, callback=done)
        )
        self._consumers.add(tag)

    async def cancel(self, tag: str) -> None:
        """Have nothing more delivered. What was on its way arrives before the next `barrier` is over; rarely,
        in a cluster, later.
        """

        if tag in self._consumers:
            await self._call(lambda done: self._raw.basic_cancel(tag, callback=done))
            self._retire(tag)

    def _retire(self, tag: str) -> None:
        """The consumer is gone. For a while, what comes for it is still handed over."""
        self._consumers.discard(tag)
        self._former.append(tag)
        if len(self._former) > _FORMER_CONSUMERS:
            self.connection.deliveries.forget(self._raw.channel_number, self._former.popleft())

    async def get(self, queue: str) -> Got | None:
        """The first message of `queue`, unsettled; None when there is none. One call at a time."""

        def got(_: object, method: Any, properties: Any, body: bytes) -> None:
            message = Got(
                method.delivery_tag, method.redelivered, properties.headers or {}, properties.message_id, body
            )
            _fulfil(answer, message)

        if self.closed is not None:
            raise self.closed
        answer = self._getting = asyncio.get_running_loop().create_future()
        self._raw.basic_get(queue, got)
        return await self.wait_for(answer)

    async def barrier(self) -> None:
        """Return when the server has taken everything that was sent on this channel before, and everything
        that it had sent by then has arrived.
        """
        if self._prefetch < 0:
            self._prefetch = 1
        # Any method with an answer would do. This one sets what is set already.
        await self._call(lambda done: self._raw.basic_qos(prefetch_count=self._prefetch, callback=done))

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """The message is settled, with `multiple` all before it too."""
        self._raw.basic_ack(tag, multiple)

    def nack(self, tag: int, *, multiple: bool = False) -> None:
        """The message goes back into its queue, with `multiple` all before it too."""
        self._raw.basic_nack(tag, multiple, requeue=True)

    # -- Publishing ----------------------------------------------------------------------------------

    async def confirm(self, on_confirm: OnConfirm, on_return: OnReturn) -> None:
        """Have the server answer for each message. They are numbered from 1."""

        def confirmed(frame: Any) -> None:
            method = frame.method
            on_confirm(method.delivery_tag, method.multiple, isinstance(method, pika.spec.Basic.Ack))

        def returned(_: object, method: Any, properties: Any, __: bytes) -> None:
            on_return(method.exchange, method.routing_key, properties.message_id)

        self._raw.add_on_return_callback(returned)
        await self._call(lambda done: self._raw.confirm_delivery(confirmed, callback=done))

    def encoder(self) -> PublishEncoder:
        """What makes messages for `send`."""
        return PublishEncoder(self._raw.channel_number, self.connection.frame_max)

    def send(self, messages: bytes) -> None:
        """Send what the encoder made. Each message is returned when no queue takes it."""
        self.connection.emit(messages)

    async def close(self) -> None:
        """Close the channel: what it holds goes back to its queue."""
        if self._raw.is_open:
            self._raw.close()
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await self.wait_for(closed)
        except (ChannelClosed, ConnectionLost):
            return

    def _on_nothing_to_get(self, _: object) -> None:
        if self._getting is not None:
            _fulfil(self._getting, None)

    def _on_cancel(self, frame: Any) -> None:
        tag = str(frame.method.consumer_tag)
        self._retire(tag)
        self.on_cancelled(tag)

    def _on_close(self, _: object, reason: BaseException) -> None:
        if isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            self.closed = ChannelClosed(reason.reply_code, reason.reply_text)
        elif isinstance(reason, pika.exceptions.ChannelClosed):
            self.closed = ChannelClosed(0, "the channel is closed")
        else:
            self.closed = _as_lost(reason)
        for tag in (*self._consumers, *self._former):
            self.connection.deliveries.forget(self._raw.channel_number, tag)
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_exception(self.closed)
        self.on_closed(self.closed)


def _never_called(*_: object) -> None:
    """What pika is given for deliveries, which go another way."""


def _fulfil(answer: asyncio.Future[Any], value: object) -> None:
    if not answer.done():  # whoever waited may have given up
        answer.set_result(value)


def _as_lost(error: object) -> ConnectionLost:
    """Why a connection is gone, from what pika says."""
    if isinstance(error, AMQPConnectionWorkflowFailed):
        # One for each host that was tried. One that turned us away says more than one that was down.
        reasons = [_as_lost(each) for each in error.exceptions]
        refusals = [reason for reason in reasons if isinstance(reason, TurnedAway)]
        return refusals[0] if refusals else ConnectionLost("; ".join(dict.fromkeys(map(str, reasons))))
    if isinstance(error, AMQPConnectorPhaseErrorBase):
        return _as_lost(error.exception)
    if isinstance(error, ssl.SSLCertVerificationError):
        return TurnedAway(
            f"its certificate can't be verified ({error.verify_message})",
            "set cacertfile to the certificates to trust, or server_name_indication to the name in this one",
        )
    if isinstance(error, pika.exceptions.ProbableAuthenticationError):
        return TurnedAway("it refused the user or the password", "check them in the URL")
    if isinstance(error, pika.exceptions.ProbableAccessDeniedError):
        return TurnedAway("it refused the virtual host", "check the URL's path")
    if isinstance(error, pika.exceptions.ConnectionClosedByBroker):
        if error.reply_code in (REFUSED, _NOT_ALLOWED):
            return TurnedAway(f"it refused us ({error.reply_text})", "check user and virtual host in the URL")
        return ConnectionLost(f"the server closed the connection: {error.reply_text}")
    return ConnectionLost(_text(error))


def _text(error: object) -> str:
    """A client's error for people. pika's own hold no credentials: it was never given a URL."""
    text = str(error).strip()
    name = type(error).__name__
    return f"{name}: {text}" if text else name

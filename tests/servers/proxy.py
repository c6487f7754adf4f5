"""A TCP proxy between a client and a server that can be told to misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.servers.process import LOOPBACK, free_port

CHUNK = 65536
BUFFERED_CHUNKS = 64
"""How many chunks may wait in one direction before the proxy stops reading, as a full socket would."""
REMEMBERED = 1 << 20
"""How many of the last bytes of a direction a predicate is shown."""
CALL_DEADLINE = 10.0

Predicate = Callable[[bytes], bool]
"""Is shown what one client sent, or was about to be sent, since the switch was set: one request may come in
several pieces, and one piece may hold several requests."""

Result = TypeVar("Result")


def anything(_: bytes) -> bool:
    """Fits every request."""
    return True


def contains(*parts: bytes) -> Predicate:
    """Fits a request that holds all of these."""
    return lambda data: all(part in data for part in parts)


class When(Enum):
    """At which point of a request a cut falls."""

    BEFORE_REQUEST = auto()
    """The server never sees the request."""
    AFTER_REQUEST = auto()
    """The server is given the request, then the end of the stream; the client no reply, but a reset."""
    BEFORE_REPLY = auto()
    """The server has answered, so it has done what was asked; the client gets no reply, but a reset."""


@dataclass
class Cut:
    """One cut, armed for the first request that fits."""

    when: When
    request: Predicate
    reply: Predicate
    _done: threading.Event = field(default_factory=threading.Event)

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float = 10.0) -> None:
        """Block until the cut was made.

        Raises:
            TimeoutError: it was not made in time.
        """
        if not self._done.wait(seconds):
            raise TimeoutError(f"no request that the cut waits for came within {seconds:g} s")

    def made(self) -> None:
        self._done.set()


@dataclass(eq=False)
class _Link:
    """A client's connection and ours to the server for it."""

    client: socket.socket
    server: socket.socket
    sent: bytearray = field(default_factory=bytearray)
    """What the client sent since the cut was armed."""
    received: bytearray = field(default_factory=bytearray)
    """What the server answered since the request of the cut was passed on."""
    awaiting_reply: Cut | None = None
    task: asyncio.Task[None] | None = None

    def close(self, *, reset_client: bool, reset_server: bool) -> None:
        for end, reset in ((self.client, reset_client), (self.server, reset_server)):
            if reset:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()


class _Severed(Exception):
    """The link is to be cut: ends all that is done for it."""

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut)
        self.cut = cut


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes everything on, until a switch says otherwise.

    The switches may be used from any thread, act on present and future connections, and have taken effect
    when they return. They are independent: `pass_all` undoes them together. A context manager.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        """Start to listen.

        Args:
            server: host and port of what lies behind; it need not be up.
        """
        self.server_address = server
        self.host = LOOPBACK
        self.port = 0
        self.accepted = 0
        """How many connections were accepted in all."""
        self._links: set[_Link] = set()
        self._delay = 0.0
        self._bytes_per_second: float | None = None
        self._cut: Cut | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._failures: list[BaseException] = []
        self._open = asyncio.Event()  # not set: black hole
        self._open.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        try:
            self._call(self._listen())
        except BaseException:
            self.close()
            raise

    # -- switches -------------------------------------------------------------------------------------------

    def pass_all(self) -> None:
        """Undo every other switch. What was held back is delivered now."""
        self._call(self._pass_all())

    def reset_all(self) -> None:
        """End every present connection with a RST to both sides; later ones pass."""
        self._call(self._reset_all())

    def blackhole(self) -> None:
        """Go silent: connections stay open, new ones are accepted, and nothing arrives in any direction."""
        self._call(self._do(self._open.clear))

    def delay(self, seconds: float) -> None:
        """Let each round trip take so much longer, half of it each way. Throughput stays; 0 ends it."""
        self._call(self._do(lambda: setattr(self, "_delay", seconds / 2)))

    def limit(self, bytes_per_second: float | None) -> None:
        """Pass no more than that in each direction of each connection; None ends it."""
        self._call(self._do(lambda: setattr(self, "_bytes_per_second", bytes_per_second)))

    def refuse(self) -> None:
        """Refuse new connections, as a port does that nobody listens on; present ones go on."""
        self._call(self._stop_listening())

    def accept(self) -> None:
        """The end of `refuse`."""
        self._call(self._listen())

    def cut_next_request(self, request: Predicate = anything, *, when: When = When.BEFORE_REQUEST) -> Cut:
        """Cut one connection at the next request that fits; the others pass.

        Args:
            request: tells whether this is the request; see `Predicate`.
            when: `BEFORE_REQUEST`, or `AFTER_REQUEST` for one that has no reply (AMQP's basic.ack).
        """
        return self._arm(Cut(when, request, anything))

    def cut_next_reply(self, request: Predicate = anything, *, reply: Predicate = anything) -> Cut:
        """Cut one connection when the server has done what the next fitting request asks.

        Args:
            request: tells whether this is the request; see `Predicate`.
            reply: tells whether the reply to it has come; the first bytes, unless the request is one of
                several in a pipeline.
        """
        return self._arm(Cut(When.BEFORE_REPLY, request, reply))

    def inject(self, *, to_client: bytes = b"", to_server: bytes = b"") -> None:
        """Say something in the other end's name, on each present connection. For protocols in which nothing
        is half said between two messages: the caller knows that it is quiet.
        """
        self._call(self._inject(to_client, to_server))

    # -- state ----------------------------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._links)

    def await_connections(self, number: int, *, deadline: float = 10.0) -> None:
        """Block until exactly so many are open.

        Raises:
            TimeoutError: they were not within `deadline` seconds.
        """
        end = time.monotonic() + deadline
        while self.connections != number:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.connections} connections instead of {number} after {deadline:g} s")
            time.sleep(0.01)

    def close(self) -> None:
        """Stop to listen and reset what is open. Harmless when called again.

        Raises:
            Exception: what a predicate raised, if one did.
        """
        if self._loop.is_closed():
            return
        self._call(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._failures:
            raise self._failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- everything below runs in the proxy's own thread ----------------------------------------------------

    def _call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_DEADLINE)

    async def _do(self, action: Callable[[], object]) -> None:
        action()

    def _arm(self, cut: Cut) -> Cut:
        async def arm() -> None:
            for link in self._links:
                link.sent.clear()
                link.awaiting_reply = None
            self._cut = cut

        self._call(arm())
        return cut

    async def _inject(self, to_client: bytes, to_server: bytes) -> None:
        for link in self._links:
            await self._loop.sock_sendall(link.client, to_client)
            await self._loop.sock_sendall(link.server, to_server)

    async def _pass_all(self) -> None:
        self._delay = 0.0
        self._bytes_per_second = None
        self._cut = None
        for link in self._links:
            link.awaiting_reply = None
        self._open.set()
        await self._listen()

    async def _reset_all(self) -> None:
        links = list(self._links)
        tasks = [link.task for link in links if link.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in links:
            self._forget(link, reset_client=True, reset_server=True)

    async def _shut_down(self) -> None:
        await self._stop_listening()
        await self._reset_all()

    async def _listen(self) -> None:
        if self._accepting is not None:
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        while True:
            port = self.port or free_port()
            try:
                listener.bind((self.host, port))
            except OSError:
                if self.port:
                    raise
                continue
            break
        listener.listen(256)
        self.port = port
        self._accepting = asyncio.create_task(self._accept(listener))

    async def _stop_listening(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._accepting = None

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                client, _ = await self._loop.sock_accept(listener)
                client.setblocking(False)
                self.accepted += 1
                server = socket.socket()
                server.setblocking(False)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link = _Link(client, server)
                self._links.add(link)
                link.task = asyncio.create_task(self._serve(link))

    async def _serve(self, link: _Link) -> None:
        cuts: list[Cut] = []
        reset = True
        try:
            await self._open.wait()
            await self._loop.sock_connect(link.server, self.server_address)
            async with asyncio.TaskGroup() as group:
                for pump in self._pumps(link):
                    group.create_task(pump)
            reset = False
        except* _Severed as severed:
            cuts += [error.cut for error in severed.exceptions if isinstance(error, _Severed)]
        except* OSError:
            await self._open.wait()  # nor does a reset get through a black hole
        except* Exception as failure:
            self._failures += failure.exceptions
        # The sockets are closed only now that no task waits for them: the event loop knows them by number,
        # which the next one is given.
        after_request = any(cut.when is When.AFTER_REQUEST for cut in cuts)
        # A reset would make the server drop what it was sent and has not read yet.
        self._forget(link, reset_client=reset, reset_server=reset and not after_request)
        for cut in cuts:
            cut.made()

    def _forget(self, link: _Link, *, reset_client: bool, reset_server: bool) -> None:
        if link in self._links:
            self._links.discard(link)
            link.close(reset_client=reset_client, reset_server=reset_server)

    def _pumps(self, link: _Link) -> list[Coroutine[Any, Any, None]]:
        requests: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(BUFFERED_CHUNKS)
        replies: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(BUFFERED_CHUNKS)
        return [
            self._read(link.client, requests),
            self._write(link.server, requests, lambda data: self._pass_request(link, data)),
            self._read(link.server, replies),
            self._write(link.client, replies, lambda data: self._pass_reply(link, data)),
        ]

    async def _read(self, source: socket.socket, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        while True:
            data = await self._loop.sock_recv(source, CHUNK)
            await queue.put((self._loop.time(), data))
            if not data:
                return

    async def _write(
        self,
        target: socket.socket,
        queue: asyncio.Queue[tuple[float, bytes]],
        deliver: Callable[[bytes], Awaitable[None]],
    ) -> None:
        while True:
            arrived, data = await queue.get()
            await asyncio.sleep(arrived + self._delay - self._loop.time())
            await self._open.wait()
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            await deliver(data)

    async def _send(self, target: socket.socket, data: bytes) -> None:
        rate = self._bytes_per_second
        if rate is None:
            await self._loop.sock_sendall(target, data)
            return
        step = max(1, int(rate / 20))
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            await self._open.wait()
            await self._loop.sock_sendall(target, piece)
            await asyncio.sleep(len(piece) / rate)

    async def _pass_request(self, link: _Link, data: bytes) -> None:
        cut = self._cut
        if cut is None or link.awaiting_reply is not None:
            await self._send(link.server, data)
            return
        link.sent += data
        del link.sent[:-REMEMBERED]
        fits = cut.request(bytes(link.sent))
        if fits:
            self._cut = None
            if cut.when is When.BEFORE_REQUEST:
                raise _Severed(cut)
            if cut.when is When.BEFORE_REPLY:
                link.received.clear()
                link.awaiting_reply = cut
        await self._send(link.server, data)
        if fits and cut.when is When.AFTER_REQUEST:
            raise _Severed(cut)

    async def _pass_reply(self, link: _Link, data: bytes) -> None:
        cut = link.awaiting_reply
        if cut is not None:
            link.received += data
            del link.received[:-REMEMBERED]
            if cut.reply(bytes(link.received)):
                raise _Severed(cut)
        await self._send(link.client, data)

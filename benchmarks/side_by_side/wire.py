"""A proxy that counts round trips: what a store is asked for a piece of work, whoever asks, in any protocol.

A round trip begins when a client sends something and the server was the last to speak on that connection (or
nobody was). So a pipeline of a hundred commands counts as one, which is what it costs, and a heartbeat as one
too. For counting only: a measurement of speed does not go through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 1 << 16
_DEADLINE = 10.0


class Wire:
    """Listens on a port of loopback, and passes on what comes to the server of `url`. A context manager."""

    def __init__(self, url: str) -> None:
        """`url` has a host and a port."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._behind = (parts.hostname, parts.port)
        self._url = url
        self._round_trips = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)

    @property
    def round_trips(self) -> int:
        """How many there were so far, on all connections together."""
        return self._round_trips

    @property
    def url(self) -> str:
        """That of the server, by way of this wire."""
        host, port = self._behind
        assert f"@{host}:{port}" in self._url, self._url
        return self._url.replace(f"@{host}:{port}", f"@127.0.0.1:{self._port}", 1)

    def __enter__(self) -> Self:
        self._thread.start()
        self._port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_DEADLINE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- In the wire's own thread ------------------------------------------------------------------

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.closing(to_client), contextlib.suppress(OSError):
            server, to_server = await asyncio.open_connection(*self._behind)
            asked = False

            async def requests() -> None:
                nonlocal asked
                while data := await client.read(_CHUNK):
                    if not asked:
                        asked = True
                        self._round_trips += 1
                    to_server.write(data)
                    await to_server.drain()

            async def answers() -> None:
                nonlocal asked
                while data := await server.read(_CHUNK):
                    asked = False
                    to_client.write(data)
                    await to_client.drain()

            with contextlib.closing(to_server):
                both = [asyncio.ensure_future(requests()), asyncio.ensure_future(answers())]
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in both:
                        each.cancel()
                    await asyncio.gather(*both, return_exceptions=True)

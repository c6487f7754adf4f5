"""One thread with an event loop: whatever touches a connection of a driver happens on it."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from jobcontract.errors import StoreUnavailable

Result = TypeVar("Result")

_SLACK = 2.0
"""Seconds that the loop has beyond a call's deadline to notice it itself."""


class IOThread:
    """Started at first use, ended by `close`. Handlers run elsewhere, so heartbeats never wait for one."""

    def __init__(self, name: str, at_exit: Callable[[], None]) -> None:
        """`at_exit` is a method, called when the interpreter ends and nobody called `close`, with the thread
        still there. Its object is not kept alive for that.
        """
        self._name = name
        self._at_exit = _AtExit(at_exit)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def started(self) -> bool:
        """Whether anything was ever run."""
        return self._loop is not None

    def run(self, operation: Callable[[], Coroutine[Any, Any, Result]], deadline: float, what: str) -> Result:
        """Run `operation` on the thread and return its result; blocks for `deadline` seconds at the longest.

        Raises what it raises, and `StoreUnavailable`, naming `what`, when the deadline passed or `close` was
        called.
        """

        async def bounded() -> Result:
            async with asyncio.timeout(deadline):
                return await operation()

        with self._lock:  # so that it is submitted before `close` stops the loop, or refused
            loop = self._running()
            future = asyncio.run_coroutine_threadsafe(bounded(), loop)
        try:
            return future.result(deadline + _SLACK)
        except TimeoutError:
            future.cancel()
            raise StoreUnavailable(f"{what} did not end within {deadline:g} s") from None
        except concurrent.futures.CancelledError:
            raise StoreUnavailable(f"{what} was cut short: the driver is closed") from None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise StoreUnavailable("the driver is closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._serve, args=[self._loop], name=self._name, daemon=True
            )
            self._thread.start()
            atexit.register(self._at_exit)
        return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            loop.close()

    def close(self) -> None:
        """End the thread; what runs on it is cancelled. Safe to call twice."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        atexit.unregister(self._at_exit)
        if loop is None or thread is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join()


class _AtExit:
    """A method to be called at the interpreter's end, if its object lives then, and not in a fork."""

    def __init__(self, method: Callable[[], None]) -> None:
        self._method = weakref.WeakMethod(method)
        self._process = os.getpid()

    def __call__(self) -> None:
        method = self._method()
        if method is not None and os.getpid() == self._process:
            method()


async def all_of(calls: Iterable[Awaitable[Result]]) -> list[Result]:
    """All of `calls` at once. When all are over, the first error of theirs is raised."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]

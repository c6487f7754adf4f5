"""Connections to one server, and the exchange of commands for answers on one of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

import redis

from jobcontract.errors import StoreError, StoreUnavailable
from jobcontract_redis.access import Wire
from jobcontract_redis.faults import store_error

Command: TypeAlias = Sequence[object]
Reply: TypeAlias = object
"""bytes, int, None, a list of such, or the `redis.ResponseError` with which the server refused that command.
"""


class Pool:
    """At most `size` connections to what `connect` connects to. Safe in threads."""

    def __init__(self, connect: Callable[[], Wire], *, where: str, size: int, timeout: float) -> None:
        self._connect = connect
        self._where = where
        self._size = size
        self._timeout = timeout
        self._free = threading.BoundedSemaphore(size)
        self._idle: list[Wire] = []
        self._lock = threading.Lock()
        self._closed = False

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """Send `commands` in one go and read an answer for each; one that is refused does not stop the
        others.

        Sends nothing twice. Raises `StoreUnavailable` when no connection is free or can be had, or when the
        answers do not come; what was sent may have been done then.
        """
        if not self._free.acquire(timeout=self._timeout):
            raise StoreUnavailable(
                f"all {self._size} connections to {self._where} were busy for {self._timeout:g} s; "
                "raise pool_size"
            )
        try:
            wire = self._take()
            try:
                wire.send_packed_command(wire.pack_commands(commands))
                replies = [read_reply(wire) for _ in commands]
            except (redis.RedisError, OSError) as error:
                wire.disconnect()
                self.drop_idle()  # what broke this one has broken those that lay idle meanwhile
                raise store_error(error, self._where) from None
            except BaseException:  # an answer that nobody read would be taken for that to the next command
                wire.disconnect()
                raise
            self._give_back(wire)
            return replies
        finally:
            self._free.release()

    def drop_idle(self) -> None:
        """Close the connections that are not in use; the next exchange opens a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.disconnect()

    def close(self) -> None:
        """Close the idle connections, and each one in use when it comes back."""
        self._closed = True
        self.drop_idle()

    def _take(self) -> Wire:
        while True:
            with self._lock:
                wire = self._idle.pop() if self._idle else None
            if wire is None:
                break
            # Something to read on an idle connection is its end: the server was restarted, or cut it off.
            with contextlib.suppress(redis.RedisError, OSError):
                if not wire.can_read():
                    return wire
            wire.disconnect()
        if self._closed:
            raise StoreError(f"the driver of {self._where} is closed")
        try:
            return self._connect()
        except (redis.RedisError, OSError) as error:
            raise store_error(error, self._where) from None

    def _give_back(self, wire: Wire) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(wire)
                return
        wire.disconnect()


def read_reply(wire: Wire) -> Reply:
    """The answer to one command; a refusal is an answer. Raises redis-py's errors when none comes."""
    try:
        return wire.read_response()
    except redis.ResponseError as error:
        return error

"""Which node of a cluster has which keys."""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import NamedTuple, cast

import redis
from redis.crc import key_slot

from jobcontract.errors import StoreUnavailable
from jobcontract_redis.access import Address, Location
from jobcontract_redis.faults import store_error


class _Range(NamedTuple):
    first: int
    last: int
    address: Address


class Slots:
    """The map of the cluster's slots, asked for when needed and when it proved wrong. Safe in threads."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._lock = threading.Lock()
        self._ranges: list[_Range] = []
        self._seen: tuple[Address, ...] = ()

    def address_of(self, key: str) -> Address:
        """The node that has `key`. Raises `StoreUnavailable` when no node tells, or none has the slot."""
        slot = key_slot(key.encode())
        ranges = self._known()
        at = bisect_right(ranges, slot, key=lambda each: each.first) - 1
        if at < 0 or ranges[at].last < slot:
            self.forget()
            raise StoreUnavailable(f"{self._location.where}: no node of the cluster has slot {slot} just now")
        return ranges[at].address

    def primaries(self) -> list[Address]:
        """All nodes that have slots."""
        return sorted({each.address for each in self._known()})

    def forget(self) -> None:
        """The map proved wrong: ask again."""
        with self._lock:
            self._ranges = []

    def _known(self) -> list[_Range]:
        with self._lock:
            if not self._ranges:
                self._ranges = self._ask()
                self._seen = tuple(dict.fromkeys(each.address for each in self._ranges))
            return self._ranges

    def _ask(self) -> list[_Range]:
        said: list[str] = []
        for address in dict.fromkeys((*self._seen, *self._location.addresses)):
            try:
                wire = self._location.access.open(address)
                try:
                    wire.send_packed_command(wire.pack_commands([("CLUSTER", "SLOTS")]))
                    rows = cast("list[list[object]]", wire.read_response())
                finally:
                    wire.disconnect()
            except redis.AuthenticationError as error:
                raise store_error(error, self._location.where) from None
            except (redis.RedisError, OSError) as error:
                said.append(f"{address}: {' '.join(str(error).split())[:120]}")
                continue
            if rows:
                return sorted(_range(row, asked=address) for row in rows)
            said.append(f"{address} knows of no slots")
        raise StoreUnavailable(f"{self._location.where} can't be reached: {'; '.join(said)}")


def _range(row: list[object], asked: Address) -> _Range:
    first, last, primary = row[:3]
    host, port = cast("list[object]", primary)[:2]
    # A node that does not know its own address leaves it out: it is the one we asked.
    name = host.decode() if isinstance(host, bytes) and host not in (b"", b"?") else asked.host
    return _Range(cast(int, first), cast(int, last), Address(name, cast(int, port)))

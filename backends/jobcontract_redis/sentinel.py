"""Finding the primary of a group that Sentinels watch over."""

from __future__ import annotations

from typing import cast

import redis
from redis.exceptions import NoPermissionError

from jobcontract.errors import StoreUnavailable
from jobcontract_redis.access import Address, Location, Wire


def find_primary(location: Location, within: float | None = None) -> Wire:
    """A connection to the primary. Raises redis-py's errors, and `StoreUnavailable` when no Sentinel knows
    one.

    A Sentinel that was cut off may still name the former primary: who is named must say of itself that it is
    one.
    """
    said: list[str] = []
    for sentinel in location.addresses:
        try:
            address = _ask(location, sentinel, within)
            if address is None:
                said.append(f"{sentinel} knows no service {location.service!r}")
                continue
            wire = location.access.open(address, within)
        except redis.AuthenticationError:
            raise
        except (redis.RedisError, OSError) as error:
            said.append(f"{sentinel}: {' '.join(str(error).split())[:120]}")
            continue
        if _role(wire) == b"master":
            return wire
        wire.disconnect()
        said.append(f"{sentinel} names {address}, which is no primary just now")
    raise StoreUnavailable(f"no primary was found for {location.where}: {'; '.join(said)}")


def _ask(location: Location, sentinel: Address, within: float | None) -> Address | None:
    wire = location.sentinel_access.open(sentinel, within)
    try:
        wire.send_packed_command(
            wire.pack_commands([("SENTINEL", "GET-MASTER-ADDR-BY-NAME", location.service)])
        )
        found = cast("list[bytes] | None", wire.read_response())
    finally:
        wire.disconnect()
    return Address(found[0].decode(), int(found[1])) if found else None


def _role(wire: Wire) -> bytes:
    try:
        wire.send_packed_command(wire.pack_commands([("ROLE",)]))
        return cast("list[bytes]", wire.read_response())[0]
    except NoPermissionError:
        return b"master"  # then a write will tell
    except BaseException:
        wire.disconnect()
        raise

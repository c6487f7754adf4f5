"""Instants as the two dialects give them: a datetime, or microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


def read_instant(value: object) -> datetime:
    """What a column holds, in UTC. One that no datetime can hold (a row edited by hand) is the latest."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, int):
        try:
            return _EPOCH + timedelta(microseconds=value)
        except OverflowError:
            return _LATEST
    raise TypeError(f"a {type(value).__name__} is no instant")

"""Values as they come from the server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_REMEMBERED = 64
"""Instants of one result that a loader remembers."""


class UtcLoader(Loader):
    """timestamptz in UTC, whatever the session's TimeZone and DateStyle are (psycopg's own gives the
    session's zone).

    What was edited to lie beyond the years of a datetime is its nearest one: one such row must not spoil the
    page it is on.
    """

    format = Format.BINARY

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        # The rows of a claim share their lease, and those of a batch their run_at; both columns are read by
        # this one loader.
        self._known: dict[bytes, datetime] = {}

    def load(self, data: Buffer) -> datetime:
        data = bytes(data)
        instant = self._known.get(data)
        if instant is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            instant = self._known[data] = _instant(int.from_bytes(data, "big", signed=True))
        return instant


def _instant(microseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return (datetime.max if microseconds > 0 else datetime.min).replace(tzinfo=UTC)


def as_uuid(text: str) -> UUID | None:
    """`text` as a UUID, or None: what is no UUID names no job here."""
    try:
        return UUID(text)
    except ValueError:
        return None

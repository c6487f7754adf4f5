"""Values as they come from the server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class UtcLoader(Loader):
    """timestamptz in UTC, whatever the session's TimeZone and DateStyle are (psycopg's own gives the
    session's zone).

    What was edited to lie beyond the years of a datetime is its nearest one: one such row must not spoil the
    page it is on.
    """

    format = Format.BINARY

    def load(self, data: Buffer) -> datetime:
        microseconds = int.from_bytes(data, "big", signed=True)
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

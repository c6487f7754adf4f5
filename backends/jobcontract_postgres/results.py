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
    """

    format = Format.BINARY

    def load(self, data: Buffer) -> datetime:
        return _EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True))


def as_uuid(text: str) -> UUID | None:
    """`text` as a UUID, or None: what is no UUID names no job here."""
    try:
        return UUID(text)
    except ValueError:
        return None

"""Parameters that are arrays, as PostgreSQL's array literals.

psycopg dumps a list element by element through its adapters, which costs a batch of 1,000 jobs as much as the
server needs to store it. A literal is also the same for every client that may carry it (SQLAlchemy, Django).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

_MICROSECOND = timedelta(microseconds=1)


def plain(values: Iterable[object]) -> str:
    """An array of values whose text needs no quoting: uuids, numbers, booleans."""
    return "{" + ",".join(map(str, values)) + "}"


def texts(values: Iterable[str | None]) -> str:
    """An array of text."""
    return "{" + ",".join("NULL" if value is None else _quoted(value) for value in values) + "}"


def blobs(values: Iterable[bytes | None]) -> str:
    """An array of bytea."""
    return "{" + ",".join("NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values) + "}"


def instants(values: Iterable[datetime | None]) -> str:
    """An array of timestamptz."""
    return "{" + ",".join("NULL" if value is None else f'"{value.isoformat()}"' for value in values) + "}"


def lengths(values: Iterable[timedelta]) -> str:
    """An array of interval. In microseconds, which no IntervalStyle reads in another way."""
    return "{" + ",".join(f'"{value // _MICROSECOND} microseconds"' for value in values) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

"""Parameters that are arrays, as PostgreSQL's array literals.

psycopg dumps a list element by element through its adapters, which costs a batch of 1,000 jobs as much as the
server needs to store it. A literal is also the same for every client that may carry it (SQLAlchemy, Django).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from jobcontract.contract import JobRecord

_MICROSECOND = timedelta(microseconds=1)


def plain(values: Iterable[object]) -> str:
    """An array of values whose text needs no quoting: uuids, numbers, booleans."""
    return "{" + ",".join(map(str, values)) + "}"


def texts(values: Iterable[str | None]) -> str:
    """An array of text."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


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


def record_columns(records: Sequence[JobRecord]) -> tuple[object, ...]:
    """`records` as an array per column, in the order in which every statement that stores jobs takes them:
    that of `JobRecord`.
    """
    columns = zip(*records, strict=True) if records else [()] * len(_WRITERS)
    return tuple(_column(values, write) for values, write in zip(columns, _WRITERS, strict=True))


_WRITERS: tuple[Callable[[Sequence[Any]], str], ...] = (
    plain,
    texts,
    texts,
    plain,
    instants,
    plain,
    texts,
    blobs,
    texts,
    texts,
)


def _column(values: Sequence[Any], write: Callable[[Sequence[Any]], str]) -> str:
    """The jobs of a batch are mostly alike: a value that all of them have is written once, and repeated."""
    if len(values) > 1 and values.count(values[0]) == len(values):
        return "{" + ",".join([write(values[:1])[1:-1]] * len(values)) + "}"
    return write(values)

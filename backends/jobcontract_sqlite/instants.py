"""Instants and lengths of time as the tables hold them: integers, in microseconds, instants in UTC since
1970.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


def to_microseconds(instant: datetime) -> int:
    """`instant` as a column holds it, exactly."""
    return (instant - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The instant in a column. One that no datetime can hold (a row edited by hand) becomes the nearest that
    can.
    """
    try:
        return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return _EARLIEST if value < 0 else _LATEST


def to_length(duration: timedelta) -> int:
    """`duration` in microseconds, exactly."""
    return duration // _MICROSECOND


def to_duration(value: int) -> timedelta:
    """A length of time in a column. One that no timedelta can hold becomes the nearest that can."""
    try:
        return timedelta(microseconds=value)
    except OverflowError:
        return timedelta.min if value < 0 else timedelta.max

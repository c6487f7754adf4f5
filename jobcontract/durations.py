"""Lengths of time as people write them: ``250ms``, ``30s``, ``10m``, ``1h30m``, ``7d``, or a plain number of
seconds.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+\Z")
_SHOWN = 16
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?\Z")


def parse_duration(text: str) -> timedelta:
    """`text` as a timedelta. Raises `ValueError` with one sentence."""
    text = text.strip()
    if _SECONDS.match(text):
        return timedelta(seconds=float(text))
    if not _WHOLE.match(text):
        # Behind a forgotten & of a URL, a password may follow. A slip in a length of time is short.
        shown = repr(text) if len(text) <= _SHOWN and "=" not in text else "this"
        raise ValueError(f"{shown} is not a length of time; write it as 250ms, 30s, 10m, 1h30m or 7d")
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(text)), timedelta())
    except OverflowError:
        raise ValueError(f"{text!r} is longer than a timedelta can be") from None


def format_duration(length: timedelta) -> str:
    """`length` for people, in its two largest units: ``1h 30m``, ``2.5s``, ``12ms``, ``1us``."""
    seconds = length.total_seconds()
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if seconds < 0.9995:  # what would not be rounded up to 1000ms
        return f"{sign}{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{sign}{seconds:.1f}s"
    parts: list[str] = []
    rest = round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return sign + " ".join(part for part in parts[:2] if not part.startswith("0"))


def _duration(value: object) -> timedelta:
    try:
        if isinstance(value, str):
            return parse_duration(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = timedelta(seconds=value)
        if isinstance(value, timedelta) and value >= timedelta():
            return value
    except (ValueError, OverflowError) as error:
        raise PydanticCustomError("duration", "{reason}", {"reason": str(error)}) from None
    raise PydanticCustomError("duration", "must be a length of time such as 30s, not negative")


def _positive(length: timedelta) -> timedelta:
    if not length:
        raise PydanticCustomError("duration", "must be longer than nothing")
    return length


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(_duration)]
"""A pydantic field that takes a timedelta, a number of seconds, or text such as ``10m``. Not negative."""

PositiveDuration: TypeAlias = Annotated[Duration, AfterValidator(_positive)]
"""A `Duration` that is not zero."""

"""A rate: how often jobs of a kind may start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

_TEXT = re.compile(r"([0-9]{1,6})/(s|m|h)\Z")
_PERIODS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1)}


@dataclass(frozen=True, slots=True)
class Rate:
    """One start per `spacing`, without bursts: whoever is to be spared counts in windows of his own."""

    spacing: timedelta

    @classmethod
    def parse(cls, text: str) -> Self:
        """``10/s``, ``100/m``, ``5/h``. Raises `ValueError` with the end of a sentence."""
        match = _TEXT.match(text)
        if match is None or not int(match[1]):
            raise ValueError(f"must be written as 10/s, 100/m or 5/h, not {text!r}")
        return cls(_PERIODS[match[2]] / int(match[1]))

"""Where the claims of a target may begin to read.

A deleted row leaves a dead entry in the index. As long as any session of the cluster holds an old snapshot,
these can't be removed, and each claim walks over all of them. The hint lets it start where the last one
ended. It is only a hint: a transaction that began earlier and commits later puts its row behind it, and so
does a batch that goes back. So a reading starts anew every second, and when a claim came back empty.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import TypeAlias

from jobcontract.contract import EARLIEST_RUN_AT

Position: TypeAlias = tuple[datetime, int]
"""`available_at` and `seq`: the order of the index."""
START: Position = (EARLIEST_RUN_AT, 0)
_LIFE = 1.0
# Reading from the start costs what the dead entries cost; it shall take no more than a twentieth of the time.
_SHARE = 20.0


class LowWater:
    """The hint of one target, for all threads that take its rows.

    Readings have numbers. While one of them starts anew, which may take long, the other threads go on in the
    one before, and where they end says nothing about the new one: it may have found rows behind them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._position = START
        self._reading = 0
        """The reading that `_position` belongs to."""
        self._latest = 0
        """The last one that was begun."""
        self._until = 0.0
        self._life = _LIFE

    def begin(self) -> tuple[Position, int]:
        """Where to begin now, and the number of the reading, for `advance`."""
        with self._lock:
            if time.monotonic() < self._until:
                return self._position, self._reading
            return self._anew()

    def begin_again(self) -> tuple[Position, int]:
        """The start, whatever was read before."""
        with self._lock:
            return self._anew()

    def _anew(self) -> tuple[Position, int]:
        self._until = time.monotonic() + self._life
        self._latest += 1
        return START, self._latest

    def advance(self, position: Position, reading: int) -> None:
        """A claim of `reading` ended there."""
        with self._lock:
            if reading > self._reading:
                self._position, self._reading = position, reading
            elif reading == self._reading:
                self._position = max(self._position, position)

    def charge(self, seconds: float) -> None:
        """A claim that began at the start took `seconds`."""
        self._life = max(_LIFE, _SHARE * seconds)

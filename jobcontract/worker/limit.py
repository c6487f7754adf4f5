"""How long handlers take, and how many jobs of one kind run at once."""

from __future__ import annotations

import math
import random
from collections import deque
from datetime import timedelta

from jobcontract.worker.hold import Hold

_WEIGHT = 0.1
_GUESS = 0.2
"""Seconds that a job of the kind takes, while none has been measured."""
_SHORTEST_DEFERRAL = 1
_LONGEST_DEFERRAL = 60


class MeanDuration:
    """A running mean in which recent durations weigh more. Not safe in threads by itself."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds: float | None = None
        """None while nothing is known."""

    def add(self, seconds: float) -> None:
        """One more was measured."""
        known = self.seconds
        self.seconds = seconds if known is None else known + _WEIGHT * (seconds - known)

    def forget(self) -> None:
        """What was measured holds no more."""
        self.seconds = None


class KindLimit:
    """The concurrency limit of one kind in this process. Guarded by the buffer's lock.

    Jobs beyond the limit can't be left in the store, for a claim takes what is next in its queues. A few wait
    here when they are short; the rest go back with a delay, each to about when a slot will be free for it, so
    that they neither come round and round nor stand in front of other kinds.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: deque[Hold] = deque()
        self.duration = MeanDuration()
        self._taken = 0
        self._free_at = 0.0

    def enter(self) -> bool:
        """Take a slot, if there is one."""
        if self._taken >= self.limit:
            return False
        self._taken += 1
        return True

    def leave(self) -> Hold | None:
        """Give a slot back; the waiting job that has it now, or None."""
        if self.waiting:
            return self.waiting.popleft()
        self._taken -= 1
        self._free_at = 0.0  # there is a slot and nobody for it: those that were sent away are due too late
        return None

    def ahead(self, horizon: float) -> int:
        """How many jobs this kind starts within `horizon` seconds beside those that run."""
        mean = self.duration.seconds
        return 0 if mean is None else int(self.limit * horizon / max(mean, 1e-6))

    def deferral(self, now: float) -> timedelta:
        """How long a job that has no place here should stay away, in whole seconds, so that those of one
        claim go back in few statements.
        """
        each = (self.duration.seconds or _GUESS) / self.limit
        self._free_at = max(self._free_at, now) + each
        seconds = max(_SHORTEST_DEFERRAL, math.ceil(self._free_at - now))
        if seconds > _LONGEST_DEFERRAL:
            self._free_at = now + _LONGEST_DEFERRAL
            seconds = random.randint(_LONGEST_DEFERRAL // 2, _LONGEST_DEFERRAL)
        return timedelta(seconds=seconds)

    def withdraw(self, claimed_before: float) -> list[Hold]:
        """Take out the waiting jobs that were claimed before that instant."""
        withdrawn = [hold for hold in self.waiting if hold.claimed_at < claimed_before]
        if withdrawn:
            self.duration.forget()
            self.waiting = deque(hold for hold in self.waiting if hold.claimed_at >= claimed_before)
        return withdrawn

"""How long a failed job waits for its next attempt."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from jobcontract.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter: ``base * factor ** (attempt - 1)``, never more than `cap`.

    Raises `ConfigError` when it is made from values that give no sensible delay.
    """

    base: timedelta = timedelta(seconds=1)
    """The delay after the first attempt, before jitter."""
    factor: float = 2.0
    """What each further attempt multiplies the delay by; 1 makes it constant."""
    cap: timedelta = timedelta(hours=1)
    """The longest delay."""
    jitter: float = 0.25
    """The part of the delay that is random, 0 to 1: 0.25 spreads a delay of 8 s over 6 s to 8 s, so that jobs
    which failed together don't come back together."""

    def __post_init__(self) -> None:
        if self.base < timedelta():
            raise ConfigError("base: must not be negative")
        if self.cap < self.base:
            raise ConfigError("cap: must not be shorter than base")
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ConfigError("factor: must be a finite number of at least 1")
        if not 0 <= self.jitter <= 1:
            raise ConfigError("jitter: must lie in [0, 1]")

    def delay(self, attempt: int, random: Callable[[], float] = random.random) -> timedelta:
        """The wait after attempt number `attempt`, from 1 on. `random` gives floats in [0, 1)."""
        base, cap = self.base.total_seconds(), self.cap.total_seconds()
        seconds = base if base == 0 else min(cap, base * self.factor ** self._exponent(attempt, cap / base))
        return timedelta(seconds=seconds * (1 - self.jitter * random()))

    def _exponent(self, attempt: int, most: float) -> float:
        """`attempt` - 1, but not beyond what reaches the cap: 2.0 ** 1024 raises OverflowError."""
        if self.factor == 1 or attempt <= 1:
            return 0
        return min(attempt - 1, math.log(most, self.factor) + 1)


DEFAULT_BACKOFF = Backoff()
"""1 s, 2 s, 4 s, ... up to an hour, a quarter of it random."""

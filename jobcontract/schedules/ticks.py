"""When a schedule is due: its ticks, as instants in UTC.

A **cron** expression (five fields, as Debian's cron reads them) is read in a time zone, and the zone's clock
may be changed:

- A local time that does not exist, because the clock is put forward over it, ticks at the next instant that
  exists: the moment of the change.
- A local time that comes twice, because the clock is put back, ticks once, at the first of the two. Only an
  expression that names *every* hour follows real time instead, and ticks in both passes: ``*/15 * * * *``
  must not fall silent for an hour.
- Several local times that come to one instant are one tick.

An **interval** ticks in real time, at the whole multiples of its length since 1970 (UTC), whatever clocks do.
So all schedulers agree on the ticks without having spoken, and a restart moves none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_WINDOW = timedelta(days=7)
_LONGEST_SHIFT = timedelta(hours=26)
"""No clock was ever put forward or back by more: Samoa left out a day."""
_HOURS = set(range(24))


class Ticks(ABC):
    """When something is due, for ever."""

    @abstractmethod
    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The ticks in (after, until], in order."""

    @abstractmethod
    def following(self, after: datetime) -> datetime | None:
        """The first tick after that instant; None when there is none within fifty years."""

    def upcoming(self, after: datetime, count: int) -> list[datetime]:
        """The next ticks, at most `count`."""
        found: list[datetime] = []
        while len(found) < count and (tick := self.following(after)) is not None:
            found.append(tick)
            after = tick
        return found


class Interval(Ticks):
    """Every `length`: whole seconds."""

    def __init__(self, length: timedelta) -> None:
        """Raises `ValueError` with the end of a sentence."""
        if length < _SECOND or length % _SECOND:
            raise ValueError("must be whole seconds, one at least")
        self.length = length

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """As `Ticks.between`."""
        tick = self.following(after)
        while tick <= until:
            yield tick
            tick += self.length

    def following(self, after: datetime) -> datetime:
        """As `Ticks.following`."""
        return _EPOCH + ((after - _EPOCH) // self.length + 1) * self.length


class Cron(Ticks):
    """A cron expression in a time zone."""

    def __init__(self, expression: str, zone: ZoneInfo) -> None:
        """Raises `ValueError` with the end of a sentence."""
        if len(expression.split()) != 5:
            raise ValueError(f"{expression!r} must have five fields: minute hour day month weekday")
        try:
            parsed = CronSim(expression, datetime(2000, 1, 1))
        except CronSimError as error:
            reason = str(error)
            raise ValueError(
                f"{expression!r} is no cron expression: {reason[:1].lower()}{reason[1:]}"
            ) from None
        self.expression = expression
        self.zone = zone
        self._every_hour = parsed.hours == _HOURS

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """As `Ticks.between`. Computed a week at a time, so that a long time costs no memory."""
        while after < until:
            end = min(until, after + _WINDOW)
            yield from self._window(after, end)
            after = end

    def following(self, after: datetime) -> datetime | None:
        """As `Ticks.following`."""
        for local in self._local_times(after):
            later = [tick for tick in self._instants(local) if tick > after]
            if later:
                # While the clock is put back a later local time can come sooner.
                return self._window(after, min(later))[0]
        return None

    def _window(self, after: datetime, until: datetime) -> list[datetime]:
        end = _local(until, self.zone) + self._shift(until)
        found: set[datetime] = set()
        for local in self._local_times(after):
            if local > end:
                break
            found.update(tick for tick in self._instants(local) if after < tick <= until)
        return sorted(found)

    def _local_times(self, after: datetime) -> Iterator[datetime]:
        """The times on the wall that the expression names, from before `after` on."""
        start = _local(after, self.zone) - self._shift(after) - _SECOND
        return iter(CronSim(self.expression, start))

    def _instants(self, local: datetime) -> list[datetime]:
        """When the clock of the zone shows `local`, by the rule at the top."""
        first, second = (local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if first == second:
            return [first]
        if first > second:  # it is left out, between these two
            return [self._change(second, first)]
        return [first, second] if self._every_hour else [first]

    def _change(self, before: datetime, after: datetime) -> datetime:
        """The moment in (before, after] at which the clock is changed, to the second."""
        offset = before.astimezone(self.zone).utcoffset()
        seconds = int((after - before).total_seconds())
        low, high = 0, seconds  # unchanged at low, changed at high
        while high - low > 1:
            middle = (low + high) // 2
            same = (before + middle * _SECOND).astimezone(self.zone).utcoffset() == offset
            low, high = (middle, high) if same else (low, middle)
        return before + high * _SECOND

    def _shift(self, near: datetime) -> timedelta:
        """By how much the clock is changed about that time, forward or back; mostly nothing."""
        offsets = [
            (near + distance).astimezone(self.zone).utcoffset() or timedelta()
            for distance in (-_LONGEST_SHIFT, timedelta(), _LONGEST_SHIFT)
        ]
        return max(offsets) - min(offsets)


def _local(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)

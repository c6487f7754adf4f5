"""Ticks that have no job, and the way to give them one after all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from jobcontract.backend import Backend
from jobcontract.schedules.place import Gap, Place
from jobcontract.schedules.schedule import Schedule

_UNDER_WAY = timedelta(minutes=1)
"""A tick that is younger is no gap yet: a scheduler may be about to insert it."""
_BATCH = 500
BEGINNING, END = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


class Missing(NamedTuple):
    """What `find_missing` found out about one schedule."""

    ticks: list[datetime]
    more: bool
    """There are more than the limit."""
    place: Place | None
    """None: no scheduler has run the schedule yet, so that it misses nothing."""


class Backfilled(NamedTuple):
    """What `backfill` did."""

    created: int
    known: int
    """How many ticks had their job already."""


def find_missing(
    backend: Backend,
    schedule: Schedule,
    *,
    since: datetime = BEGINNING,
    until: datetime = END,
    limit: int = 1000,
) -> Missing:
    """The ticks in (since, until] that are over a minute old and have no job, the first `limit` of them.

    Those that schedulers left out, and those that none has come to. A tick whose job the store knows by its
    key, because pg_cron inserted it, say, is not among them.
    """
    read = backend.read_notes([schedule.note])
    text = read.values.get(schedule.note)
    if text is None:
        return Missing([], False, None)
    place = Place.read(schedule.note, text)
    looks_up = backend.capabilities.has("lookup")
    ticks = (
        tick
        for tick in _open_ticks(schedule, place, read.now, since, until)
        if not (looks_up and backend.jobs(queue=schedule.queue, idempotency_key=schedule.key(tick), limit=1))
    )
    found = list(islice(ticks, limit + 1))
    return Missing(found[:limit], len(found) > limit, place)


def backfill(
    backend: Backend, schedule: Schedule, *, since: datetime = BEGINNING, until: datetime = END
) -> Backfilled:
    """Register the jobs of all ticks that `find_missing` would find, without its limit; each once, whoever
    else does the same. They are due at once.

    Killed in the middle, it can be run again.
    """
    read = backend.read_notes([schedule.note])
    text = read.values.get(schedule.note)
    if text is None:
        return Backfilled(0, 0)
    ticks = _open_ticks(schedule, Place.read(schedule.note, text), read.now, since, until)
    created = known = 0
    while batch := list(islice(ticks, _BATCH)):
        for answer in backend.register_many([schedule.job(tick) for tick in batch]):
            created, known = created + answer.created, known + (not answer.created)
    close_gaps(backend, schedule, since=since, until=min(until, read.now - _UNDER_WAY))
    return Backfilled(created, known)


def close_gaps(backend: Backend, schedule: Schedule, *, since: datetime, until: datetime) -> None:
    """Nothing in (since, until] is missing any more, by whatever was decided about it."""
    while (text := backend.read_notes([schedule.note]).values.get(schedule.note)) is not None:
        place = Place.read(schedule.note, text)
        closed = place.without(since, until)
        if since <= closed.last < until:
            closed = closed.come_to(until)
        if closed == place or backend.write_note(schedule.note, closed.text(), expected=text):
            return


def _open_ticks(
    schedule: Schedule, place: Place, now: datetime, since: datetime, until: datetime
) -> Iterator[datetime]:
    for after, before in (*place.gaps, Gap(place.last, now - _UNDER_WAY)):
        yield from schedule.ticks.between(max(after, since), min(before, until))

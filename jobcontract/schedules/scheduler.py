"""The scheduler: inserts the jobs of all ticks over (last, now], and says how far it has come.

Any number of them may run. Each reads the place of a schedule, registers what is due since, and then moves
the place on, if nobody else has. Whoever is killed in between leaves ticks that are registered again, and
answered with the job that is there. `now` is the store's clock, never this machine's: a clock that steps back
makes (last, now] empty, and one that runs ahead moves nothing.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from jobcontract.backend import Backend
from jobcontract.contract import Deduplication
from jobcontract.errors import JobContractError, StoreUnavailable, Unsupported
from jobcontract.schedules.place import Gap, Place
from jobcontract.schedules.schedule import Schedule, tick_name

log = logging.getLogger("jobcontract.schedules")

_LONGEST_PAUSE = 30.0
_JITTER = 0.5
"""Seconds by which schedulers differ, so that one inserts a tick and the others find it done."""
_FRESH = timedelta(minutes=5)
"""How old a place becomes while nothing is due. A schedule that was changed has ticks since then."""
_REMINDER = 60.0
_WRONG_CLOCK = timedelta(minutes=1)


class Scheduler:
    """Runs `schedules`, whose jobs go to `backend`. One thread takes its turns."""

    def __init__(self, backend: Backend, schedules: Sequence[Schedule]) -> None:
        """Contacts nothing."""
        self._backend = backend
        self._schedules = list(schedules)
        self._checked = False
        self._reminded: dict[str, float] = {}

    def turn(self) -> float:
        """Insert what is due. How many seconds to pause before the next turn.

        Raises `Unsupported` when the store can't have schedules, and `StoreUnavailable`; what is wrong with
        one schedule is logged, and does not stop the others.
        """
        if not self._checked:
            check_schedulable(self._backend)
            self._checked = True
        started = time.monotonic()
        read = self._backend.read_notes([each.note for each in self._schedules])
        for schedule in self._schedules:
            try:
                self._advance(schedule, read.values.get(schedule.note), read.now)
            except StoreUnavailable:
                raise
            except JobContractError as error:
                self._remind(schedule, "the schedule %s can't be run now: %s", schedule.name, error)
        return self._pause(read.now, started)

    def _advance(self, schedule: Schedule, text: str | None, now: datetime) -> None:
        if text is None:
            # Seen for the first time: it begins now, and owes nothing to the past.
            self._backend.write_note(schedule.note, Place(now).text(), expected=None)
            return
        place = Place.read(schedule.note, text)
        if place.last - now > _WRONG_CLOCK:
            self._remind(
                schedule,
                "the store's clock is at %s, and the schedule %s had come to %s: it rests until then",
                tick_name(now),
                schedule.name,
                tick_name(place.last),
            )
        late, due = self._due(schedule, place, now)
        if due:
            self._register(schedule, due)
        if not (late or due) and now - place.last < _FRESH:
            return
        gap = Gap(place.last, late) if late else None
        if self._backend.write_note(schedule.note, place.come_to(now, gap).text(), expected=text) and late:
            log.error(
                "the schedule %s has no jobs for its ticks from %s to %s, which are over %s late; see "
                "`jobctl schedule gaps`, and `jobctl schedule backfill` if they are still wanted",
                schedule.name,
                tick_name(next(schedule.ticks.between(place.last, late))),
                tick_name(late),
                schedule.catch_up,
                extra={"schedule": schedule.name},
            )

    def _due(self, schedule: Schedule, place: Place, now: datetime) -> tuple[datetime | None, list[datetime]]:
        """The last tick that is too late, if any, and those that are not."""
        if now <= place.last:
            return None, []
        horizon = max(place.last, now - schedule.catch_up)
        late: datetime | None = None
        for late in schedule.ticks.between(place.last, horizon):  # noqa: B007 - the last one is wanted
            pass
        return late, list(schedule.ticks.between(horizon, now))

    def _register(self, schedule: Schedule, due: Sequence[datetime]) -> None:
        answers = self._backend.register_many([schedule.job(tick) for tick in due])
        for tick, answer in zip(due, answers, strict=True):
            if answer.created:
                log.info(
                    "schedule %s: tick %s is job %s",
                    schedule.name,
                    tick_name(tick),
                    answer.job_id,
                    extra={"schedule": schedule.name, "job_id": str(answer.job_id)},
                )

    def _pause(self, now: datetime, started: float) -> float:
        upcoming = [tick for each in self._schedules if (tick := each.ticks.following(now)) is not None]
        if not upcoming:
            return _LONGEST_PAUSE
        left = (min(upcoming) - now).total_seconds() - (time.monotonic() - started)
        return min(_LONGEST_PAUSE, max(0.0, left) + random.uniform(0, _JITTER))

    def _remind(self, schedule: Schedule, message: str, *arguments: object) -> None:
        """Once a minute per schedule."""
        now = time.monotonic()
        if now - self._reminded.get(schedule.name, -_REMINDER) >= _REMINDER:
            self._reminded[schedule.name] = now
            log.error(message, *arguments, extra={"schedule": schedule.name})


def check_schedulable(backend: Backend) -> None:
    """Raise `Unsupported` unless the store can have schedules. Contacts it once."""
    found = backend.capabilities
    if found.deduplication is Deduplication.NONE or not found.has("notes"):
        raise Unsupported(
            f"schedules: {found.store} (backend {backend.name!r}) holds no idempotency keys and no notes, so "
            "that each scheduler would insert every tick again; put an outbox in front of it "
            f"(backends.{backend.name}.outbox), or give the schedules another backend"
        )

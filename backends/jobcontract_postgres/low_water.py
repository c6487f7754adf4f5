"""The low-water marks: where a claim may begin to read.

A claimed job leaves a dead entry in the index of ready jobs. As long as any session of the cluster holds an
old snapshot (a report, a backup, a forgotten transaction), these can't be removed, and each claim walks over
all of them to find the first that lives, in every range: also in those of other priorities that are empty by
now.

So now and then a claim is a *survey*: it reads each range (a queue and a priority) from its start, and brings
home where the first due job was, or that there was none. The claims in between start there.

A mark is only a hint. A transaction that began earlier and commits later puts its job behind it. So a survey
is made every second, and when a claim came back empty. (A job that comes back to ready has a new run_at, and
is before every mark.) Where the walk is long, surveys become rare, so that they take no more than a fortieth
of the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeAlias

from jobcontract.contract import EARLIEST_RUN_AT, JobRecord
from jobcontract_postgres.arrays import instants, plain, texts

Position: TypeAlias = tuple[datetime, str]
"""run_at and id: the order in the index."""

FIRST_ID = "00000000-0000-0000-0000-000000000000"
_START: Position = (EARLIEST_RUN_AT, FIRST_ID)
_LIFE = 1.0
_SHARE = 40.0
_SHORT_WALK = 0.005
"""Seconds; a survey that walks no longer than this is made as often as it is of use."""


class Probes(NamedTuple):
    """The ranges that one claim reads, as parallel arrays."""

    queues: list[str]
    priorities: list[int]
    run_ats: list[datetime]
    ids: list[str]
    is_survey: bool


def ranges(probes: Probes) -> tuple[str, str, str, str]:
    """`probes` as the parameters of a statement."""
    return texts(probes.queues), plain(probes.priorities), instants(probes.run_ats), plain(probes.ids)


class Mark(NamedTuple):
    """What a survey found in one range."""

    queue: str
    priority: int
    position: Position
    """Of the first due job; where there is none, of one that would have been due a second ago."""
    walk: float
    """Seconds from the start of the survey until it had read this range."""


@dataclass
class _Queue:
    surveyed_at: float
    walk: float
    found: bool
    """Whether the last claim had jobs of this queue, or might have had."""
    marks: dict[int, Position] = field(default_factory=dict[int, Position])

    @property
    def pause(self) -> float:
        """How long after a survey there should be no other."""
        return _SHARE * self.walk if self.walk > _SHORT_WALK else 0.0

    @property
    def life(self) -> float:
        """How long the marks may be used. None at all on a queue that is dry: an empty answer is verified."""
        return max(_LIFE, self.pause) if self.found else self.pause


class LowWater:
    """The marks of one process. Safe in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}

    def probes(self, queues: Sequence[str], priorities: Iterable[int]) -> Probes:
        """What to read now: from the marks while they may be used, otherwise a survey."""
        now = time.monotonic()
        with self._lock:
            known = [self._queues.get(queue) for queue in queues]
            usable = all(each is not None and now < each.surveyed_at + each.life for each in known)
        return (self.from_marks if usable else self.survey)(queues, priorities)

    def from_marks(self, queues: Sequence[str], priorities: Iterable[int]) -> Probes:
        """Each range from its mark, whatever its age; from its start where there is none."""
        ranges = [(queue, priority) for priority in priorities for queue in queues]
        with self._lock:
            known = {queue: each.marks for queue in queues if (each := self._queues.get(queue))}
            marks = [known.get(queue, {}).get(priority, _START) for queue, priority in ranges]
        return _probes(ranges, marks, is_survey=False)

    def survey(self, queues: Sequence[str], priorities: Iterable[int]) -> Probes:
        """Each range from its start."""
        ranges = [(queue, priority) for priority in priorities for queue in queues]
        return _probes(ranges, [_START] * len(ranges), is_survey=True)

    def may_survey(self, queues: Sequence[str]) -> bool:
        """Whether another survey would take no more than its share of the time."""
        now = time.monotonic()
        with self._lock:
            known = [self._queues.get(queue) for queue in queues]
            return all(each is None or now >= each.surveyed_at + each.pause for each in known)

    def note(self, probes: Probes, marks: Iterable[Mark], claimed: Sequence[JobRecord]) -> None:
        """What a claim that read `probes` found. `claimed` is in the order of claims: by run_at and id within
        a priority.
        """
        now = time.monotonic()
        with self._lock:
            if probes.is_survey:
                for queue in set(probes.queues):  # a paused one was not read, and is unknown from now on
                    self._queues.pop(queue, None)
                for mark in marks:
                    entry = self._queues.setdefault(mark.queue, _Queue(now, walk=0.0, found=bool(claimed)))
                    entry.marks[mark.priority] = mark.position
                    entry.walk = max(entry.walk, mark.walk)
            if claimed and claimed[0].priority == claimed[-1].priority and len(set(probes.queues)) == 1:
                claimed = claimed[-1:]  # they are all of one range, as most claims are
            # In the order of claims, so that the last of a range is the furthest.
            furthest = {(record.queue, record.priority): record for record in claimed}
            for (queue, priority), record in furthest.items():
                known = self._queues.get(queue)
                if known is not None:
                    position = (record.run_at or EARLIEST_RUN_AT, record.id)
                    known.found = True
                    known.marks[priority] = max(position, known.marks.get(priority, _START))


def _probes(ranges: Sequence[tuple[str, int]], marks: Sequence[Position], *, is_survey: bool) -> Probes:
    return Probes(
        queues=[queue for queue, _ in ranges],
        priorities=[priority for _, priority in ranges],
        run_ats=[run_at for run_at, _ in marks],
        ids=[job_id for _, job_id in marks],
        is_survey=is_survey,
    )

"""The low-water hint: where a claim may begin to read.

A claimed job leaves a dead entry in the index of ready jobs. As long as any session of the cluster holds an
old snapshot (a report, a backup, a forgotten transaction), these can't be removed, and each claim walks over
all of them to find the first that lives. The hint lets it start at the last job that this process saw there.

It is only a hint. A transaction that began earlier and commits later puts its job behind it, and so does a
claim of another process that is undone. So it is dropped every second, and when a claim came back empty; a
job that returns to ready gets a new run_at and lies before it anyway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from jobcontract.contract import EARLIEST_RUN_AT, JobRecord

Position: TypeAlias = tuple[datetime, str]

_START: Position = (EARLIEST_RUN_AT, "00000000-0000-0000-0000-000000000000")
_LIFE = 1.0
# Reading from the start costs what the dead entries cost; it shall take no more than a twentieth of the time.
_SHARE = 20.0


class Probes(NamedTuple):
    """The ranges that one claim reads, as parallel arrays in the order in which they are wanted."""

    queues: list[str]
    priorities: list[int]
    run_ats: list[datetime]
    ids: list[str]
    hinted: bool
    """Whether any of them begins behind the start."""


class LowWater:
    """The hints of one process. Safe in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[tuple[str, int], Position] = {}
        self._until = 0.0
        self._life = _LIFE

    def probes(self, queues: Sequence[str], priorities: Iterable[int]) -> Probes:
        """Where a claim from `queues` begins now."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._marks.clear()
                self._until = time.monotonic() + self._life
            ranges = [(queue, priority) for priority in priorities for queue in queues]
            marks = [self._marks.get(each, _START) for each in ranges]
        return Probes(
            queues=[queue for queue, _ in ranges],
            priorities=[priority for _, priority in ranges],
            run_ats=[run_at for run_at, _ in marks],
            ids=[job_id for _, job_id in marks],
            hinted=any(mark is not _START for mark in marks),
        )

    def advance(self, claimed: Iterable[JobRecord]) -> None:
        """These jobs were claimed: what is due in their ranges is where they were, or behind."""
        with self._lock:
            for record in claimed:
                mark = (record.run_at or EARLIEST_RUN_AT, record.id)
                if mark > self._marks.get((record.queue, record.priority), _START):
                    self._marks[record.queue, record.priority] = mark

    def drop(self) -> None:
        """Read from the start again."""
        with self._lock:
            self._marks.clear()

    def charge(self, seconds: float) -> None:
        """A claim that read from the start took `seconds`."""
        with self._lock:
            self._life = max(_LIFE, _SHARE * seconds)

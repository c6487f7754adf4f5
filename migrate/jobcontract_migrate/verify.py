"""The comparison of two stores, job by job: what was moved has to be there, as it was, and nothing else.

Both stores are read in the order of the ids, newest first, a page at a time, while workers go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from jobcontract.contract import State
from jobcontract.side_doors import Lookup, MovedJob, MovesIn, MovesOut, Page, StoredJob
from jobcontract_migrate.ahead import one_ahead
from jobcontract_migrate.broker import BrokerEnd
from jobcontract_migrate.canary import CANARY

LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_PAGE = 500
_RESOLUTION = timedelta(milliseconds=1)

Finding: TypeAlias = Literal["missing", "altered", "added"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A job that is not as it should be at the target."""

    job_id: str
    finding: Finding
    detail: str


@dataclass(frozen=True, slots=True)
class Window:
    """When nobody registered at the target, by its own clock: a job that was created then came from the
    source, or nobody knows from where.
    """

    begin: datetime | None
    """None: the target was empty, and all that is older than `end` came by the move."""
    end: datetime

    def holds(self, at: datetime) -> bool:
        """Whether `at` lies in it."""
        return at < self.end and (self.begin is None or at >= self.begin)


class Comparison:
    """One look at both stores. `differences` reads them; `compared` counts meanwhile."""

    def __init__(
        self, source: MovesOut, target: Lookup, window: Window | None, at_page: Callable[[], None]
    ) -> None:
        """`at_page` is called now and then while it reads, and may raise."""
        self._source = source
        self._target = target
        self._window = window
        self._at_page = at_page
        self.compared = 0
        """Jobs that were moved, and looked for at the target."""

    def differences(self) -> Iterator[Difference]:
        """Every job that is missing, altered or added; what the source's traces tell, the target is held
        against.
        """
        there = self._there()
        stored = next(there, None)
        for job_id, trace in self._traces():
            self.compared += 1
            while stored is not None and stored.record.id > job_id:
                yield from self._unasked(stored)
                stored = next(there, None)
            found = stored is not None and stored.record.id == job_id
            if stored is None or not found or stored.state in (State.MOVING, State.MOVED):
                stored = next(there, None) if found else stored
                what = "a job" if trace is None else f"a {trace.state} job of {trace.record.queue!r}"
                yield Difference(job_id, "missing", what)
                continue
            altered = [] if trace is None else _altered(trace, stored)
            if altered:
                yield Difference(job_id, "altered", ", ".join(altered))
            stored = next(there, None)
        while stored is not None:
            yield from self._unasked(stored)
            stored = next(there, None)

    def _unasked(self, stored: StoredJob) -> Iterator[Difference]:
        if self._window is None or not self._window.holds(stored.created_at) or stored.record.kind == CANARY:
            return
        if self._source.recall([stored.record])[0] is None:
            yield Difference(
                stored.record.id,
                "added",
                f"a {stored.state} job of {stored.record.queue!r} that never was at the source",
            )

    def _traces(self) -> Iterator[tuple[str, MovedJob | None]]:
        """What left the source, by its id, and as it was; of a broker no more than the id."""
        if isinstance(self._source, BrokerEnd):
            for ids in one_ahead(_departed(self._source)):
                self._at_page()
                yield from ((job_id, None) for job_id in ids)
        for page in one_ahead(_buried(self._source)):
            self._at_page()
            yield from ((trace.record.id, trace) for trace in page)

    def _there(self) -> Iterator[StoredJob]:
        for page in one_ahead(_jobs(self._target)):
            self._at_page()
            yield from page


def _departed(source: BrokerEnd) -> Iterator[list[str]]:
    below = LAST_ID
    while ids := source.departed(below, _PAGE):
        yield ids
        below = ids[-1]


def _buried(source: MovesOut) -> Iterator[list[MovedJob]]:
    below = LAST_ID
    while page := source.buried(below, _PAGE):
        yield page
        below = page[-1].record.id


def _jobs(target: Lookup) -> Iterator[list[StoredJob]]:
    cursor: str | None = None
    while page := target.jobs(Page(limit=_PAGE, cursor=cursor)):
        yield page
        cursor = page[-1].cursor


def repair(source: MovesOut, target: MovesIn, epoch: int, missing: set[str]) -> int:
    """Store those of the `missing` jobs again of which the source has a trace; how many."""
    count = 0
    for page in _buried(source):
        lost = [job for job in page if job.record.id in missing]
        if lost:
            count += sum(arrival.stored for arrival in target.admit(epoch, lost))
    return count


def _altered(trace: MovedJob, stored: StoredJob) -> list[str]:
    """What is not as it was. Attempts, times and errors go on at the target; what runs at another time than
    it was registered for may have been requeued there.
    """
    was, now = trace.record, stored.record
    found = [
        name
        for name in ("kind", "queue", "priority", "max_attempts", "idempotency_key", "input_ref", "headers")
        if getattr(was, name) != getattr(now, name)
    ]
    if stored.attempt < trace.attempt:
        found.append("attempt")
    if abs(stored.created_at - trace.created_at) > _RESOLUTION:
        found.append("created_at")
    return found

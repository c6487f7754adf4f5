"""The mover: one batch after the other, from a store that knows nothing of the other.

A batch is hidden at the source, admitted by the target, and buried at the source; each of the three is
durable, and safe to repeat, before the next begins::

    ready at the source --hide--> moving --admit--> (in both, claimable at the target) --bury--> moved

Killed anywhere, the source knows what is half-way (`MovesOut.hidden`), and going on means doing the rest. Pop
and push would lose jobs, copy and delete would run them twice.

Two batches are under way, one at either end::

    target:  admit 1         admit 2         admit 3
    source:  hide 2          bury 1, hide 3  bury 2, hide 4
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from jobcontract.contract import State
from jobcontract.side_doors import Arrival, MovedJob, MovesIn, MovesOut
from jobcontract_migrate.control import Conflict

FIRST_ID = "00000000-0000-0000-0000-000000000000"

Reach = Callable[[str], None]
"""Called at each named point between two effects: where a test kills the process."""


class Mover:
    """Moves jobs of one step, from `source` to `target`."""

    def __init__(
        self,
        source: MovesOut,
        target: MovesIn,
        epoch: int,
        keep_conflicts: Callable[[Sequence[Conflict]], None],
        reach: Reach,
    ) -> None:
        self._source = source
        self._target = target
        self._epoch = epoch
        self._keep_conflicts = keep_conflicts
        self._reach = reach

    def batches(self, limit: int, may_go_on: Callable[[], bool]) -> Iterator[int]:
        """Move at most `limit` jobs at a time until there are none for now, or until `may_go_on` says no,
        which is asked before each batch but the first. After each, how many. What was hidden is at the target
        when it ends.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="source") as at_source:
            current = self._source.hide(self._epoch, limit)
            last: list[str] = []
            while current or last:
                if current:
                    self._reach("hidden")
                turn = at_source.submit(self._bury_and_hide, last, limit if current and may_go_on() else 0)
                try:
                    if current:
                        self._admit(current)
                        self._reach("admitted")
                finally:
                    wait([turn])  # nothing goes on by itself
                following = turn.result()
                if last:
                    self._reach("buried")
                    yield len(last)
                last, current = [job.record.id for job in current], following

    def _bury_and_hide(self, job_ids: Sequence[str], limit: int) -> list[MovedJob]:
        if job_ids:
            self._source.bury(self._epoch, job_ids)
        return self._source.hide(self._epoch, limit) if limit else []

    def finish_hidden(self, limit: int) -> int:
        """Go on where an earlier mover was stopped; how many jobs were half-way."""
        count = 0
        while hidden := self._source.hidden(limit):
            count += self._finish(hidden)
        return count

    def copy_keys(self, limit: int, *, only_done: bool = False) -> Iterator[int]:
        """Have the target know every key that the source holds: done jobs as they are, all others as
        placeholders (not with `only_done`). After each page, how many were looked at.
        """
        after = FIRST_ID
        while page := self._source.keyed(after, limit):
            after = page[-1].record.id
            if only_done:
                page = [job for job in page if job.state is State.DONE]
            if page:
                self._admit(page)
            self._reach("keys copied")
            yield len(page)

    def _finish(self, hidden: Sequence[MovedJob]) -> int:
        if not hidden:
            return 0
        self._admit(hidden)
        self._reach("admitted")
        self._source.bury(self._epoch, [job.record.id for job in hidden])
        self._reach("buried")
        return len(hidden)

    def _admit(self, jobs: Sequence[MovedJob]) -> None:
        arrivals = self._target.admit(self._epoch, jobs)
        conflicts = [
            _conflict(job, arrival)
            for job, arrival in zip(jobs, arrivals, strict=True)
            if arrival.key_holder is not None
        ]
        if conflicts:
            self._keep_conflicts(conflicts)


def _conflict(job: MovedJob, arrival: Arrival) -> Conflict:
    record = job.record
    return Conflict(record.id, arrival.key_holder or "", record.queue, record.idempotency_key or "")

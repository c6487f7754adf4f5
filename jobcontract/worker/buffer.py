"""The claimed jobs that wait for a free hand, the slots in which jobs run, and how much to claim next.

Claims are cheapest in hundreds, and a job that is claimed but not started can't be started by an idle worker
elsewhere. So the buffer is measured in time: it holds what the hands will start within `HORIZON`, judging by
how long the handlers took lately, and nothing beyond the free hands while that is unknown. Short handlers get
large claims, long ones get exactly what they can start.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from jobcontract.worker.hold import Hold
from jobcontract.worker.limit import KindLimit, MeanDuration

HORIZON = 0.1
"""Seconds of work to hold ahead."""


class Deferred(NamedTuple):
    """A claimed job that its kind's concurrency limit has no room for, and when to look at it again."""

    hold: Hold
    delay: timedelta


class Buffer:
    """Safe in threads. One claimer puts, the hands take; `slots` jobs run at once."""

    def __init__(self, slots: int, batch: int, limits: Mapping[str, int]) -> None:
        self._slots = slots
        self._batch = batch
        self._limits = {kind: KindLimit(limit) for kind, limit in limits.items()}
        self._duration = MeanDuration()
        self._ready: deque[Hold] = deque()
        self._running = 0
        self._closed = False
        # One lock, four groups of waiters: hands without a job, the claimer without demand or with nothing
        # but jobs of kinds at their limit, and the end.
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._demand = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._vacancies = 0
        self._parked = 0
        self._waking = False
        self._wanted_below = -1

    # -- The claimer's side ------------------------------------------------------------------------

    def demand(self, timeout: float) -> int:
        """How many jobs to claim now. Blocks while there is no demand, `timeout` seconds at the longest; 0 is
        none.
        """
        with self._lock:
            limit = self._wanted()
            if limit == 0 and not self._closed:
                self._wanted_below = self._ahead() // 2
                self._demand.wait(timeout)
                self._wanted_below = -1
                limit = self._wanted()
            return 0 if self._closed else limit

    def put(self, holds: Iterable[Hold]) -> list[Deferred]:
        """Take claimed jobs in; back come those that are beyond the concurrency limit of their kind, and all
        of them once the buffer is closed.
        """
        deferred: list[Deferred] = []
        now = time.monotonic()
        with self._lock:
            for hold in holds:
                limit = self._limits.get(hold.claim.job.kind)
                if self._closed:
                    deferred.append(Deferred(hold, timedelta()))
                elif limit is None or limit.enter():
                    self._ready.append(hold)
                elif len(limit.waiting) < min(limit.ahead(HORIZON), self._batch):
                    limit.waiting.append(hold)
                else:
                    deferred.append(Deferred(hold, limit.deferral(now)))
            self._wake_a_hand()
        return deferred

    @property
    def vacancies(self) -> int:
        """How often a kind with a concurrency limit has had a slot to fill: a counter for `wait_for_room`."""
        return self._vacancies

    def note_vacancy(self) -> None:
        """A limit that holds elsewhere has room again, perhaps."""
        with self._lock:
            self._vacancies += 1
            self._room.notify_all()

    def wait_for_room(self, seen: int, timeout: float) -> None:
        """Block until `vacancies` is not `seen` any more, `timeout` seconds at the longest."""
        with self._lock:
            self._room.wait_for(lambda: self._vacancies != seen or self._closed, timeout)

    # -- The hands' side ---------------------------------------------------------------------------

    def take(self) -> Hold | None:
        """The next job to start; it has a slot until `free`. Blocks; None when the buffer is closed."""
        with self._lock:
            return self._take()

    def free(self, hold: Hold, seconds: float | None) -> None:
        """The slot of `hold` is free again; its handler took `seconds` (None: it was not started)."""
        with self._lock:
            self._free(hold, seconds)
            self._wake_a_hand()

    def exchange(self, hold: Hold, seconds: float | None) -> Hold | None:
        """`free`, then `take`, in one turn of the lock: no other hand is woken for what this one takes."""
        with self._lock:
            self._free(hold, seconds)
            return self._take()

    @property
    def starving(self) -> bool:
        """Jobs wait and no hand is free to take them: a hint, read without the lock."""
        return self._parked == 0 and bool(self._ready) and self._running < self._slots

    # -- The others' side --------------------------------------------------------------------------

    def withdraw(self, claimed_before: float) -> list[Hold]:
        """Take out what was claimed before that instant and still waits: the handlers take longer than they
        did, so nothing is claimed ahead until one has returned.
        """
        with self._lock:
            withdrawn = [hold for hold in self._ready if hold.claimed_at < claimed_before]
            for limit in self._limits.values():
                withdrawn += limit.withdraw(claimed_before)
            if withdrawn:
                self._take_out(withdrawn)
                self._duration.forget()
            return withdrawn

    def close(self) -> list[Hold]:
        """No more jobs go in or out; back come those that waited."""
        with self._lock:
            self._closed = True
            waiting = [*self._ready, *(hold for limit in self._limits.values() for hold in limit.waiting)]
            self._ready.clear()
            for limit in self._limits.values():
                limit.waiting.clear()
            self._work.notify_all()
            self._demand.notify_all()
            self._room.notify_all()
            return waiting

    def wait_until_idle(self, timeout: float) -> bool:
        """After `close`: block until no job runs, `timeout` seconds at the longest; whether none does."""
        with self._lock:
            return self._idle.wait_for(lambda: self._running == 0, timeout)

    # -- With the lock held ------------------------------------------------------------------------

    def _take(self) -> Hold | None:
        while not self._ready or self._running >= self._slots:
            if self._closed:
                return None
            self._parked += 1
            self._work.wait()
            self._parked -= 1
            self._waking = False
        self._running += 1
        hold = self._ready.popleft()
        self._wake_a_hand()
        if len(self._ready) <= self._wanted_below:
            self._demand.notify()
        return hold

    def _free(self, hold: Hold, seconds: float | None) -> None:
        self._running -= 1
        limit = self._limits.get(hold.claim.job.kind) if self._limits else None
        if seconds is not None:
            self._duration.add(seconds)
            if limit is not None:
                limit.duration.add(seconds)
        if limit is not None:
            self._leave(limit)
        if self._wanted_below >= 0 and self._slots - self._running > len(self._ready):
            self._demand.notify()
        if self._running == 0 and self._closed:
            self._idle.notify_all()

    def _ahead(self) -> int:
        """How many jobs to hold beyond those that free hands start at once."""
        mean = self._duration.seconds
        if mean is None:
            return 0
        most = 2 * self._batch  # one batch being started while the next is on its way
        return most if mean * most <= self._slots * HORIZON else int(self._slots * HORIZON / mean)

    def _wanted(self) -> int:
        free, ready, ahead = self._slots - self._running, len(self._ready), self._ahead()
        if free <= ready and ready > ahead // 2:
            return 0  # every hand has its next job: better one large claim later than a small one now
        return max(0, min(free + ahead - ready, self._batch))

    def _wake_a_hand(self) -> None:
        # One at a time, and each wakes the next: with handlers of microseconds the first hand empties the
        # buffer alone, and a crowd would only fight it for the interpreter lock.
        if self._parked and not self._waking and self._ready and self._running < self._slots:
            self._waking = True
            self._work.notify()

    def _leave(self, limit: KindLimit) -> None:
        following = limit.leave()
        if following is not None:
            self._ready.append(following)
        else:
            self._vacancies += 1
            self._room.notify_all()

    def _take_out(self, holds: list[Hold]) -> None:
        gone = {id(hold) for hold in holds}
        leaving = [hold for hold in self._ready if id(hold) in gone]
        self._ready = deque(hold for hold in self._ready if id(hold) not in gone)
        for hold in leaving:
            limit = self._limits.get(hold.claim.job.kind)
            if limit is not None:
                self._leave(limit)

"""The limits that hold across processes, in one worker: slots before a start, turns for a rate.

A claimed job of a limited kind passes here before the buffer. With its slots and its turn it goes on; a few
of the others wait here, for a slot of this worker may be theirs in a moment; the rest go back with a delay,
as those beyond a limit of this process do.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from jobcontract.backend import Backend
from jobcontract.errors import StoreError, Unsupported
from jobcontract.handlers import Handler, Handlers
from jobcontract.limits import SharedLimits, Slot, SlotRequest, shared_limits_of
from jobcontract.worker.buffer import HORIZON, Buffer, Deferred
from jobcontract.worker.hold import Hold, Holdings
from jobcontract.worker.limit import KindLimit
from jobcontract.worker.settle import NOT_STARTED, Settler

log = logging.getLogger("jobcontract.worker")

CONCURRENCY_KEY = "concurrency-key"
"""The header that says under which key `key_concurrency` counts a job; one without it is not counted."""
SLOT_LOST = "its place under a limit is lost"

_AHEAD = timedelta(seconds=1)
"""How far ahead turns are taken: what is claimed too early for them goes back."""
_LONGEST_WAIT = 1.0
"""Seconds that a job waits here for a slot before it goes back, for a worker that has one."""
_TRY_AGAIN = timedelta(seconds=1)
_PAUSE = 0.25
_MOST_TRIED = 50


class _Sorted(NamedTuple):
    ready: list[Hold]
    denied: list[Hold]


class WorkerLimits:
    """Safe in threads: the claimer admits, one loop takes turns, whoever settles says what is gone."""

    def __init__(
        self,
        backend: Backend,
        handlers: Handlers,
        lease: timedelta,
        buffer: Buffer,
        holdings: Holdings,
        settler: Settler,
        on_put: Callable[[], None],
    ) -> None:
        self._backend = backend
        self._limited = {each.kind: each for each in handlers if each.is_limited}
        longest = max((each.lease or lease for each in self._limited.values()), default=lease)
        # A job's own lease is renewed a moment later than its slots: they must not run out before it.
        self._length = longest * 1.5
        self._buffer = buffer
        self._holdings = holdings
        self._settler = settler
        self._on_put = on_put
        self._estimates = {
            kind: KindLimit(each.total_concurrency or 1) for kind, each in self._limited.items()
        }
        self._shared: SharedLimits | None = None
        self._changed = threading.Condition()
        self._with_slots: dict[int, Hold] = {}
        self._gone: deque[Hold] = deque()
        self._waiting: dict[str, deque[Hold]] = defaultdict(deque)
        self._timed: list[tuple[float, Hold]] = []
        self._keep_at = 0.0

    @property
    def needed(self) -> bool:
        """Whether any handler has such a limit."""
        return bool(self._limited)

    def admit(self, holds: Sequence[Hold]) -> tuple[list[Hold], list[Deferred]]:
        """Those of `holds`, just claimed, that may start now, and those that go back. The others wait here.

        Raises `Unsupported` when the store can't have limits.
        """
        limited = [hold for hold in holds if hold.handler.is_limited]
        if not limited:
            return list(holds), []
        free = [hold for hold in holds if not hold.handler.is_limited]
        try:
            found = self._try(limited)
        except StoreError as error:
            log.warning("limits can't be looked at now, and %d jobs go back: %s", len(limited), error)
            return free, [Deferred(hold, _TRY_AGAIN) for hold in limited]
        now = time.monotonic()
        deferred: list[Deferred] = []
        with self._changed:
            for hold in found.denied:
                kind, estimate = hold.claim.job.kind, self._estimates[hold.claim.job.kind]
                if len(self._waiting[kind]) < estimate.ahead(HORIZON):
                    self._waiting[kind].append(hold)
                else:
                    deferred.append(Deferred(hold, estimate.deferral(now)))
        return free + found.ready, deferred

    def gone(self, holds: Iterable[Hold]) -> None:
        """These are not held any more: their slots are free. Never blocks."""
        ours = [hold for hold in holds if hold.handler.is_limited]
        if not ours:
            return
        with self._changed:
            for hold in ours:
                if hold.started_at is not None and hold.finished_at is not None:
                    self._estimates[hold.claim.job.kind].duration.add(hold.finished_at - hold.started_at)
                if self._with_slots.pop(id(hold.claim), None) is not None:
                    self._gone.append(hold)
            self._changed.notify()

    def turn(self) -> float:
        """Free what is free, give it to those that wait, renew the rest. Blocks for a quarter of a second, or
        until there is something to do.
        """
        self._store()
        with self._changed:
            if not self._gone:
                self._changed.wait(self._until_next())
        self._free()
        self._serve_waiting()
        self._start_timed()
        self._keep()
        return 0

    def close(self) -> None:
        """Free what is gone, once. What can't be freed now runs out."""
        if self._gone:
            self._free()

    # -- Slots and turns ---------------------------------------------------------------------------

    def _store(self) -> SharedLimits:
        if self._shared is None:
            self._shared = shared_limits_of(self._backend.driver)
        if self._shared is None:
            kinds = ", ".join(sorted(self._limited))
            raise Unsupported(
                f"total_concurrency, key_concurrency and rate (of {kinds}) need PostgreSQL, a SQLite file, "
                f"or an outbox in one of them, and backend {self._backend.name!r} has none; "
                "use concurrency, which holds in each process, or configure an outbox"
            )
        return self._shared

    def _try(self, holds: Sequence[Hold]) -> _Sorted:
        """Ask for slots, and for turns for those that have them."""
        store = self._store()
        wanting = [hold for hold in holds if _slots_of(hold)]
        requests = [SlotRequest(hold.claim.lease, _slots_of(hold)) for hold in wanting]
        asked_at = time.monotonic()
        answers = store.take_slots(requests, self._length) if requests else []
        denied = [hold for hold, has in zip(wanting, answers, strict=True) if not has]
        with self._changed:
            for hold, has in zip(wanting, answers, strict=True):
                if has:
                    hold.slot_until = asked_at + self._length.total_seconds()
                    self._with_slots[id(hold.claim)] = hold
        out = {id(hold) for hold in denied}
        by_kind: dict[str, list[Hold]] = defaultdict(list)
        ready: list[Hold] = []
        for hold in holds:
            if id(hold) not in out:
                (ready if hold.handler.rate is None else by_kind[hold.claim.job.kind]).append(hold)
        for kind, rated in by_kind.items():
            rate = rated[0].handler.rate
            assert rate is not None
            now = time.monotonic()
            turns = store.take_turns(f"rate:{kind}", len(rated), rate.spacing, _AHEAD)
            with self._changed:
                for hold, turn in zip(rated, turns, strict=False):
                    if turn:
                        self._timed.append((now + turn.total_seconds(), hold))
                    else:
                        ready.append(hold)
            self._give_back(rated[len(turns) :])
            denied += rated[len(turns) :]
        return _Sorted(ready, denied)

    def _give_back(self, holds: Iterable[Hold]) -> None:
        with self._changed:
            for hold in holds:
                if self._with_slots.pop(id(hold.claim), None) is not None:
                    hold.slot_until = None
                    self._gone.append(hold)

    def _free(self) -> None:
        with self._changed:
            gone = list(self._gone)
        if gone:
            self._store().free_slots([hold.claim.lease for hold in gone])
            with self._changed:
                for _ in gone:
                    self._gone.popleft()
            self._buffer.note_vacancy()

    def _serve_waiting(self) -> None:
        now = time.monotonic()
        with self._changed:
            over = [
                hold
                for waiting in self._waiting.values()
                for hold in waiting
                if now - hold.claimed_at > _LONGEST_WAIT
            ]
            self._take_out(over)
            tried = [hold for waiting in self._waiting.values() for hold in list(waiting)[:_MOST_TRIED]]
        for hold in over:
            self._settler.put(hold, NOT_STARTED)
        if tried:
            found = self._try([hold for hold in tried if self._holdings.of(hold.claim) is not None])
            with self._changed:
                self._take_out(hold for hold in tried if hold not in found.denied)
            self._put(found.ready)

    def _take_out(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            waiting = self._waiting[hold.claim.job.kind]
            if hold in waiting:
                waiting.remove(hold)

    def _start_timed(self) -> None:
        now = time.monotonic()
        with self._changed:
            due = [hold for at, hold in self._timed if at <= now]
            self._timed = [(at, hold) for at, hold in self._timed if at > now]
        self._put([hold for hold in due if self._holdings.of(hold.claim) is not None])

    def _put(self, holds: list[Hold]) -> None:
        if holds:
            for hold, _ in self._buffer.put(holds):
                self._settler.put(hold, NOT_STARTED)
            self._on_put()

    def _keep(self) -> None:
        now = time.monotonic()
        if now < self._keep_at:
            return
        with self._changed:
            held = list(self._with_slots.values())
        left = [hold for hold in held if self._holdings.of(hold.claim) is None]
        self._give_back(left)  # its end overtook the answer that gave it a slot
        held = [hold for hold in held if hold not in left]
        if held:
            kept = self._store().keep_slots([hold.claim.lease for hold in held], self._length)
            for hold, has in zip(held, kept, strict=True):
                if has:
                    hold.slot_until = now + self._length.total_seconds()
                elif hold.finished_at is None:
                    hold.cancel(SLOT_LOST)
        self._keep_at = now + self._length.total_seconds() / 6

    def _until_next(self) -> float:
        now = time.monotonic()
        soonest = min((at - now for at, _ in self._timed), default=_PAUSE)
        return max(0.001, min(soonest, _PAUSE, self._length.total_seconds() / 20))


def _slots_of(hold: Hold) -> tuple[Slot, ...]:
    handler: Handler = hold.handler
    kind = handler.kind
    found: list[Slot] = []
    if handler.total_concurrency is not None:
        found.append(Slot(f"kind:{kind}", handler.total_concurrency))
    key = hold.claim.job.headers.get(CONCURRENCY_KEY)
    if handler.key_concurrency is not None and key is not None:
        found.append(Slot(f"key:{kind}:{key}", handler.key_concurrency))
    return tuple(found)

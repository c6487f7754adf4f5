"""The claimer: the one thread that takes jobs from the store."""

from __future__ import annotations

import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from jobcontract.backend import Backend
from jobcontract.context import JobContext
from jobcontract.contract import Claim, ConnectionLease
from jobcontract.errors import Unsupported
from jobcontract.execute import Outcome, Released, unknown_kind
from jobcontract.handlers import Handler, Handlers
from jobcontract.worker.buffer import Buffer
from jobcontract.worker.hold import Hold, Holdings
from jobcontract.worker.limits import WorkerLimits
from jobcontract.worker.options import WorkerOptions
from jobcontract.worker.settle import Settler

log = logging.getLogger("jobcontract.worker")

_SHORT_WAIT = timedelta(milliseconds=100)
_FIRST_PAUSE = 0.05
_FIRST_TO_THE_HANDS = 0.0005
"""Seconds until the store is asked for more than it had: the hands that were woken need the interpreter lock,
which we, and a driver's thread, would hold meanwhile.
"""
_LONGEST_CLOG = 1.0
_UNSETTLED_BATCHES = 4
_BACKLOG_PAUSE = 0.02
_REMINDER = 60.0


@dataclass(slots=True)
class _Clog:
    """A queue whose claims gave nothing that can run here now: left alone for longer each time."""

    until: float
    times: int


class Claimer:
    """Claims what the buffer asks for, and puts each job where it belongs."""

    def __init__(
        self,
        backend: Backend,
        handlers: Handlers,
        options: WorkerOptions,
        buffer: Buffer,
        holdings: Holdings,
        settler: Settler,
        *,
        limits: WorkerLimits,
        extend: Callable[[Claim, timedelta | None], None],
        on_put: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> None:
        self._backend = backend
        self._handlers = handlers
        self._options = options
        self._buffer = buffer
        self._holdings = holdings
        self._settler = settler
        self._limits = limits
        self._extend = extend
        self._on_put = on_put
        self._on_drained = on_drained
        self._lease: timedelta | None = None
        self._clogs: dict[str, _Clog] = {}
        self._vacancies = 0
        self._fruitless = 0
        self._reminded: dict[str, float] = {}
        self._deferred = 0.0
        self._deferred_until = 0.0
        self.claiming = False
        """A claim is under way: jobs may be ours that nobody here knows of yet."""
        self.has_claimed = False
        """The store has answered a claim, with jobs or without."""

    def turn(self) -> float:
        """Claim once, if jobs are wanted. How long to pause before the next time."""
        if self._settler.backlog > _UNSETTLED_BATCHES * self._options.batch:
            return _BACKLOG_PAUSE  # a store that takes no outcomes gets no more jobs out of us
        limit = self._buffer.demand(timeout=1.0)
        if not limit:
            return 0
        queues = self._unclogged()
        if not queues:
            self._buffer.wait_for_room(self._vacancies, self._clogged_for())
            return 0
        self.claiming = True
        try:
            claims, asked_at, lease = self._claim(queues, limit)
            if claims:
                self._place(claims, asked_at, lease)
        finally:
            self.claiming = False
        if len(claims) == limit:
            self._fruitless = 0
            return 0
        return self._wait(queues, found=len(claims))

    # -- Claiming ----------------------------------------------------------------------------------

    def _claim(self, queues: Sequence[str], limit: int) -> tuple[list[Claim], float, timedelta]:
        lease = self._lease
        if lease is None:
            lease = self._lease = self._claim_lease()
        asked_at = time.monotonic()
        claims = self._backend.claim(queues=queues, limit=limit, lease=lease)
        self.has_claimed = True
        return claims, asked_at, lease

    def _claim_lease(self) -> timedelta:
        """The shortest lease of all kinds: a claim can't know which kinds it will get, and a lease that is
        too short is renewed in time, to the kind's own length, while one that is too long hides a dead
        worker's job.
        """
        limits = self._backend.capabilities.lease
        if isinstance(limits, ConnectionLease):
            return limits.longest
        leases = [self._options.lease, *(one.lease for one in self._handlers if one.lease is not None)]
        if max(leases) > limits.longest or min(leases) < limits.shortest:
            raise Unsupported(
                f"backend {self._backend.name} gives leases from {limits.shortest} to {limits.longest}; "
                f"the worker and its handlers ask for {min(leases)} to {max(leases)}"
            )
        return min(leases)

    def _place(self, claims: Sequence[Claim], asked_at: float, claimed_for: timedelta) -> None:
        now = time.monotonic()
        seconds = claimed_for.total_seconds()
        deadline, renew_at = asked_at + seconds, asked_at + seconds / 3
        holds: list[Hold] = []
        unknown: list[tuple[Hold, Outcome]] = []
        for claim in claims:
            handler = self._handlers.get(claim.job.kind)
            hold = self._hold(claim, handler or _NOBODY, deadline, renew_at, now)
            if handler is None:
                unknown.append((hold, unknown_kind(claim)))
            else:
                holds.append(hold)
        self._holdings.add([*holds, *(hold for hold, _ in unknown)])
        admitted, deferred = self._limits.admit(holds)
        deferred += self._buffer.put(admitted)
        self._on_put()
        for hold, outcome in unknown:
            self._settler.put(hold, outcome)
        for hold, delay in deferred:
            self._settler.put(hold, Released(delay, "it has no place here now"))
            self._deferred = max(self._deferred, delay.total_seconds())
        if unknown:
            self._say_unknown([hold.claim for hold, _ in unknown])
        if unknown or deferred:
            self._note_clogs(claims, {id(hold.claim) for hold, _ in (*unknown, *deferred)}, now)
        else:
            self._clogs.clear()

    def _hold(self, claim: Claim, handler: Handler, deadline: float, renew_at: float, now: float) -> Hold:
        most = claim.job.max_attempts
        if handler.max_attempts is not None:
            most = min(most, handler.max_attempts)
        context = JobContext(claim, max_attempts=most, extend=self._extend)
        lease = (handler.lease or self._options.lease).total_seconds()
        return Hold(claim, handler, context, lease, deadline, renew_at, now)

    # -- What can't run here now -------------------------------------------------------------------

    def _unclogged(self) -> list[str]:
        if self._vacancies != self._buffer.vacancies:
            self._vacancies = self._buffer.vacancies
            self._clogs.clear()
        if not self._clogs:
            return list(self._options.queues)
        now = time.monotonic()
        return [
            queue
            for queue in self._options.queues
            if (clog := self._clogs.get(queue)) is None or clog.until <= now
        ]

    def _clogged_for(self) -> float:
        """Seconds until the next queue is worth another look, of those that are left alone now."""
        now = time.monotonic()
        return min((clog.until - now for clog in self._clogs.values() if clog.until > now), default=0.0)

    def _note_clogs(self, claims: Sequence[Claim], sent_back: set[int], now: float) -> None:
        """A queue of which everything went back is left alone for a moment, or its whole backlog would be
        claimed and released at full speed.
        """
        useful: dict[str, bool] = defaultdict(bool)
        for claim in claims:
            useful[claim.lease.queue] |= id(claim) not in sent_back
        for queue, was_useful in useful.items():
            if was_useful:
                self._clogs.pop(queue, None)
                continue
            times = self._clogs[queue].times + 1 if queue in self._clogs else 1
            longest = min(_LONGEST_CLOG, self._options.poll_interval.total_seconds())
            self._clogs[queue] = _Clog(now + min(longest, _FIRST_PAUSE * 2 ** min(times, 10)), times)

    def _say_unknown(self, claims: Sequence[Claim]) -> None:
        """Loudly, and once a minute per kind: a queue full of them must not become a log full of them."""
        now = time.monotonic()
        for kind in {claim.job.kind for claim in claims}:
            if now - self._reminded.get(kind, -_REMINDER) < _REMINDER:
                continue
            self._reminded[kind] = now
            example = next(claim for claim in claims if claim.job.kind == kind)
            log.error(
                "no handler for kind %r (job %s): such jobs are put back with a delay, for a worker that "
                "has one; this worker handles %s",
                kind,
                example.job.id,
                ", ".join(self._handlers.kinds),
                extra={"kind": kind, "job_id": str(example.job.id), "queue": example.job.queue},
            )

    # -- Waiting -----------------------------------------------------------------------------------

    def _wait(self, queues: Sequence[str], found: int) -> float:
        """The claim gave less than was asked for: wait for a hint, or for the poll interval."""
        if found:
            # Perhaps all there was; perhaps others had locked the rest for a moment.
            self._fruitless = 0
            time.sleep(_FIRST_TO_THE_HANDS)
            self._backend.wait(queues, _SHORT_WAIT)
            return 0
        self._fruitless += 1
        # Somewhat later than the interval: a wait and a claim may cost a query each, the rescue adds its own,
        # and an idle worker shall ask no more than once a second.
        poll = self._options.poll_interval.total_seconds() * random.uniform(1.1, 1.4)
        # Hints that turn out empty (others were quicker, the queue is paused) must not become a busy loop.
        pause = min(poll, _FIRST_PAUSE / 10 * 2 ** min(self._fruitless, 16))
        if self._options.until_empty:
            return self._wait_for_the_end(pause)
        for queue in queues:
            self._clogs.pop(queue, None)  # it is empty now, whatever was in it
        if self._clogs:
            poll = max(0.001, min(poll, self._clogged_for()))
        hinted = self._backend.wait(queues, timedelta(seconds=poll))
        if not hinted:
            self._fruitless = 0
            return 0
        return pause if self._fruitless > 1 else 0

    def _wait_for_the_end(self, pause: float) -> float:
        if not self._holdings.wait_until_empty(pause):
            return 0
        if self._deferred:  # the store knows of the releases only now, and counts their delay from then
            # An earlier one can have been for longer.
            self._deferred_until = max(self._deferred_until, time.monotonic() + self._deferred)
            self._deferred = 0.0
        if time.monotonic() >= self._deferred_until and self._store_is_empty():
            self._on_drained()
            return pause
        self._backend.wait(self._options.queues, timedelta(seconds=pause))
        return 0

    def _store_is_empty(self) -> bool:
        if not self._backend.capabilities.has("stats"):
            return True
        ours = set(self._options.queues)
        return not any(
            one.running or (one.ready and not one.paused)
            for one in self._backend.stats()
            if one.queue in ours
        )


def _never(input: object) -> None:
    raise AssertionError(f"a job without a handler was run: {type(input).__name__}")


_NOBODY = Handler(kind="unknown", function=_never, input_type=None, takes_context=False, is_async=False)

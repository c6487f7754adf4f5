"""Telling the store what came of the jobs: outcomes are gathered for a moment and sent in batches."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from jobcontract.backend import Backend
from jobcontract.contract import MAX_CLAIM_LIMIT, Claim, Failure, State, Verdict
from jobcontract.durations import format_duration
from jobcontract.errors import StoreError, StoreUnavailable
from jobcontract.execute import COMPLETED, Completed, Failed, Outcome, Released
from jobcontract.worker.health import StoreHealth
from jobcontract.worker.hold import MOST_IDS, Hold, Holdings, describe
from jobcontract.worker.loops import PATIENCE

log = logging.getLogger("jobcontract.worker")

GATHERING = 0.003
"""Seconds that outcomes wait for others. Also the most that it adds to the life of a job."""
NOT_STARTED = Released(timedelta(), "it was not started")
_VERB = "settle"


@dataclass(slots=True)
class Tally:
    """How many jobs ended which way in this worker."""

    completed: int = 0
    failed: int = 0
    """Attempts that failed, those of the dead included."""
    dead: int = 0
    released: int = 0
    lost: int = 0
    """Outcomes that were dropped, because the lease was over."""


@dataclass(slots=True, eq=False)
class _Settlement:
    hold: Hold
    outcome: Outcome
    tried: bool = False


_Send = Callable[[list[_Settlement]], list[Verdict]]


class Settler:
    """One thread that takes outcomes from the hands and tells the store.

    The first outcome of a job counts, later ones are dropped. While the store can't be reached an outcome is
    kept and tried again, and the lease goes on being renewed, for as long as the lease lasts; then the
    outcome is dropped, and the rescue brings the job back.
    """

    def __init__(self, backend: Backend, holdings: Holdings, health: StoreHealth) -> None:
        self._backend = backend
        self._holdings = holdings
        self._health = health
        self.tally = Tally()
        self._inbox: deque[tuple[Hold, Outcome]] = deque()
        self._pending: list[_Settlement] = []
        self._arrived = threading.Event()
        self._closing = threading.Event()
        self._give_up_at: float | None = None
        self._prepare: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="jobcontract-settle", daemon=True)

    def start(self, prepare: Callable[[], None]) -> None:
        """Begin. `prepare` is called once, in the thread, before anything is sent; it raises nothing."""
        self._prepare = prepare
        self._thread.start()

    def put(self, hold: Hold, outcome: Outcome) -> None:
        """`outcome` is what came of `hold`. Never blocks; an append, and at most one wake per batch."""
        if hold.finished_at is None:
            hold.finished_at = time.monotonic()
        self._inbox.append((hold, outcome))
        if not self._arrived.is_set():
            self._arrived.set()

    @property
    def thread(self) -> threading.Thread:
        """The thread, which lives until `close`."""
        return self._thread

    @property
    def backlog(self) -> int:
        """How many outcomes the store does not know yet."""
        return len(self._inbox) + len(self._pending)

    def close(self, timeout: float) -> bool:
        """Send what is left, for `timeout` seconds at the longest; whether everything was."""
        self._give_up_at = time.monotonic() + timeout
        self._closing.set()
        self._arrived.set()
        self._thread.join(timeout + 1)
        return not self._inbox and not self._pending

    def _run(self) -> None:
        if self._prepare is not None:
            self._prepare()
        failures = 0
        while True:
            if failures:
                self._pause(PATIENCE.delay(failures).total_seconds())
            elif not self._pending:
                self._arrived.wait()
            # Cleared before the inbox is emptied: what comes later sets it again.
            self._arrived.clear()
            if not self._closing.is_set():
                time.sleep(GATHERING)
            failures = 0 if self._turn() else failures + 1
            if self._closing.is_set() and (not (self._inbox or self._pending) or self._out_of_time()):
                return

    def _turn(self) -> bool:
        """Send what is there; whether none of it has to be sent again.

        Nothing that a driver or a log's filter raises ends the thread: a worker that can't tell what came of
        its jobs, and claims on, would run all of them again and again.
        """
        try:
            self._collect()
            return self._settle()
        except Exception as error:
            self._health.failed(_VERB, error)
            for one in self._pending:  # some of it may have been sent
                one.tried = True
            return False

    def _pause(self, seconds: float) -> None:
        if self._closing.is_set():
            time.sleep(min(seconds, 0.2))  # the end is near, and bounded by `close`
        else:
            self._closing.wait(seconds)

    def _out_of_time(self) -> bool:
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at

    def _collect(self) -> None:
        """The inbox becomes settlements; what is late or lost is dropped."""
        late: list[Hold] = []
        lost: list[Hold] = []
        while self._inbox:
            hold, outcome = self._inbox.popleft()
            if hold.settled:
                if not isinstance(outcome, Released):
                    late.append(hold)
                continue
            hold.settled = True
            if hold.lost:
                lost.append(hold)
            else:
                self._pending.append(_Settlement(hold, outcome))
        if late:
            self._say_dropped(late, "another outcome of the same run came before")
        if lost:
            self.tally.lost += len(lost)
            self._holdings.discard(lost)
            if ran := [hold for hold in lost if hold.started_at is not None]:
                self._say_dropped(ran, "the lease is lost")

    def _settle(self) -> bool:
        """Send what is pending, verb by verb; whether none of it has to be sent again."""
        if not self._pending:
            return True
        completed: list[_Settlement] = []
        failed: list[_Settlement] = []
        released: dict[timedelta, list[_Settlement]] = {}
        for settlement in self._still_ours():
            outcome = settlement.outcome
            if isinstance(outcome, Completed):
                completed.append(settlement)
            elif isinstance(outcome, Failed):
                failed.append(settlement)
            else:
                released.setdefault(outcome.delay, []).append(settlement)
        kept: list[_Settlement] = []
        kept += self._send(completed, lambda batch: self._backend.complete_many(_claims(batch)))
        kept += self._send(failed, lambda batch: self._backend.fail_many(_failures(batch)))
        for delay, batch in released.items():
            kept += self._send(batch, self._releasing(delay))
        self._pending = kept
        if not kept:
            self._health.worked(_VERB)
        return not kept

    def _releasing(self, delay: timedelta) -> _Send:
        return lambda batch: self._backend.release(_claims(batch), delay=delay)

    def _still_ours(self) -> list[_Settlement]:
        """What is pending, less those whose lease ran out before the store could be told."""
        now = time.monotonic()
        over = [one for one in self._pending if one.tried and (one.hold.lost or now >= one.hold.deadline)]
        if not over:
            return self._pending
        self.tally.lost += len(over)
        self._holdings.discard(one.hold for one in over)
        log.warning(
            "gave up on the outcomes of %d jobs, among them %s: the store could not be told within the "
            "lease; the jobs will run again",
            len(over),
            over[0].hold.claim.job.id,
            extra={"job_ids": [str(one.hold.claim.job.id) for one in over[:MOST_IDS]]},
        )
        gone = {id(one) for one in over}
        return [one for one in self._pending if id(one) not in gone]

    def _send(self, settlements: list[_Settlement], send: _Send) -> list[_Settlement]:
        """Send in rounds of one statement each; back come those that have to be sent again."""
        kept: list[_Settlement] = []
        for start in range(0, len(settlements), MAX_CLAIM_LIMIT):
            kept += self._send_round(settlements[start : start + MAX_CLAIM_LIMIT], send)
        return kept

    def _send_round(self, batch: list[_Settlement], send: _Send) -> list[_Settlement]:
        try:
            verdicts = send(batch)
        except StoreError as error:
            if not isinstance(error, StoreUnavailable) and len(batch) > 1:
                # Something in the batch is refused. It must not take the others along.
                return [kept for one in batch for kept in self._send_round([one], send)]
            return self._keep(batch, error)
        except Exception as error:
            return self._keep(batch, error)
        self._holdings.discard(one.hold for one in batch)
        self._record(batch, verdicts)
        return []

    def _keep(self, batch: list[_Settlement], error: Exception) -> list[_Settlement]:
        self._health.failed(_VERB, error)
        for one in batch:
            one.tried = True
        return batch

    def _record(self, batch: Sequence[_Settlement], verdicts: Sequence[Verdict]) -> None:
        tally = self.tally
        lost: list[_Settlement] = []
        for one, verdict in zip(batch, verdicts, strict=True):
            if not verdict.applied:
                lost.append(one)
            elif one.outcome is COMPLETED:
                tally.completed += 1
            elif isinstance(one.outcome, Failed):
                tally.failed += 1
                tally.dead += verdict.state is State.DEAD
                self._say_failed(one.hold.claim, one.outcome, verdict)
            else:
                tally.released += 1
        if lost:
            tally.lost += len(lost)
            self._say_lost([one for one in lost if one.hold.started_at is not None])
        if log.isEnabledFor(logging.DEBUG):
            for one in batch:
                log.debug(
                    "%s: %s", one.hold.claim, type(one.outcome).__name__, extra=describe(one.hold.claim)
                )

    def _say_failed(self, claim: Claim, outcome: Failed, verdict: Verdict) -> None:
        # The error's text may hold anything, also the input; it is with the job (`jobctl jobs show`).
        extra = {**describe(claim), "error_type": outcome.error_type}
        if verdict.state is State.DEAD:
            log.error(
                "job %s (%s) is dead: %s in attempt %d",
                claim.job.id,
                claim.job.kind,
                outcome.error_type,
                claim.attempt,
                extra=extra,
            )
        else:
            log.warning(
                "job %s (%s) failed with %s in attempt %d; again in %s",
                claim.job.id,
                claim.job.kind,
                outcome.error_type,
                claim.attempt,
                format_duration(outcome.retry_in),
                extra=extra,
            )

    def _say_lost(self, lost: Sequence[_Settlement]) -> None:
        for tried, why in (
            (False, "the lease was lost"),
            (True, "an earlier try had worked and its answer was lost, or the lease was"),
        ):
            holds = [one.hold for one in lost if one.tried is tried]
            if holds:
                self._say_dropped(holds, why)

    def _say_dropped(self, holds: Sequence[Hold], why: str) -> None:
        first = holds[0].claim
        log.warning(
            "the outcomes of %d jobs, among them %s (%s), attempt %d, are dropped: %s",
            len(holds),
            first.job.id,
            first.job.kind,
            first.attempt,
            why,
            extra={"job_ids": [str(hold.claim.job.id) for hold in holds[:MOST_IDS]]},
        )


def _claims(batch: Iterable[_Settlement]) -> list[Claim]:
    return [one.hold.claim for one in batch]


def _failures(batch: Iterable[_Settlement]) -> list[Failure]:
    return [
        Failure(one.hold.claim.lease, one.outcome.error, one.outcome.retry_in, one.outcome.permanent)
        for one in batch
        if isinstance(one.outcome, Failed)
    ]

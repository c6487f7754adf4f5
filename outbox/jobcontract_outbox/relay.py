"""The relay: for each target a loop that publishes what was committed. Any number of processes, no leader.

The targets know nothing of each other: one that is down, or a row that is refused, costs the others nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from jobcontract.backoff import Backoff
from jobcontract.config import RelayTable
from jobcontract.errors import JobContractError, StoreError, StoreUnavailable
from jobcontract_outbox.batch import Batch, Source
from jobcontract_outbox.breaker import Breaker
from jobcontract_outbox.ends import Ends, Opened
from jobcontract_outbox.leasing import LeasingSource
from jobcontract_outbox.locking import LockingSource
from jobcontract_outbox.pruning import Pruner
from jobcontract_outbox.publishing import Publisher, TargetFault, check_target
from jobcontract_outbox.registering import topic
from jobcontract_outbox.statements import Statements, single

log = logging.getLogger("jobcontract.relay")

_HOST_PATIENCE = Backoff(base=timedelta(milliseconds=200), cap=timedelta(seconds=5), jitter=0.5)
_FIRST_PAUSE = 0.02
"""Seconds of the first pause of an idle relay; each further one is twice as long. Short, for what commits
between an empty take and the wait for a notification wakes nobody."""
_PRUNE_EVERY = 30.0


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """See `jobcontract.config.RelayTable`."""

    batch: int = 500
    attempts: int = 10
    poll_interval: timedelta = timedelta(seconds=2)
    retention: timedelta = timedelta(days=14)

    @classmethod
    def of(cls, table: RelayTable, *, batch: int | None = None) -> RelayOptions:
        """From the configuration; `batch` wins over its own."""
        return cls(batch or table.batch, table.attempts, table.poll_interval, table.retention)


class Relay:
    """Publishes to all targets until it is stopped. Made from the configuration; opens its own drivers."""

    def __init__(self, ends: Sequence[Ends], options: RelayOptions) -> None:
        """Contacts nothing. Raises `ConfigError`."""
        self._options = options
        self.loops = [TargetLoop(each.name, each.open(), options) for each in ends]

    def check(self) -> None:
        """Raise `StoreError` when an outbox, or a target that can be reached, is not initialised.

        A target that is away is no reason not to begin: it will come back.
        """
        for loop in self.loops:
            loop.check()

    def run_once(self) -> None:
        """Publish what is due, target by target. Raises the first fault, after the other targets had their
        turn.
        """
        faults: list[StoreError] = []
        for loop in self.loops:
            try:
                loop.drain()
            except StoreError as error:
                faults.append(error)
        if faults:
            raise faults[0]

    def start(self) -> None:
        """Start the loops. Returns at once."""
        for loop in self.loops:
            loop.start()

    def stop(self) -> None:
        """Let each loop finish the batch that it has, confirms and all, and wait for it."""
        for loop in self.loops:
            loop.stop()
        for loop in self.loops:
            if loop.ident is not None:
                loop.join()

    def close(self) -> None:
        """Close the drivers."""
        for loop in self.loops:
            loop.close()


class TargetLoop(threading.Thread):
    """One target. Its public attributes may be read from any thread."""

    def __init__(self, name: str, opened: Opened, options: RelayOptions) -> None:
        super().__init__(name=f"jobcontract-relay-{name}", daemon=True)
        self.target_name = name
        self.opened = opened
        self.published = 0
        """How many jobs this loop has published."""
        self.fault = ""
        """Why nothing is published now; empty when nothing is wrong."""
        self.faults = 0
        """How often the target was at fault."""
        self._options = options
        self._breaker = Breaker()
        self._stopping = threading.Event()
        self._statements = Statements(opened.tables)
        self._wakes = opened.tables.wake(topic(name)) is not None
        self._publisher = Publisher(name, opened.target)
        self._counting = threading.Lock()
        self._helper: threading.Thread | None = None
        self._pruner = Pruner(opened.tables, self._statements, options.retention)
        self._prune_at = time.monotonic() + _PRUNE_EVERY
        self._remembered = False
        make = LockingSource if opened.tables.dialect == "postgresql" else LeasingSource
        self._source: Source = make(
            opened.tables, opened.driver.schema, self._statements, name, options.attempts
        )
        self._second_source = self._source.beside()

    def check(self) -> None:
        """Raise `StoreError` when the outbox, or the target if it is there, is not initialised."""
        with self.opened.tables.transaction() as transaction:
            self.opened.driver.schema.check(transaction)
        with contextlib.suppress(StoreUnavailable):
            check_target(self.target_name, self.opened.target)

    def drain(self) -> None:
        """Publish until nothing is due. Raises `StoreError` when the target, or the outbox, is at fault."""
        try:
            while not self._stopping.is_set():
                taken = self._turn(self._options.batch)
                self._raise_fault()
                # What the helper held is free again if it could not publish it.
                if not taken and not self._await_helper():
                    return
        finally:
            self._await_helper()

    def _raise_fault(self) -> None:
        if not self._breaker.closed:
            raise StoreUnavailable(f"the target {self.target_name!r}: {self._breaker.reason}")

    def prune(self) -> bool:
        """Forget some jobs that are past the retention; whether there may be more. The loop does it, too."""
        return self._pruner.prune()

    def stop(self) -> None:
        """Take no further batch. Returns at once; `join` waits for the confirms of the one under way."""
        self._stopping.set()

    def close(self) -> None:
        """Close the drivers."""
        self.opened.driver.close()

    def run(self) -> None:
        """Turns until `stop`. No exception ends it: a thread that dies is a relay that looks alive."""
        failures = 0
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            left_alone = self._breaker.remaining()
            if left_alone > 0:
                self._stopping.wait(left_alone)
                continue
            try:
                # After a fault one row shows whether the target is back, and one is what may go twice.
                taken = self._turn(self._options.batch if self._breaker.closed else 1)
                self._prune_in_turn()
                failures = 0
                if taken:
                    pause = _FIRST_PAUSE
                    continue
                if self._breaker.worked():  # nothing was there to try it with
                    self.fault = ""
                self._idle(pause)
                pause = min(pause * 2, self._options.poll_interval.total_seconds())
            except Exception as error:
                failures += 1
                self._failed(error, failures)
        self._await_helper()

    def _turn(self, limit: int) -> bool:
        """Take a batch, publish it, settle it. Whether there was anything to take."""
        most = self._most(limit)
        size = self._pass_on(self._source, most)
        if size >= most > 1 and self._breaker.closed:
            self._get_help(most)
        return size > 0

    def _get_help(self, most: int) -> None:
        """There is a backlog: have a second batch under way while the first one waits for its answers."""
        if self._helper is None or not self._helper.is_alive():
            self._helper = threading.Thread(
                target=self._help, args=(most,), name=f"{self.name}-helper", daemon=True
            )
            self._helper.start()

    def _help(self, most: int) -> None:
        try:
            while not self._stopping.is_set() and self._breaker.closed:
                if self._pass_on(self._second_source, most) < most:
                    return
        except Exception as error:  # the loop itself meets it, too, and tells
            log.debug("the second batch of %s failed: %s", self.target_name, error)

    def _await_helper(self) -> bool:
        """Whether there was one."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.join()
        return helper is not None

    def _pass_on(self, source: Source, most: int) -> int:
        """One batch of `source`; how many rows it had."""
        fault: TargetFault | None = None
        with source.take(most) as batch:
            if batch.size:
                try:
                    self._publisher.publish(batch)
                except TargetFault as error:
                    fault = error  # what was stored by then is settled with the rest
        self._tell(batch)
        with self._counting:
            self.published += len(batch.published)
            if fault is not None:
                self._opened_by(fault)
            elif batch.size:
                self._worked()
        if batch.size:
            self._remember()
        return batch.size

    def _most(self, limit: int) -> int:
        if limit == 1:
            return 1
        try:
            return min(limit, self.opened.target.capabilities.max_register_batch)
        except StoreUnavailable:  # one row finds out when it is back
            return 1

    def _tell(self, batch: Batch) -> None:
        """A line per reason, not per job: a queue that is missing refuses all that is for it."""
        reasons = {refusal.row.job_id: refusal.reason for refusal in batch.refused}
        together: dict[tuple[bool, str], list[str]] = {}
        for job_id, parked in batch.counted:
            together.setdefault((parked, reasons.get(job_id, "")), []).append(job_id)
        for (parked, reason), job_ids in together.items():
            log.log(
                logging.ERROR if parked else logging.WARNING,
                "%s refused %d jobs%s, the first is %s: %s",
                self.target_name,
                len(job_ids),
                " once too often, and they are parked" if parked else "",
                job_ids[0],
                reason,
                extra={"target": self.target_name, "job_ids": job_ids, "parked": parked},
            )

    def _opened_by(self, fault: TargetFault) -> None:
        first = self._breaker.closed
        pause = self._breaker.failed(str(fault))
        self.fault = str(fault)
        self.faults += 1
        log.log(
            logging.WARNING if first else logging.INFO,
            "%s takes no jobs, next try in %.1f s: %s",
            self.target_name,
            pause,
            fault,
            extra={"target": self.target_name},
        )

    def _worked(self) -> None:
        self.fault = ""
        if self._breaker.worked():
            log.info("%s takes jobs again", self.target_name, extra={"target": self.target_name})

    def _remember(self) -> None:
        """Once: write down what the target can do, for those who register while it is away."""
        if not self._remembered and self._breaker.closed:
            self._remembered = True
            try:
                self.opened.driver.remember()
            except JobContractError as error:
                log.info("what %s can do was not written down: %s", self.target_name, error)

    def _failed(self, error: Exception, failures: int) -> None:
        """The outbox's database is away, or something that nobody thought of."""
        pause = _HOST_PATIENCE.delay(failures).total_seconds()
        self.fault = str(error) or type(error).__name__
        expected = isinstance(error, JobContractError)
        log.log(
            logging.WARNING if failures == 1 or not expected else logging.INFO,
            "the outbox of %s can't be read, next try in %.1f s: %s",
            self.target_name,
            pause,
            error,
            exc_info=None if expected else error,
            extra={"target": self.target_name},
        )
        self._stopping.wait(pause)

    def _idle(self, longest: float) -> None:
        """Until something may be due, `longest` seconds at most."""
        seconds = min(longest, max(0.01, self._due_in()))
        if self._wakes:
            self.opened.host.wait([topic(self.target_name)], timedelta(seconds=seconds))
        else:
            self._stopping.wait(seconds)

    def _due_in(self) -> float:
        with self.opened.tables.transaction() as transaction:
            row = single(transaction, self._statements("next_due", self.target_name, self.target_name))
        # What is due already, and was not taken, is held up or another relay's.
        return float(row[0]) if row and row[0] is not None and row[0] > 0 else float("inf")

    def _prune_in_turn(self) -> None:
        if time.monotonic() >= self._prune_at:
            more = self.prune()
            self._prune_at = time.monotonic() + (0 if more else _PRUNE_EVERY)

"""Handing a batch to its target, and telling whose fault it is when the target does not take it.

==================  ==========================================  ========================================
fault               how it shows                                what follows
==================  ==========================================  ========================================
of a row            the target names it; or it is refused when  it counts an attempt, waits, and is parked
                    it stands alone, and the target is sound    in the end; the others go on
of the target       `StoreUnavailable`, or a refusal while the  nothing is counted; the target is left
                    target is not sound                         alone for a while
==================  ==========================================  ========================================
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from jobcontract import telemetry
from jobcontract.backoff import Backoff
from jobcontract.contract import MAX_ERROR_BYTES, Driver, JobRecord
from jobcontract.errors import InvalidJob, StoreError, StoreUnavailable, Unsupported
from jobcontract.jsontext import storable
from jobcontract.records import Undecodable, from_envelope
from jobcontract.side_doors import Gated, Installation, Lookup
from jobcontract_outbox.batch import Batch, Refusal, Waiting

ROW_BACKOFF = Backoff(base=timedelta(seconds=1), cap=timedelta(minutes=5))
_NOBODY = "00000000-0000-0000-0000-000000000000"


class TargetFault(Exception):
    """The target itself can't take jobs now. The message is the reason."""


def check_target(name: str, target: Driver) -> None:
    """Raise `StoreError` unless `target` is there and initialised. Writes nothing. Needs the rights of a
    producer, and no more where that is possible.
    """
    if isinstance(target, Gated):
        target.gate()
    elif isinstance(target, Lookup):
        target.get(_NOBODY)
    elif isinstance(target, Installation):
        missing = target.install(dry_run=True)
        if missing:
            first = missing[0].title.removeprefix("declare ")
            others = f" and {len(missing) - 1} more objects" if len(missing) > 1 else ""
            raise StoreError(
                f"the target {name!r} is not initialised: it lacks {first}{others}; "
                f"run `jobctl init --backend {name}`"
            )


class Publisher:
    """Publishes to `target`, which is called `name`, through its own `Driver.register`."""

    def __init__(self, name: str, target: Driver, backoff: Backoff = ROW_BACKOFF) -> None:
        self._name = name
        self._target = target
        self._backoff = backoff

    def publish(self, batch: Batch) -> None:
        """Fills in what became of the rows. Raises `TargetFault` as soon as the target is at fault; what was
        stored by then is among the published.

        Rows of a lane go one at a time, and the lane ends at its first refusal.
        """
        wave = [*batch.rows, *(lane[0] for lane in batch.lanes)]
        lanes = {lane[0].seq: lane[1:] for lane in batch.lanes}
        while wave and time.monotonic() < batch.until:
            offer = _Offer(self, batch)
            try:
                offer.rows(wave)
            finally:
                batch.published += offer.published
                batch.refused += offer.refused
            published = {row.seq for row in offer.published}
            follows = [rest for head, rest in lanes.items() if head in published and rest]
            wave = [rest[0] for rest in follows]
            lanes = {rest[0].seq: rest[1:] for rest in follows}

    def register(self, records: Sequence[JobRecord]) -> None:
        """Have the target store `records`. Raises what it raises."""
        with telemetry.publishing(self._name, records):
            self._target.register(records)

    def check(self) -> None:
        """Raises `TargetFault` when the target is not sound."""
        try:
            check_target(self._name, self._target)
        except StoreError as error:
            raise TargetFault(str(error)) from None

    def retry_in(self, row: Waiting) -> timedelta:
        """How long a row waits that is refused now."""
        return self._backoff.delay(row.attempts + 1)


@dataclass
class _Offer:
    """One wave."""

    publisher: Publisher
    batch: Batch
    published: list[Waiting] = field(default_factory=list[Waiting])
    refused: list[Refusal] = field(default_factory=list[Refusal])
    _sound: bool = False

    def rows(self, rows: Sequence[Waiting]) -> None:
        pairs: list[tuple[Waiting, JobRecord]] = []
        for row in rows:
            try:
                record = from_envelope(row.envelope)
            except Undecodable as error:
                self._refuse(row, error)
            else:
                # It is due: its target need not know that it once was not.
                pairs.append((row, record if record.run_at is None else record._replace(run_at=None)))
        self._offer(pairs)

    def _offer(self, pairs: Sequence[tuple[Waiting, JobRecord]]) -> None:
        if not pairs:
            return
        try:
            self.publisher.register([record for _, record in pairs])
        except (StoreError, Unsupported, InvalidJob) as error:
            self._sort_out(pairs, error)
        else:
            self.published += [row for row, _ in pairs]

    def _sort_out(
        self, pairs: Sequence[tuple[Waiting, JobRecord]], error: StoreError | Unsupported | InvalidJob
    ) -> None:
        stored = error.stored if isinstance(error, StoreError) else frozenset[str]()
        refused = error.refused if isinstance(error, StoreError) else frozenset[str]()
        self.published += [row for row, record in pairs if record.id in stored]
        for row, record in pairs:
            if record.id in refused:
                self._refuse(row, error)
        left = [pair for pair in pairs if pair[1].id not in stored | refused]
        if refused:
            self._offer(left)
        elif isinstance(error, StoreUnavailable):
            raise TargetFault(str(error))
        elif left:
            self._narrow_down(left, error)

    def _narrow_down(self, pairs: Sequence[tuple[Waiting, JobRecord]], error: Exception) -> None:
        """Split until the guilty rows stand alone, unless it is the target that is not sound."""
        if not self._sound:
            self.publisher.check()
            self._sound = True
        if len(pairs) == 1:
            self._refuse(pairs[0][0], error)
            return
        half = len(pairs) // 2
        self._offer(pairs[:half])
        self._offer(pairs[half:])

    def _refuse(self, row: Waiting, error: Exception) -> None:
        reason = storable(str(error), max_bytes=MAX_ERROR_BYTES)
        self.refused.append(Refusal(row, reason, self.publisher.retry_in(row)))

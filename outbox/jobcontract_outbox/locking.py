"""The rows of a PostgreSQL outbox: taken by row locks, published while the locks are held.

One short transaction: lock, publish, delete what was confirmed, commit. There is no lease to tune, and a
crash is a rollback. Two questions have tempting answers that lose jobs: "everything behind the last id"
misses the row of a transaction that got a lower id and commits later, and "everything older than the oldest
open transaction" stands still behind any session of the cluster. Here every due row is looked at, whoever
committed it when.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeAlias

from jobcontract.contract import EARLIEST_RUN_AT, HostsTables, Row, Transaction
from jobcontract_outbox.batch import Batch, Parked, Waiting, contiguous
from jobcontract_outbox.schema import Schema
from jobcontract_outbox.statements import Statements

LANES = 50
"""How many ordering keys go at once."""
LANES_LOOKED_AT = 500
"""How many keys one take looks at: those that stand still cost a probe each, round after round."""
ROWS_PER_LANE = 20

_Position: TypeAlias = tuple[datetime, int]
_START: _Position = (EARLIEST_RUN_AT, 0)
_HINT_LIFE = 1.0
# Reading from the start costs what the dead entries cost; it shall take no more than a twentieth of the time.
_SHARE = 20.0


class LockingSource:
    """`Source`, by FOR UPDATE SKIP LOCKED."""

    def __init__(
        self, host: HostsTables, schema: Schema, statements: Statements, target: str, attempts: int
    ) -> None:
        self._host = host
        self._schema = schema
        self._statements = statements
        self._target = target
        self._attempts = attempts
        self._low_water = _LowWater()
        self._last_key = ""
        self._checked = False

    @contextmanager
    def take(self, limit: int) -> Generator[Batch]:
        """As `Source.take`."""
        with self._host.transaction() as transaction:
            if not self._checked:
                self._schema.check(transaction)
                self._checked = True
            batch = Batch(self._claim(transaction, limit), self._lanes(transaction, limit))
            yield batch
            self._settle(transaction, batch)

    def _claim(self, transaction: Transaction, limit: int) -> list[Waiting]:
        low = self._low_water.position()
        rows = self._read(transaction, low, limit)
        if not rows and low is not _START:
            self._low_water.drop()
            rows = self._read(transaction, _START, limit)
        if rows:
            last = rows[-1]
            self._low_water.advance((last[7], last[0]))
        return [Waiting.of(row) for row in rows]

    def _read(self, transaction: Transaction, low: _Position, limit: int) -> list[Row]:
        begun = time.monotonic()
        rows = transaction.run(self._statements("claim", self._target, *low, limit))
        if low is _START:
            self._low_water.charge(time.monotonic() - begun)
        return rows

    def _lanes(self, transaction: Transaction, limit: int) -> list[list[Waiting]]:
        """The lanes whose first row is locked by us: whoever holds it owns the key, for no later row may go
        before it.
        """
        found = transaction.run(
            self._statements("lanes", self._target, self._last_key, self._target, LANES_LOOKED_AT)
        )
        self._last_key = found[-1][0] if len(found) == LANES_LOOKED_AT else ""
        heads = {key: seq for key, seq, ready in found if ready}
        heads = dict(list(heads.items())[: min(LANES, limit)])
        locked = self._lock(transaction, list(heads.values()))
        heads = {key: seq for key, seq in heads.items() if seq in locked}
        if not heads:
            return []
        # Read again, in a snapshot that is younger than the locks.
        lanes: dict[str, list[Waiting]] = {key: [] for key in heads}
        for row in transaction.run(
            self._statements("lane_rows", list(heads), self._target, min(ROWS_PER_LANE, limit))
        ):
            lanes[row[3]].append(Waiting.of(row))
        followers = [row.seq for lane in lanes.values() for row in lane[1:] if row.ready]
        ours = locked | self._lock(transaction, followers)
        ready = (contiguous(lane, heads[key], ours) for key, lane in lanes.items())
        return [lane for lane in ready if lane]

    def _lock(self, transaction: Transaction, numbers: list[int]) -> set[int]:
        return {seq for (seq,) in transaction.run(self._statements("lock", numbers))} if numbers else set()

    def _settle(self, transaction: Transaction, batch: Batch) -> None:
        if batch.published:
            transaction.run(self._statements("delete", [row.seq for row in batch.published]))
        if batch.refused:
            counted = transaction.run(
                self._statements(
                    "refuse",
                    self._attempts,
                    [refusal.row.seq for refusal in batch.refused],
                    [refusal.reason for refusal in batch.refused],
                    [refusal.retry_in.total_seconds() for refusal in batch.refused],
                )
            )
            batch.counted = [Parked(job_id, parked) for job_id, parked in counted]


class _LowWater:
    """Where a claim may begin to read.

    A deleted row leaves a dead entry in the index. As long as any session of the cluster holds an old
    snapshot, these can't be removed, and each claim walks over all of them. The hint lets it start where
    the last one ended. It is only a hint: a transaction that began earlier and commits later puts its row
    behind it, and so does a batch that goes back. So it is dropped every second, and when a claim came back
    empty.
    """

    def __init__(self) -> None:
        self._position = _START
        self._until = 0.0
        self._life = _HINT_LIFE

    def position(self) -> _Position:
        """Where to begin now."""
        if time.monotonic() >= self._until:
            self._position = _START
            self._until = time.monotonic() + self._life
        return self._position

    def advance(self, position: _Position) -> None:
        """A claim ended there."""
        self._position = position

    def drop(self) -> None:
        """Begin at the start again."""
        self._position = _START

    def charge(self, seconds: float) -> None:
        """A claim that began at the start took `seconds`."""
        self._life = max(_HINT_LIFE, _SHARE * seconds)

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

from jobcontract.side_doors import HostsTables, Row, Transaction
from jobcontract_outbox.batch import Batch, Parked, Waiting, contiguous
from jobcontract_outbox.low_water import START, LowWater, Position
from jobcontract_outbox.schema import Schema
from jobcontract_outbox.statements import Statements

LANES = 50
"""How many ordering keys go at once."""
LANES_LOOKED_AT = 500
"""How many keys one take looks at: those that stand still cost a probe each, round after round."""
ROWS_PER_LANE = 20

_NO_LANES_LIFE = 0.1
"""Seconds for which a target without ordering keys is taken to have none, while it has a backlog."""


class LockingSource:
    """`Source`, by FOR UPDATE SKIP LOCKED."""

    def __init__(
        self,
        host: HostsTables,
        schema: Schema,
        statements: Statements,
        target: str,
        attempts: int,
        *,
        first: LockingSource | None = None,
    ) -> None:
        """`first` is the one that this one helps; see `beside`."""
        self._host = host
        self._schema = schema
        self._statements = statements
        self._target = target
        self._attempts = attempts
        self._low_water: LowWater = LowWater() if first is None else first._low_water
        self._is_first = first is None
        self._last_key = ""
        self._lanes_from = 0.0
        self._checked = False

    def beside(self) -> LockingSource:
        """As `Source.beside`. Both begin to read where either of them ended."""
        return LockingSource(
            self._host, self._schema, self._statements, self._target, self._attempts, first=self
        )

    @contextmanager
    def take(self, limit: int) -> Generator[Batch]:
        """As `Source.take`."""
        with self._host.transaction() as transaction:
            if not self._checked:
                self._schema.check(transaction)
                self._checked = True
            rows = self._claim(transaction, limit)
            # Each question to the database costs a round trip: in a backlog, this one is asked now and then.
            ask = len(rows) < limit or time.monotonic() >= self._lanes_from
            batch = Batch(rows, self._lanes(transaction, limit) if ask else [])
            yield batch
            self._settle(transaction, batch)

    def _claim(self, transaction: Transaction, limit: int) -> list[Waiting]:
        low, reading = self._low_water.begin()
        rows = self._read(transaction, low, limit)
        if not rows and low is not START and self._is_first:
            low, reading = self._low_water.begin_again()
            rows = self._read(transaction, low, limit)
        self._low_water.advance((rows[-1][7], rows[-1][0]) if rows else low, reading)
        return [Waiting.of(row) for row in rows]

    def _read(self, transaction: Transaction, low: Position, limit: int) -> list[Row]:
        begun = time.monotonic()
        rows = transaction.run(self._statements("claim", self._target, *low, limit))
        if low is START:
            self._low_water.charge(time.monotonic() - begun)
        return rows

    def _lanes(self, transaction: Transaction, limit: int) -> list[list[Waiting]]:
        """The lanes whose first row is locked by us: whoever holds it owns the key, for no later row may go
        before it.
        """
        found = transaction.run(
            self._statements("lanes", self._target, self._last_key, self._target, LANES_LOOKED_AT)
        )
        if not found and not self._last_key:
            self._lanes_from = time.monotonic() + _NO_LANES_LIFE
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

"""The rows of a SQLite outbox: leased, published without a lock, deleted.

SQLite has one write lock for the whole file, and the application needs it: it must not be held while a target
takes its time. So a row is leased for a minute by a token. What a killed relay held goes again when the lease
has run out. A relay that was stopped for longer than its lease begins nothing more with what it took.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import timedelta

from jobcontract.side_doors import HostsTables, Statement, Transaction
from jobcontract_outbox.batch import Batch, Parked, Waiting, contiguous
from jobcontract_outbox.locking import LANES, LANES_LOOKED_AT, ROWS_PER_LANE
from jobcontract_outbox.schema import Schema
from jobcontract_outbox.statements import Statements

LEASE = timedelta(minutes=1)
_MARGIN = timedelta(seconds=25)
"""What is begun this long before the lease ends is over by then, at any deadline that a target may have."""
_MICROSECOND = timedelta(microseconds=1)


class LeasingSource:
    """`Source`, by leases."""

    def __init__(
        self,
        host: HostsTables,
        schema: Schema,
        statements: Statements,
        target: str,
        attempts: int,
        lease: timedelta = LEASE,
    ) -> None:
        self._host = host
        self._schema = schema
        self._statements = statements
        self._target = target
        self._attempts = attempts
        self._lease = lease
        self._last_key = ""
        self._checked = False

    def beside(self) -> LeasingSource:
        """As `Source.beside`."""
        return LeasingSource(
            self._host, self._schema, self._statements, self._target, self._attempts, self._lease
        )

    @contextmanager
    def take(self, limit: int) -> Generator[Batch]:
        """As `Source.take`."""
        token = secrets.token_hex(16)
        until = time.monotonic() + (self._lease - min(_MARGIN, self._lease / 2)).total_seconds()
        with self._host.transaction() as transaction:
            if not self._checked:
                self._schema.check(transaction)
                self._checked = True
            batch = Batch(
                self._claim(transaction, token, limit), self._lanes(transaction, token, limit), until
            )
        try:
            yield batch
        except BaseException:
            batch.published.clear()
            batch.refused.clear()
            self._settle(batch, token)
            raise
        self._settle(batch, token)

    def _claim(self, transaction: Transaction, token: str, limit: int) -> list[Waiting]:
        rows = transaction.run(
            self._statements("claim", self._target, token, self._lease // _MICROSECOND, limit)
        )
        return [Waiting.of(row) for row in sorted(rows, key=lambda row: (row[7], row[0]))]

    def _lanes(self, transaction: Transaction, token: str, limit: int) -> list[list[Waiting]]:
        found = transaction.run(self._statements("lanes", self._target, self._last_key, LANES_LOOKED_AT))
        self._last_key = found[-1][0] if len(found) == LANES_LOOKED_AT else ""
        heads = [(key, seq) for key, seq, ready in found if ready][: min(LANES, limit)]
        lanes: list[list[Waiting]] = []
        for key, head in heads:
            rows = transaction.run(
                self._statements("lane_rows", key, self._target, min(ROWS_PER_LANE, limit))
            )
            lane = [Waiting.of(row) for row in rows]
            lanes.append(contiguous(lane, head, {row.seq for row in lane}))
        ours = _numbers(row for lane in lanes for row in lane)
        if lanes:
            transaction.run(self._statements("lease", token, self._lease // _MICROSECOND, ours))
        return [lane for lane in lanes if lane]

    def _settle(self, batch: Batch, token: str) -> None:
        if not batch.size:
            return
        with self._host.transaction() as transaction:
            if batch.published:
                transaction.run(self._statements("delete", _numbers(batch.published)))
            if batch.refused:
                counted = transaction.run(self._refuse(batch, token))
                batch.counted = [Parked(job_id, bool(parked)) for job_id, parked in counted]
            rows = [*batch.rows, *(row for lane in batch.lanes for row in lane)]
            transaction.run(self._statements("give_back", token, _numbers(rows)))

    def _refuse(self, batch: Batch, token: str) -> Statement:
        refused = [
            [refusal.row.seq, refusal.reason, refusal.retry_in.total_seconds()] for refusal in batch.refused
        ]
        return self._statements("refuse", self._attempts, token, json.dumps(refused))


def _numbers(rows: Iterable[Waiting]) -> str:
    return json.dumps([row.seq for row in rows])

"""Jobs that their target refused as often as it may, and that wait for an operator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from jobcontract.contract import JobRecord
from jobcontract.records import Undecodable, from_envelope
from jobcontract.side_doors import Row
from jobcontract_outbox.ends import Opened
from jobcontract_outbox.instants import read_instant
from jobcontract_outbox.statements import Statements


@dataclass(frozen=True, slots=True)
class ParkedJob:
    """One of them."""

    job_id: str
    target: str
    attempts: int
    reason: str
    parked_at: datetime
    due_at: datetime
    ordering_key: str | None
    """The jobs behind it with the same key stand still until it is retried or dropped."""
    record: JobRecord | None
    """None where the row holds no job that this code can read."""


class ParkedJobs:
    """The parked jobs of one target. Raises `StoreError`."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._target = opened.driver.target_name
        self._statements = Statements(opened.tables)

    def newest(self, limit: int) -> list[ParkedJob]:
        """The latest first."""
        return [self._job(row) for row in self._run("parked", limit)]

    def find(self, job_ids: Sequence[str]) -> list[ParkedJob]:
        """Those of `job_ids` that are parked."""
        return [self._job(row) for row in self._run("parked_by_id", self._ids(job_ids))]

    def retry(self, job_ids: Sequence[str]) -> set[str]:
        """Let them go again, with all their attempts. The ids of those that were parked."""
        return {job_id for (job_id,) in self._run("retry", self._ids(job_ids))}

    def drop(self, job_ids: Sequence[str]) -> set[str]:
        """Give them up for good: they are cancelled. The ids of those that were parked."""
        with self._opened.tables.transaction() as transaction:
            self._opened.driver.schema.check(transaction)
            rows = transaction.run(self._statements("drop", self._target, self._ids(job_ids)))
            dropped = {str(job_id) for (job_id,) in rows}
            if dropped and self._statements.dialect == "sqlite":
                transaction.run(self._statements("mark_cancelled", json.dumps(sorted(dropped))))
        return dropped

    def _run(self, verb: str, *parameters: object) -> list[Row]:
        with self._opened.tables.transaction() as transaction:
            self._opened.driver.schema.check(transaction)
            return transaction.run(self._statements(verb, self._target, *parameters))

    def _ids(self, job_ids: Sequence[str]) -> object:
        return list(job_ids) if self._statements.dialect == "postgresql" else json.dumps(list(job_ids))

    def _job(self, row: Row) -> ParkedJob:
        job_id, envelope, attempts, reason, parked_at, due_at, ordering_key = row
        try:
            record = from_envelope(envelope)
        except Undecodable:
            record = None
        return ParkedJob(
            job_id=str(job_id),
            target=self._target,
            attempts=attempts,
            reason=reason or "",
            parked_at=read_instant(parked_at),
            due_at=read_instant(due_at),
            ordering_key=ordering_key,
            record=record,
        )

"""The doors by which `jobctl migrate` moves jobs to and from a broker behind an outbox: what waits here, and
what is known here, belongs to the move.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from jobcontract.contract import JobRecord, Lease, Registration, State
from jobcontract.records import Undecodable, decode, from_envelope
from jobcontract.side_doors import CarriesCopies, HostsTables, MovedJob, TakenCopy
from jobcontract_outbox.instants import read_instant
from jobcontract_outbox.registering import Registering
from jobcontract_outbox.statements import Statements, drive

_LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_WAITS_HERE = "outbox "
_KIND = "jobcontract.unknown"
"""Of a job of which only the key is left here."""


class CopiesDoor:
    """`CarriesCopies` and `KnowsKeys`."""

    target: CarriesCopies
    target_name: str
    _tables: HostsTables
    _statements: Statements
    _registering: Registering

    # -- Coming ------------------------------------------------------------------------------------------

    def carry(self, jobs: Sequence[MovedJob], name: str) -> list[str | None]:
        """As `CarriesCopies.carry`: the keys are kept here, the copies go to the target at once."""
        keyed = [job.record for job in jobs if job.record.fingerprint is not None]
        holders: dict[str, str] = {}
        if keyed:
            with self._tables.transaction() as transaction:
                holders = drive(transaction, self._registering.keep_keys(keyed))
        self.target.carry([_without_key(job) if job.record.id in holders else job for job in jobs], name)
        return [holders.get(job.record.id) for job in jobs]

    def copies_of(self, leases: Sequence[Lease]) -> list[str | None]:
        """As `CarriesCopies.copies_of`, of the target."""
        return self.target.copies_of(leases)

    # -- Leaving -----------------------------------------------------------------------------------------

    def take(self, queues: Sequence[str], limit: int) -> list[TakenCopy]:
        """As `CarriesCopies.take`: first what waits here, also for its time, and also what is parked. A relay
        may still publish it; then it is taken at the target once more.
        """
        cursor = _LAST
        while True:
            with self._tables.transaction() as transaction:
                rows = transaction.run(self._statements("page", self.target_name, cursor, limit))
            found = [taken for row in rows if (taken := _taken(*row)) is not None]
            if found:
                return found
            if len(rows) < limit:
                return self.target.take(queues, limit)
            cursor = rows[-1][0]  # none of them holds a job; they stay

    def drop(self, tokens: Sequence[str]) -> int:
        """As `CarriesCopies.drop`."""
        here = [token.removeprefix(_WAITS_HERE) for token in tokens if token.startswith(_WAITS_HERE)]
        there = [token for token in tokens if not token.startswith(_WAITS_HERE)]
        dropped = 0
        if here:
            ids: object = here if self._statements.dialect == "postgresql" else json.dumps(here)
            with self._tables.transaction() as transaction:
                dropped = len(transaction.run(self._statements("leave", self.target_name, ids)))
        return dropped + (self.target.drop(there) if there else 0)

    # -- What is known -----------------------------------------------------------------------------------

    def open_registrations(self) -> frozenset[str]:
        """As `KnowsKeys.open_registrations`. On SQLite only one transaction writes at a time."""
        if self._statements.dialect == "sqlite":
            return frozenset()
        with self._tables.transaction() as transaction:
            name = self._statements.table("outbox_jobs")
            return frozenset(row[0] for row in transaction.run(self._statements("open_registrations", name)))

    def keyed(self, after: str, limit: int) -> list[MovedJob]:
        """As `KnowsKeys.keyed`."""
        with self._tables.transaction() as transaction:
            rows = transaction.run(self._statements("keyed", self.target_name, after, limit))
        return [_placeholder(*row) for row in rows]

    def recall(self, records: Sequence[JobRecord]) -> list[Registration | None]:
        """As `KnowsKeys.recall`."""
        with self._tables.transaction() as transaction:
            return drive(transaction, self._registering.recall(records))


def _without_key(job: MovedJob) -> MovedJob:
    return job._replace(record=job.record._replace(idempotency_key=None, fingerprint=None))


def _taken(
    job_id: str, envelope: str, available_at: object, created_at: object, last_error: str | None
) -> TakenCopy | None:
    try:
        record = from_envelope(envelope)._replace(run_at=read_instant(available_at))
        decode(record)
    except Undecodable:
        return None
    job = MovedJob(record, State.READY, 0, 0, read_instant(created_at), None, last_error)
    return TakenCopy(f"{_WAITS_HERE}{job_id}", "", job)


def _placeholder(
    job_id: str, queue: str, key: str, fingerprint: bytes | str | None, created_at: object, cancelled: object
) -> MovedJob:
    known = bytes.fromhex(fingerprint) if isinstance(fingerprint, str) else fingerprint
    created = read_instant(created_at)
    record = JobRecord(job_id, _KIND, queue, 0, created, 1, key, known, "{}", None)
    if cancelled:
        return MovedJob(record, State.CANCELLED, 0, 0, created, created, None)
    return MovedJob(record, State.MOVING, 0, 0, created, None, None)

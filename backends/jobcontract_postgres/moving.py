"""The side door `Movable`: jobs that leave for another store, and jobs that come from one."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from jobcontract.contract import JobRecord, Registration, State
from jobcontract.errors import StoreError
from jobcontract.side_doors import Arrival, Gate, MovedJob, Row
from jobcontract_postgres.arrays import blobs, instants, plain, record_columns, texts
from jobcontract_postgres.sessions import Sessions
from jobcontract_postgres.statements import Statements, query


class MovingDoors:
    """`Gated`, `MovesOut` and `MovesIn`.

    The gate is the value of a sequence, which every statement that registers or claims reads: one page, no
    lock, and no snapshot.
    """

    sessions: Sessions
    statements: Statements

    # -- Gated -----------------------------------------------------------------------------------------

    def gate(self) -> Gate:
        """As `Gated.gate`."""
        ((value,),) = self.sessions.run(self.statements.gate, ())
        return _gate(value)

    def set_gate(self, gate: Gate) -> Gate:
        """As `Gated.set_gate`."""
        value = gate.epoch * 4 + gate.intake * 2 + gate.claims
        with self.sessions.session() as connection, connection.transaction():
            connection.execute(query(self.statements.gate_lock), ())
            connection.execute(query(self.statements.gate_set), (value, value))
            row = connection.execute(query(self.statements.gate), ()).fetchone()
        return _gate(row[0] if row else value)

    def open_registrations(self) -> frozenset[str]:
        """As `Gated.open_registrations`. A registration locks the table of live jobs before it takes the
        snapshot of its statement, and so before it reads the gate.
        """
        return frozenset(name for (name,) in self.sessions.run(self.statements.open_registrations, ()))

    # -- MovesOut --------------------------------------------------------------------------------------

    def hide(self, epoch: int, limit: int) -> list[MovedJob]:
        """As `MovesOut.hide`."""
        rows = self.sessions.run(self.statements.hide, (epoch, limit))
        if len(rows) < limit:
            rows += self.sessions.run(self.statements.hide_dead, (epoch, limit - len(rows)))
        if not rows:
            self._check_epoch(epoch)
        return [_moved_job(row) for row in rows]

    def hidden(self, limit: int) -> list[MovedJob]:
        """As `MovesOut.hidden`."""
        return [_moved_job(row) for row in self.sessions.run(self.statements.hidden, (limit,))]

    def reveal(self, epoch: int, limit: int) -> int:
        """As `MovesOut.reveal`."""
        ((count, _),) = self.sessions.run(self.statements.reveal, (epoch, limit))
        return self._counted(epoch, count)

    def bury(self, epoch: int, job_ids: Sequence[str]) -> int:
        """As `MovesOut.bury`."""
        ((count,),) = self.sessions.run(self.statements.bury, (plain(sorted(job_ids)), epoch))
        return self._counted(epoch, count)

    def buried(self, below: str, limit: int) -> list[MovedJob]:
        """As `MovesOut.buried`."""
        return [_moved_job(row) for row in self.sessions.run(self.statements.buried, (below, limit))]

    def keyed(self, after: str, limit: int) -> list[MovedJob]:
        """As `MovesOut.keyed`."""
        found: list[MovedJob] = []
        while not found:
            # A page of keys may hold nothing but those of tombstones, or of jobs that were deleted by hand.
            rows = self.sessions.run(self.statements.keyed, (after, limit))
            if not rows:
                break
            after = rows[-1][-1]
            found = [_moved_job(row[:-1]) for row in rows if row[0] and row[10] != State.MOVED]
        return found

    def recall(self, records: Sequence[JobRecord]) -> list[Registration | None]:
        """As `MovesOut.recall`."""
        rows = self.sessions.run(
            self.statements.recall,
            (
                plain(record.id for record in records),
                texts(record.queue for record in records),
                texts(record.idempotency_key for record in records),
                blobs(record.fingerprint for record in records),
            ),
        )
        found = {
            position - 1: Registration(UUID(job_id), created=False, state=State(state), conflict=conflict)
            for position, job_id, state, conflict in rows
        }
        return [found.get(position) for position in range(len(records))]

    def forget_buried(self, epoch: int, limit: int) -> int:
        """As `MovesOut.forget_buried`."""
        ((count,),) = self.sessions.run(self.statements.forget_buried, (epoch, limit))
        return self._counted(epoch, count)

    # -- MovesIn ---------------------------------------------------------------------------------------

    def admit(self, epoch: int, jobs: Sequence[MovedJob]) -> list[Arrival]:
        """As `MovesIn.admit`."""
        ordered = sorted(jobs, key=lambda job: job.record.id)
        records: list[JobRecord] = [job.record for job in ordered]
        rows = self.sessions.run(
            self.statements.admit,
            (
                *record_columns(records),
                plain(job.state for job in ordered),
                plain(job.attempt for job in ordered),
                plain(job.refunded for job in ordered),
                instants(job.created_at for job in ordered),
                instants(job.finished_at for job in ordered),
                texts(job.last_error for job in ordered),
                epoch,
            ),
        )
        if not rows:
            self._check_epoch(epoch)
        stored = {job_id for job_id, is_stored, *_ in rows if is_stored}
        holding = {job_id for job_id, _, holds, _ in rows if holds}
        others = self._other_holders(
            [record for record in records if record.fingerprint is not None and record.id not in holding]
        )
        return [Arrival(job.record.id in stored, others.get(job.record.id)) for job in jobs]

    def _other_holders(self, records: Sequence[JobRecord]) -> dict[str, str]:
        """By the id of a job whose key another one holds, that one."""
        if not records:
            return {}
        rows = self.sessions.run(
            self.statements.key_holders,
            (
                texts(record.queue for record in records),
                texts(record.idempotency_key for record in records),
            ),
        )
        found = {records[int(position) - 1].id: str(holder) for position, holder in rows}
        return {job_id: other for job_id, other in found.items() if other != job_id}

    def _counted(self, epoch: int, count: int) -> int:
        if not count:
            self._check_epoch(epoch)
        return count

    def _check_epoch(self, epoch: int) -> None:
        gate = self.gate()
        if gate.epoch != epoch:
            raise StoreError(
                f"step {epoch} of the migration is over: this store is at step {gate.epoch}, "
                "and nothing was changed"
            )


def _gate(value: int) -> Gate:
    return Gate(value // 4, intake=bool(value & 2), claims=bool(value & 1))


def _moved_job(row: Row) -> MovedJob:
    (job_id, kind, queue, priority, run_at, max_attempts, key, fingerprint, input_ref, headers, *rest) = row
    state, attempt, refunded, created_at, finished_at, last_error = rest
    return MovedJob(
        record=JobRecord(
            job_id, kind, queue, priority, run_at, max_attempts, key, fingerprint, input_ref, headers
        ),
        state=State(state),
        attempt=attempt,
        refunded=refunded,
        created_at=created_at,
        finished_at=finished_at,
        last_error=last_error,
    )

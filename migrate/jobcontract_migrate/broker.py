"""A broker as an end of a move: what it lacks of `Movable` is made up for by the control store.

The gate is the control row itself, which the coordinator writes before it comes here: clients that claim or
register go by it, for a broker can't refuse. What arrives and what leaves is known by the journal. What was
taken is hidden while it is held, and comes back by itself when whoever holds it dies; there are no traces.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from secrets import token_hex
from typing import Protocol
from uuid import UUID

from jobcontract.contract import Driver, JobRecord, Registration, State
from jobcontract.errors import StoreUnavailable
from jobcontract.side_doors import Arrival, CarriesCopies, Gate, KnowsKeys, MovedJob, TakenCopy
from jobcontract_migrate.control import ROUTE_HOLDS, Control, Move

_LOOK = 0.1
_COMES_BACK = 60.0
"""Seconds for what a dead mover held to come back. The broker has to miss a few heartbeats first."""


class BrokerDriver(CarriesCopies, Driver, Protocol):
    """A broker."""


class BrokerEnd:
    """`Movable` for the broker called `name`."""

    def __init__(self, driver: BrokerDriver, name: str, control: Control) -> None:
        self._driver = driver
        self._name = name
        self._control = control
        self._tokens: dict[str, list[str]] = {}
        """By job, what is held of it."""

    # -- The gate ----------------------------------------------------------------------------------------

    def gate(self) -> Gate:
        """As `Gated.gate`: where the migration stands."""
        move = self._control.read() if self._control.is_installed() else None
        return Gate(move.epoch if move else 0, intake=True, claims=True)

    def set_gate(self, gate: Gate) -> Gate:
        """As `Gated.set_gate`."""
        epoch = self.gate().epoch
        return gate if epoch <= gate.epoch else gate._replace(epoch=epoch)

    def open_registrations(self) -> frozenset[str]:
        """As `Gated.open_registrations`: the clients that may not know yet that the store is shut, and what
        has not ended in an outbox before it.
        """
        epoch = self._move().epoch
        unaware = {
            each.client
            for each in self._control.clients()
            if each.epoch < epoch and each.silent_for <= ROUTE_HOLDS
        }
        if isinstance(self._driver, KnowsKeys):
            return self._driver.open_registrations() | unaware
        return frozenset(unaware)

    # -- Coming ------------------------------------------------------------------------------------------

    def admit(self, epoch: int, jobs: Sequence[MovedJob]) -> list[Arrival]:
        """As `MovesIn.admit`. What is admitted again is there twice, and one of the two counts."""
        journal = self._control.journal
        journal.add_queues(self._name, sorted({job.record.queue for job in jobs}))
        journal.send(self._move().number, epoch, self._name, [job.record.id for job in jobs])
        holders = self._driver.carry(jobs, f"{epoch}.{token_hex(8)}")
        return [Arrival(stored=True, key_holder=holder) for holder in holders]

    # -- Leaving -----------------------------------------------------------------------------------------

    def hide(self, epoch: int, limit: int) -> list[MovedJob]:
        """As `MovesOut.hide`. Copies too many are dropped on the way."""
        move = self._move()
        queues = self._control.journal.queues(self._name)
        while taken := self._driver.take(queues, limit):
            found = self._those_that_count(move, epoch, taken)
            if found:
                return found
        return []

    def _those_that_count(self, move: Move, epoch: int, taken: Sequence[TakenCopy]) -> list[MovedJob]:
        firsts: dict[str, TakenCopy] = {}
        for each in taken:
            firsts.setdefault(each.job.record.id, each)
        counting = self._control.journal.take(
            move.number, epoch, self._name, move.target, list(firsts.values())
        )
        moving = {job.record.id: job for job in counting if job is not None}
        for each in taken:
            if each.job.record.id in moving:
                self._tokens.setdefault(each.job.record.id, []).append(each.token)
        spare = [each.token for each in taken if each.job.record.id not in moving]
        if spare:
            self._driver.drop(spare)
        return list(moving.values())

    def hidden(self, limit: int) -> list[MovedJob]:
        """As `MovesOut.hidden`: what a mover that died held, as it comes back, with others that are there.

        Raises `StoreUnavailable` when it does not come back.
        """
        deadline = time.monotonic() + _COMES_BACK
        while left := self._control.journal.on_the_way():
            found = self.hide(self._move().epoch, limit)
            if found:
                return found
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{left} jobs that a mover held did not come back to {self._name!r}; end the process "
                    "that holds them, and go on with `jobctl migrate resume`"
                )
            time.sleep(_LOOK)
        return []

    def reveal(self, epoch: int, limit: int) -> int:
        """As `MovesOut.reveal`: what is held comes back when the connection ends, and not before."""
        del epoch, limit
        return 0

    def bury(self, epoch: int, job_ids: Sequence[str]) -> int:
        """As `MovesOut.bury`, without a trace."""
        self._control.journal.arrive(self._move().number, epoch, job_ids)
        tokens = [token for job_id in job_ids for token in self._tokens.pop(job_id, [])]
        return self._driver.drop(tokens) if tokens else 0

    def buried(self, below: str, limit: int) -> list[MovedJob]:
        """As `MovesOut.buried`."""
        del below, limit
        return []

    def keyed(self, after: str, limit: int) -> list[MovedJob]:
        """As `MovesOut.keyed`: what an outbox before it knows."""
        return self._driver.keyed(after, limit) if isinstance(self._driver, KnowsKeys) else []

    def recall(self, records: Sequence[JobRecord]) -> list[Registration | None]:
        """As `MovesOut.recall`: of those that left, and what an outbox before it knows."""
        left = self._control.journal.known(self._move().target, [record.id for record in records])
        known: list[Registration | None] = (
            self._driver.recall(records) if isinstance(self._driver, KnowsKeys) else [None] * len(records)
        )
        return [
            Registration(UUID(record.id), created=False, state=State.MOVED) if record.id in left else answer
            for record, answer in zip(records, known, strict=True)
        ]

    def departed(self, below: str, limit: int) -> list[str]:
        """The ids of jobs that left, newest first, below the id `below`: all that is known of them here."""
        return self._control.journal.arrived(self._move().target, below, limit)

    def forget_buried(self, epoch: int, limit: int) -> int:
        """As `MovesOut.forget_buried`."""
        del epoch, limit
        return 0

    def _move(self) -> Move:
        move = self._control.read()
        assert move is not None, "jobs move, so there is a migration"
        return move

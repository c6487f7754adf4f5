"""Slots and turns, in the SQL store that holds the jobs or their outbox.

A slot belongs to one claim of one job, and has a lease of its own that the worker renews: a worker that is
killed with -9 leaks none, for what is not renewed runs out. Slots under one limit are given by one
transaction at a time, so that there are never more than the limit says. A job that is claimed again takes
its own slot with it at once: the limit never stands in the way of the job that held it.

A turn is the right to start one job at an instant. Turns are given in order and never taken back: those of a
killed worker are lost, which makes the rate lower for a moment and never higher.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from jobcontract.contract import Driver, Lease
from jobcontract.side_doors import HostsTables, Row, Statement, Transaction

_COMMENT = "--"


class Slot(NamedTuple):
    """A place among the `most` jobs that run at once under the limit `name`."""

    name: str
    most: int


class SlotRequest(NamedTuple):
    """A claimed job that wants a place under each of its limits."""

    lease: Lease
    slots: tuple[Slot, ...]


def shared_limits_of(driver: Driver) -> SharedLimits | None:
    """The limits beside the jobs of `driver`, or beside its outbox; None where there is no SQL store."""
    tables: object = driver if isinstance(driver, HostsTables) else getattr(driver, "host", None)
    return SharedLimits(tables) if isinstance(tables, HostsTables) else None


class SharedLimits:
    """The limits of all workers on one store. Safe in threads. Raises what the store raises."""

    def __init__(self, tables: HostsTables) -> None:
        self._tables = tables
        self._names = {"{slots}": tables.table("limit_slots"), "{rates}": tables.table("limit_rates")}

    def take_slots(self, requests: Sequence[SlotRequest], length: timedelta) -> list[bool]:
        """For each job whether it has all of its slots now, for `length`; otherwise it has none of them."""
        names = sorted({slot.name for request in requests for slot in request.slots})
        with self._tables.transaction() as transaction:
            self._lock(transaction, names)
            self._run(
                transaction,
                "forget",
                self._array([each.lease.job_id for each in requests]),
                self._array(names),
            )
            taken = Counter[str](dict(self._run(transaction, "count", self._array(names))))
            answers: list[bool] = []
            given: list[tuple[str, str, str]] = []
            for request in requests:
                fits = all(taken[slot.name] < slot.most for slot in request.slots)
                answers.append(fits)
                if fits:
                    taken.update(slot.name for slot in request.slots)
                    lease = request.lease
                    given += [(slot.name, lease.job_id, lease.token) for slot in request.slots]
            if given:
                self._run(transaction, "hold", length.total_seconds(), *self._rows(given))
        return answers

    def keep_slots(self, leases: Sequence[Lease], length: timedelta) -> list[bool]:
        """Renew the slots of these claims to `length` from now; for each whether it still had any."""
        pairs = sorted((lease.job_id, lease.token) for lease in leases)
        with self._tables.transaction() as transaction:
            rows = self._run(transaction, "keep", length.total_seconds(), *self._rows(pairs))
        kept = {job_id for (job_id,) in rows}
        return [lease.job_id in kept for lease in leases]

    def free_slots(self, leases: Sequence[Lease]) -> None:
        """Give the slots of these claims back. Those of a later claim of the same job stay."""
        pairs = sorted((lease.job_id, lease.token) for lease in leases)
        with self._tables.transaction() as transaction:
            self._run(transaction, "free", *self._rows(pairs))

    def take_turns(self, name: str, wanted: int, spacing: timedelta, horizon: timedelta) -> list[timedelta]:
        """At most `wanted` turns under the rate `name`: in how long each comes, `horizon` at the latest."""
        step = spacing.total_seconds()
        with self._tables.transaction() as transaction:
            self._lock(transaction, [name])
            ((next_at, now),) = self._run(transaction, "read_rate", name)
            end = now + horizon.total_seconds()
            # No turn is ever given beyond the horizon. What says so is from before the clock was put back, or
            # the rate was raised: to keep to it could stop the jobs for years.
            first = now if next_at is None or next_at > end + step else max(now, next_at)
            count = min(wanted, int((end - first) / step) + 1) if first <= end else 0
            if count:
                self._run(transaction, "write_rate", name, first + count * step)
        return [timedelta(seconds=first - now + number * step) for number in range(count)]

    def _lock(self, transaction: Transaction, names: Sequence[str]) -> None:
        if self._tables.dialect == "postgresql":  # SQLite's transaction is the only one that writes
            self._run(transaction, "lock", list(names))

    def _run(self, transaction: Transaction, name: str, *parameters: object) -> list[Row]:
        text = _statement(self._tables.dialect, name)
        for place, table in self._names.items():
            text = text.replace(place, table)
        return transaction.run(Statement(text, parameters))

    def _array(self, values: Sequence[str]) -> object:
        return list(values) if self._tables.dialect == "postgresql" else json.dumps(list(values))

    def _rows(self, rows: Sequence[tuple[str, ...]]) -> list[object]:
        """Columns as arrays, or rows as one JSON text."""
        if self._tables.dialect == "postgresql":
            return [list(column) for column in zip(*rows, strict=True)]
        return [json.dumps(rows)]


@cache
def _statement(dialect: str, name: str) -> str:
    text = files("jobcontract.limits").joinpath("sql", dialect, f"{name}.sql").read_text(encoding="utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(_COMMENT))

"""What a worker asks before it runs what a broker gave it: whether this copy of the job is the one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from jobcontract.contract import ClaimedRecord, Lease
from jobcontract.errors import StoreError
from jobcontract_migrate.broker import BrokerDriver
from jobcontract_migrate.journal import Journal, Standing

_FOR_THE_MOVER = timedelta(seconds=5)
"""How long a copy of a job that lives elsewhere is out of the way of workers."""


def that_count(
    journal: Journal, name: str, driver: BrokerDriver, claimed: Sequence[ClaimedRecord], *, everything: bool
) -> list[ClaimedRecord]:
    """Those of the jobs `claimed` at the broker called `name` that are to be run. What is a copy too many is
    acknowledged, what lives in another store now is left to the mover.

    Without `everything`, only copies that came by a move are asked about. Raises `StoreError` when the
    journal can't be asked; then all go back.
    """
    leases = [each.lease for each in claimed]
    try:
        copies = driver.copies_of(leases)
        pairs = [
            (lease, copy)
            for lease, copy in zip(leases, copies, strict=True)
            if copy is not None and (copy or everything)
        ]
        settled = _standings(journal, name, pairs)
        if dropped := settled[Standing.DROP]:
            driver.complete(dropped)
        if left := settled[Standing.LEAVE]:
            driver.release(left, _FOR_THE_MOVER)
    except StoreError:
        with suppress(StoreError):
            driver.release(leases, timedelta())
        raise
    gone = {lease.token for lease in (*dropped, *left)}
    gone |= {lease.token for lease, copy in zip(leases, copies, strict=True) if copy is None}
    return [each for each in claimed if each.lease.token not in gone]


def _standings(
    journal: Journal, name: str, pairs: Sequence[tuple[Lease, str]]
) -> dict[Standing, list[Lease]]:
    found: dict[Standing, list[Lease]] = {standing: [] for standing in Standing}
    if pairs:
        standings = journal.claim(name, [(lease.job_id, copy) for lease, copy in pairs])
        for (lease, _), standing in zip(pairs, standings, strict=True):
            found[standing].append(lease)
    return found

"""Stores that can do little: what is left of SQLite in memory behind the ten members of `Driver`.

With them the negative half of the suite runs: what is not declared is refused, and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from jobcontract.conformance import Harness
from jobcontract.contract import (
    Capabilities,
    ClaimedRecord,
    ConnectionLease,
    Deduplication,
    Driver,
    Durability,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    TimedLease,
    Transactional,
    Verdict,
)
from tests.conformance.broken import Sound


class BareDriver:
    """No keys, no schedule, one priority, no side doors."""

    lease: TimedLease | ConnectionLease = TimedLease(timedelta(milliseconds=1), timedelta(hours=2))

    def __init__(self) -> None:
        self._store = Sound()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            store="Bare 1.0",
            deduplication=Deduplication.NONE,
            lease=self.lease,
            scheduling=None,
            priority_levels=1,
            durability=Durability.MEMORY,
            transactional=Transactional.NONE,
            max_register_batch=100,
            max_input_ref_bytes=65_536,
        )

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        answers = self._store.register([record._replace(priority=0) for record in records])
        return [Registration(answer.job_id, answer.created, state=None) for answer in answers]

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        return self._store.claim(queues, limit, lease)

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        return self._store.complete(leases)

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        return self._store.fail(failures)

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        return self._store.extend(leases, lease)

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        return self._store.release(leases, delay)

    def rescue(self, limit: int) -> Rescued:
        return self._store.rescue(limit)

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        return self._store.wait(queues, timeout)

    def close(self) -> None:
        self._store.close()


class ConnectionBoundDriver(BareDriver):
    """A claim holds for as long as its connection; what a lost connection held comes back by itself."""

    lease = ConnectionLease(timedelta(minutes=30))

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        return super().claim(queues, limit, self.lease.longest)

    def disconnect(self) -> None:
        """As the network would."""
        self._store.sql(
            "UPDATE jobcontract_jobs SET lease_until = (SELECT now FROM jobcontract_clock) "
            "WHERE state = 'running'"
        )
        while any(self._store.rescue(100)):
            pass

    def rescue(self, limit: int) -> Rescued:
        return Rescued(0, 0)


class BareHarness(Harness):
    """Opens the one or the other."""

    several_clients = False
    claimed_jobs = 1000
    claimers = 20
    large_batch = 1500

    def __init__(self, driver: type[BareDriver]) -> None:
        self.driver = driver

    def create(self) -> str:
        return "bare://"

    def connect(self, url: str) -> Driver:
        return self.driver()

    def disconnect(self, driver: Driver) -> None:
        if not isinstance(driver, ConnectionBoundDriver):
            return super().disconnect(driver)
        return driver.disconnect()

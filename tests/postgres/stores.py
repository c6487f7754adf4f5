"""A store under test: its driver, and what the tests do with one all the time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from jobcontract_postgres import PostgresDriver
from jobcontract_postgres.statements import quote

from jobcontract.config import StoreSettings
from jobcontract.contract import ClaimedRecord, Failure, Job, Lease, Registration
from jobcontract.url import StoreURL

LEASE = timedelta(minutes=2)
NOTHING = timedelta()
PATIENCE = 30.0

Result = TypeVar("Result")


@dataclass
class Store:
    """A driver, and the schema it was told to use."""

    driver: PostgresDriver
    schema: str

    def register(self, *jobs: Job) -> list[Registration]:
        return self.driver.register([job.to_record() for job in jobs])

    def claim(
        self, limit: int = 1, *, queue: str = "default", lease: timedelta = LEASE
    ) -> list[ClaimedRecord]:
        return self.driver.claim([queue], limit, lease)

    def claim_one(self, lease: timedelta = LEASE) -> Lease:
        (claimed,) = self.claim(1, lease=lease)
        return claimed.lease

    def complete(self, *leases: Lease) -> list[bool]:
        return [verdict.applied for verdict in self.driver.complete(leases)]

    def fail(self, lease: Lease, *, permanent: bool = False) -> bool:
        return self.driver.fail([Failure(lease, "it broke", NOTHING, permanent)])[0].applied

    def sql(self, statement: str) -> bytes:
        """`statement` with the schema's name where it says OURS."""
        return re.sub(r"\bOURS\b", lambda _: quote(self.schema), statement).encode()


def open_store(url: str, **options: str) -> Store:
    """A store at `url`. Contacts nothing."""
    driver = PostgresDriver(StoreSettings("test", StoreURL.parse(url), options))
    return Store(driver, options.get("schema", "jobcontract"))


def jobs(count: int, **fields: object) -> list[Job]:
    return [Job(kind="test", **fields) for _ in range(count)]


def until(condition: Callable[[], Result], what: str) -> Result:
    """What `condition` gives once it is true; the test fails when that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.01)
    return result

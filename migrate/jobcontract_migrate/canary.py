"""A job that goes through a store to try it."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from jobcontract.contract import Driver, Job, State, TimedLease
from jobcontract.errors import StoreUnavailable
from jobcontract.side_doors import MovedJob, MovesIn

CANARY = "jobcontract.canary"
"""Kind and queue of the jobs by which a migration tries a store."""
_LEASE = timedelta(seconds=60)
_LOOK = 0.1


def send_canary(door: MovesIn, driver: Driver, epoch: int, name: str, patience: float) -> datetime | None:
    """Have a job admitted, claimed and completed at the store called `name`: it works. Its clock, where a
    lease tells it.

    Raises `StoreUnavailable` when the job did not come back within `patience` seconds.
    """
    begin = datetime.fromtimestamp(0).astimezone()
    record = Job(kind=CANARY, queue=CANARY).to_record()._replace(run_at=begin)
    door.admit(epoch, [MovedJob(record, State.READY, 0, 0, begin, None, None)])
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        for claimed in driver.claim([CANARY], 10, _LEASE):
            driver.complete([claimed.lease])
            if claimed.record.id == record.id:
                timed = isinstance(driver.capabilities.lease, TimedLease)
                return claimed.lease.expires_at - _LEASE if timed else None
        time.sleep(_LOOK)
    raise StoreUnavailable(f"a job that was stored in {name!r} to try it did not come back in time")

"""Claims as a store gives them, for what needs no store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobcontract import Claim, Job
from jobcontract.contract import Lease


def nothing(input: object) -> None:
    """A handler."""


def claim_of(job: Job, *, attempt: int = 1, refunded: int = 0) -> Claim:
    """A claim on `job` that holds for a minute."""
    expires_at = datetime.now(UTC) + timedelta(minutes=1)
    return Claim(job, Lease(str(job.id), job.queue, "token", attempt, expires_at, refunded))

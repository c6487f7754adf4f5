"""A job queue that starts inside the database you already have, behind a contract that other stores keep too.

::

    from jobcontract import Handlers, JobInput, get_backend, once

Producers register jobs with a `Backend`; handlers run them under `jobctl worker`. What a job, a claim and a
store are, `jobcontract.contract` says. The asynchronous face is `jobcontract.aio`.
"""

from jobcontract.backend import Backend
from jobcontract.backoff import Backoff
from jobcontract.context import JobCancelled, JobContext
from jobcontract.contract import Capabilities, Claim, Job, Registration, State
from jobcontract.effects import once
from jobcontract.errors import (
    ConfigError,
    Dead,
    DriverNotInstalled,
    InstallationError,
    InvalidJob,
    JobContractError,
    LeaseLost,
    Retry,
    Snooze,
    StoreError,
    StoreUnavailable,
    Unsupported,
)
from jobcontract.handlers import Handlers
from jobcontract.kinds import JobInput
from jobcontract.registry import get_backend
from jobcontract.status import JobStatus

__all__ = [
    "Backend",
    "Backoff",
    "Capabilities",
    "Claim",
    "ConfigError",
    "Dead",
    "DriverNotInstalled",
    "Handlers",
    "InstallationError",
    "InvalidJob",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobContractError",
    "JobInput",
    "JobStatus",
    "LeaseLost",
    "Registration",
    "Retry",
    "Snooze",
    "State",
    "StoreError",
    "StoreUnavailable",
    "Unsupported",
    "get_backend",
    "once",
]

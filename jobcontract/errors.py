"""Every error that jobcontract raises on purpose.

::

    JobContractError
    ├── ConfigError              a setting, a URL or a file is wrong; nothing was contacted
    │   └── DriverNotInstalled   the scheme is known, its client library is not here
    ├── InvalidJob               the job (or an argument about it) can't be accepted; nothing was written
    ├── LeaseLost                the claim's token is not current or its lease ran out; nothing changed
    ├── Unsupported              this store, as it is configured now, can't do that; nothing was done
    └── StoreError               the store refused or failed
        ├── InstallationError    what `jobctl init` makes is missing, older or newer than this code
        └── StoreUnavailable     the store can't be reached or did not answer in time; try again later
            └── StoreClosed      its jobs are moving to another store, and it takes none of this now

Three signals steer a job from inside its handler. They are not errors of this library and do not derive
from `JobContractError`, so that an application's ``except JobContractError`` never swallows one:

``Retry``  run again later, an attempt is spent;
``Dead``   never run again, keep it for an operator;
``Snooze`` run again later, no attempt is spent.

No message, argument or cause of these errors holds a password: a client library's own error is dropped
(``raise ... from None``) wherever it could carry the connection URL.
"""

from __future__ import annotations

from datetime import timedelta


class JobContractError(Exception):
    """Base of everything that jobcontract raises on purpose."""


class ConfigError(JobContractError):
    """A setting, URL or configuration file is wrong. Raised before anything is contacted."""


class DriverNotInstalled(ConfigError):
    """The driver exists, but its client library is not installed. The message names the extra to install."""


class InvalidJob(JobContractError, ValueError):
    """A job, or an argument of a verb, breaks the contract. Raised before any I/O; nothing was written.

    `field` is the name of the offending field or argument, as the caller spells it.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.reason = message

    def __reduce__(self) -> tuple[type[InvalidJob], tuple[str, str]]:
        return type(self), (self.field, self.reason)


class LeaseLost(JobContractError):
    """The claim is no longer ours: its lease ran out, or the job was claimed again. Nothing was changed."""


class Unsupported(JobContractError):
    """The store can't do what was asked. Raised before any I/O; nothing is clamped or emulated."""


class StoreError(JobContractError):
    """The store refused the operation or failed in it. Whether it is worth a retry, the subclass tells.

    `stored` and `refused` are the ids of jobs of a registration that failed for the others: those that are
    stored all the same, and those that the store refused one by one (a queue that is missing, or full), so
    that nothing is wrong with the connection or with the others. Both are empty when it can't tell.
    """

    def __init__(
        self,
        message: str,
        *,
        stored: frozenset[str] = frozenset(),
        refused: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(message)
        self.stored = stored
        self.refused = refused


class InstallationError(StoreError):
    """What `jobctl init` makes (schema, namespace, file) is not there, or of a version that this code can't
    work with. The message names the remedy. Trying again can't help: it ends a worker.
    """


class StoreUnavailable(StoreError):
    """The store can't be reached, or did not answer within the deadline. Trying again later may succeed.

    The outcome of a write that was under way is unknown, unless `nothing_written` says that there was none:
    no connection could be made, say. `register` is safe to repeat with the same job; a settled claim is safe
    to abandon, for its lease runs out.
    """

    def __init__(
        self,
        message: str,
        *,
        stored: frozenset[str] = frozenset(),
        refused: frozenset[str] = frozenset(),
        nothing_written: bool = False,
    ) -> None:
        super().__init__(message, stored=stored, refused=refused)
        self.nothing_written = nothing_written


class StoreClosed(StoreUnavailable):
    """The store is shut for this while its jobs move to another one (`jobctl migrate`). Nothing was done.

    Trying again helps: the store opens again, or the jobs are elsewhere by then, where `get_backend()` finds
    them.
    """


class HandlerSignal(Exception):
    """Base of the three signals that a handler may raise to decide what becomes of its job."""


class Retry(HandlerSignal):
    """Run the job again, spending an attempt. `after` is the delay; None means the kind's backoff."""

    def __init__(self, reason: str = "retry requested", *, after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


class Dead(HandlerSignal):
    """Never run the job again: it goes to the dead jobs with `reason`, whatever attempts are left."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Snooze(HandlerSignal):
    """Run the job again after `delay` without spending an attempt."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(delay)
        self.delay = delay

    def __str__(self) -> str:
        return f"snoozed for {self.delay}"

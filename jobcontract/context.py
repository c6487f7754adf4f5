"""What a handler may know and do about the job that it runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, MutableMapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobcontract.contract import Claim, Job
from jobcontract.errors import Unsupported

if TYPE_CHECKING:
    JobLogger = logging.LoggerAdapter[logging.Logger]
else:
    JobLogger = logging.LoggerAdapter

log = logging.getLogger("jobcontract.job")

LEASE_LOST = "the lease is lost"
TIMED_OUT = "the handler's time is up"
SHUTDOWN = "the worker shuts down"
STOPPED = "an operator stopped it"

_event_creation = threading.Lock()


class JobCancelled(Exception):
    """Raised by `JobContext.check_cancelled`: stop now, the outcome of this run no longer counts.

    Let it pass. When the worker shuts down, the job goes back to ready and no attempt is spent; when an
    operator stopped it, it is dead.
    """


class Cancellation:
    """Tells a running handler to stop, and why. Behaves like a `threading.Event` that only the worker sets.

    A million jobs make a million of these, and hardly any is ever waited for, so the event inside is made on
    demand.
    """

    __slots__ = ("_event", "_reason")

    def __init__(self) -> None:
        self._reason: str | None = None
        self._event: threading.Event | None = None

    @property
    def reason(self) -> str | None:
        """Why the handler should stop, or None while it should not."""
        return self._reason

    def is_set(self) -> bool:
        """Whether the handler should stop. Never blocks."""
        return self._reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the handler should stop, `timeout` seconds at the longest; whether it should."""
        if self._event is None:
            with _event_creation:
                if self._event is None:
                    self._event = threading.Event()
        if self._reason is None:  # read after the event is in place: `set` does it the other way around
            self._event.wait(timeout)
        return self._reason is not None

    def set(self, reason: str) -> None:
        """Ask the handler to stop. The first reason stays."""
        if self._reason is None:
            self._reason = reason
        if self._event is not None:
            self._event.set()

    def __bool__(self) -> bool:
        return self._reason is not None

    def __repr__(self) -> str:
        return f"Cancellation({self._reason!r})"


def _cannot_extend(claim: Claim, lease: timedelta | None) -> None:
    del claim, lease
    raise Unsupported("this context belongs to no worker, so that its lease can't be extended")


class JobContext:
    """The running job, as its handler sees it. Made by the worker; for a test of a handler, by
    ``JobContext(claim)``.
    """

    __slots__ = ("_extend", "_log", "cancelled", "claim", "max_attempts")

    def __init__(
        self,
        claim: Claim,
        *,
        max_attempts: int | None = None,
        extend: Callable[[Claim, timedelta | None], None] = _cannot_extend,
    ) -> None:
        self.claim = claim
        """The claim under which the job runs: what `once` needs beside a connection."""
        self.max_attempts = claim.job.max_attempts if max_attempts is None else max_attempts
        """How many attempts may be spent: the smaller of the job's and the handler's own."""
        self.cancelled = Cancellation()
        """Set when the handler should stop: lost lease, timeout, an operator (`Backend.stop`), or the end of
        the grace at shutdown.
        """
        self._extend = extend
        self._log: JobLogger | None = None

    @property
    def job(self) -> Job:
        """The job that runs. With it a context serves where a claim does: ``once(connection, context)``."""
        return self.claim.job

    @property
    def job_id(self) -> UUID:
        """The same on every attempt, store and message."""
        return self.claim.job.id

    @property
    def kind(self) -> str:
        """Which handler this is."""
        return self.claim.job.kind

    @property
    def queue(self) -> str:
        """Where the job was claimed."""
        return self.claim.job.queue

    @property
    def idempotency_key(self) -> str | None:
        """The key under which the job was registered."""
        return self.claim.job.idempotency_key

    @property
    def attempt(self) -> int:
        """1 for the first claim; grows with every claim, so that it can fence writes to other systems."""
        return self.claim.attempt

    @property
    def spent(self) -> int:
        """How many attempts count against `max_attempts`, this one included."""
        return self.claim.spent

    @property
    def headers(self) -> Mapping[str, str]:
        """What the producer sent along: trace context, tenant and the like."""
        return MappingProxyType(self.claim.job.headers)

    def check_cancelled(self) -> None:
        """Raise `JobCancelled` when the handler should stop. Cheap: call it once per step of a long job."""
        reason = self.cancelled.reason
        if reason is not None:
            raise JobCancelled(reason)

    def extend(self, lease: timedelta | None = None) -> None:
        """Renew the lease now, and from now on to `lease` each time (None: as before).

        The worker renews by itself. This is for a stretch in which its threads can't run, such as a C call
        that holds the interpreter lock. Blocks for a round trip (in an ``async`` handler, call it in a
        thread). Raises `LeaseLost` or `StoreUnavailable`.
        """
        self._extend(self.claim, lease)

    @property
    def log(self) -> JobLogger:
        """A logger whose records carry job_id, kind, queue and attempt in their `extra`; never the input."""
        if self._log is None:
            self._log = _JobLog(
                log,
                {
                    "job_id": str(self.job_id),
                    "kind": self.kind,
                    "queue": self.queue,
                    "attempt": self.attempt,
                },
            )
        return self._log

    def __repr__(self) -> str:
        return f"JobContext({self.claim!r})"


class _JobLog(JobLogger):
    """Adds the job to what the caller's own `extra` holds; the standard adapter would replace it."""

    def process(
        self,
        msg: Any,  # Any: the signature is logging's
        kwargs: MutableMapping[str, Any],
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs

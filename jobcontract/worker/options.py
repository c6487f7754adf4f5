"""How a worker behaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from jobcontract.config import WorkerTable
from jobcontract.errors import ConfigError

_DEFAULTS = WorkerTable()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The settings of one worker process. Raises `ConfigError`, which names the setting, for a bad value."""

    queues: tuple[str, ...] = ("default",)
    """Where to claim. Best priority first across all of them; they are not an order of precedence."""
    concurrency: int = _DEFAULTS.concurrency
    """How many handlers run at once, synchronous and async together. 1 to 1000."""
    batch: int = _DEFAULTS.batch
    """The most jobs that one claim takes, 1 to 1000. How many it really asks for follows from how long the
    handlers take: what is claimed ahead is what they will start within a tenth of a second.
    """
    poll_interval: timedelta = _DEFAULTS.poll_interval
    """How long an idle worker waits between looks when nothing wakes it."""
    lease: timedelta = _DEFAULTS.lease
    """How long a claim holds; it is renewed at a third of it. A handler's own lease comes before it."""
    grace: timedelta = _DEFAULTS.grace
    """How long running handlers may go on after the first SIGTERM. Nothing is fine."""
    rescue_interval: timedelta = _DEFAULTS.rescue_interval
    """How often, on average, this worker looks for expired leases."""
    until_empty: bool = False
    """Return once nothing of these queues is ready or running, here or in another worker. Jobs that are
    scheduled for later (also those that wait for a retry) are not waited for. A store without statistics
    can't tell about other workers: there an empty claim is enough, when this worker holds nothing either.
    """

    def __post_init__(self) -> None:
        if not self.queues or not isinstance(self.queues, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("queues must name at least one queue, as a tuple of names")
        for setting in ("concurrency", "batch"):
            count = getattr(self, setting)
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1000:
                raise ConfigError(f"{setting} must be an integer from 1 to 1000, not {count!r}")
        for setting in ("poll_interval", "lease", "rescue_interval"):
            if getattr(self, setting) <= timedelta():
                raise ConfigError(f"{setting} must be longer than nothing")
        if self.grace < timedelta():
            raise ConfigError("grace must not be negative")

    @classmethod
    def of(cls, table: WorkerTable, *, queues: tuple[str, ...] = ("default",)) -> WorkerOptions:
        """The options that ``[worker]`` in the configuration gives."""
        return replace(
            cls(queues=queues),
            concurrency=table.concurrency,
            batch=table.batch,
            poll_interval=table.poll_interval,
            lease=table.lease,
            grace=table.grace,
            rescue_interval=table.rescue_interval,
        )

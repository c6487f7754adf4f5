"""Recurring work: ``[schedules.NAME]`` in the configuration, and what inserts a job for each of its ticks.

::

    [schedules.nightly-export]
    cron = "0 2 * * *"
    timezone = "Europe/Berlin"
    kind = "export"
    input = { format = "parquet" }

Any number of schedulers run at once (every `jobctl worker` has one), and none of them leads. The logical tick
is the idempotency key of its job (``schedule:nightly-export:2026-11-30T01:00Z``), so that each tick is
inserted once. What ticks are, and what a change of the clock does to them: `jobcontract.schedules.ticks`.
"""

from jobcontract.schedules.gaps import Backfilled, Missing, backfill, find_missing
from jobcontract.schedules.place import Gap, Place
from jobcontract.schedules.schedule import Schedule, load_schedules, schedule_of, tick_name
from jobcontract.schedules.scheduler import Scheduler
from jobcontract.schedules.ticks import Cron, Interval, Ticks

__all__ = [
    "Backfilled",
    "Cron",
    "Gap",
    "Interval",
    "Missing",
    "Place",
    "Schedule",
    "Scheduler",
    "Ticks",
    "backfill",
    "find_missing",
    "load_schedules",
    "schedule_of",
    "tick_name",
]

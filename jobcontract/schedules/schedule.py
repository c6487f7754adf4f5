"""A schedule: what `[schedules.NAME]` says, checked, and the job of each of its ticks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import JsonValue

from jobcontract.config import ScheduleTable, Settings
from jobcontract.contract import Job
from jobcontract.errors import ConfigError, InvalidJob
from jobcontract.schedules.ticks import Cron, Interval, Ticks

NAME_HEADER, TICK_HEADER = "schedule", "schedule-tick"
"""The headers by which a handler knows which tick of which schedule it works for."""
_SHORTEST_CATCH_UP = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Recurring work. Each tick is one job, whose idempotency key is the tick."""

    name: str
    ticks: Ticks
    kind: str
    input: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 5
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    catch_up: timedelta = timedelta(hours=1)
    """How late a scheduler inserts a tick by itself. What is later is a gap, for a person to decide about."""
    backend: str | None = None
    """The backend that the jobs go to; None is the default one."""

    @property
    def note(self) -> str:
        """The name of the note (`Notes`) that says how far it has come."""
        return f"schedule:{self.name}"

    @property
    def key_prefix(self) -> str:
        """What the idempotency key of each tick begins with."""
        return f"schedule:{self.name}:"

    def key(self, tick: datetime) -> str:
        """The idempotency key of `tick`."""
        return self.key_prefix + tick_name(tick)

    def job(self, tick: datetime) -> Job:
        """The job of `tick`: never claimed before that instant, by the store's clock. The tick is its key
        and stands in its headers; what a store tells of `run_at` may be later.
        """
        return Job(
            kind=self.kind,
            input_ref=dict(self.input),
            idempotency_key=self.key(tick),
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            headers={**self.headers, NAME_HEADER: self.name, TICK_HEADER: tick_name(tick)},
            run_at=tick,
        )

    def any_job(self) -> Job:
        """What the jobs have in common. Raises `InvalidJob` when they can't be made."""
        return self.job(datetime(2026, 1, 1, tzinfo=UTC))


def tick_name(tick: datetime) -> str:
    """``2026-11-30T02:00Z``; with seconds where there are any."""
    text = tick.astimezone(UTC)
    return text.strftime("%Y-%m-%dT%H:%MZ" if text.second == 0 else "%Y-%m-%dT%H:%M:%SZ")


def load_schedules(settings: Settings, backend: str | None = None) -> list[Schedule]:
    """The schedules of the configuration, by name; with `backend` those whose jobs go to it.

    Contacts nothing. Raises `ConfigError`, which names the schedule and its setting.
    """
    found = [schedule_of(name, table) for name, table in sorted(settings.schedules.items())]
    if backend is None:
        return found
    return [each for each in found if settings.store(each.backend).name == backend]


def schedule_of(name: str, table: ScheduleTable) -> Schedule:
    """The schedule that `table` describes. Raises `ConfigError`."""
    where = f"schedules.{name}"
    if table.catch_up < _SHORTEST_CATCH_UP:
        raise ConfigError(
            f"{where}.catch_up must be 10s at least, or a scheduler that is busy leaves ticks out"
        )
    schedule = Schedule(
        name=name,
        ticks=_ticks_of(where, table),
        kind=table.kind,
        input=table.input,
        queue=table.queue,
        priority=table.priority,
        max_attempts=table.max_attempts,
        headers=table.headers,
        catch_up=table.catch_up,
        backend=table.backend,
    )
    try:
        schedule.any_job()
    except InvalidJob as error:
        setting = "input" if error.field == "input_ref" else error.field
        raise ConfigError(f"{where}.{setting}: {error.reason}") from None
    return schedule


def _ticks_of(where: str, table: ScheduleTable) -> Ticks:
    if (table.cron is None) == (table.every is None):
        raise ConfigError(f'{where}: needs either cron, such as "0 2 * * *", or every, such as "15m"')
    try:
        if table.every is not None:
            if table.timezone is not None:
                raise ConfigError(
                    f"{where}.timezone: an interval follows real time, in no time zone; drop it"
                )
            return Interval(table.every)
        assert table.cron is not None
        return Cron(table.cron, _zone(where, table.timezone or "UTC"))
    except ValueError as error:
        raise ConfigError(f"{where}.{'cron' if table.every is None else 'every'}: {error}") from None


def _zone(where: str, name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"{where}.timezone: {name!r} is not a time zone of the IANA database, such as Europe/Berlin"
        ) from None

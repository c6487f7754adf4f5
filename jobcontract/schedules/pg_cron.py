"""A schedule as a job of pg_cron, for those who have that extension of PostgreSQL.

It inserts the same job under the same key as a scheduler would, so that both may run.
"""

from __future__ import annotations

import re
from datetime import timedelta

from jobcontract.errors import Unsupported
from jobcontract.jsontext import dump_json
from jobcontract.schedules.schedule import NAME_HEADER, TICK_HEADER, Schedule
from jobcontract.schedules.ticks import Cron, Interval
from jobcontract.side_doors import RegistersByStatement

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_OURS_ALONE = re.compile(r"[L#W?]", re.IGNORECASE)
_NAMES = re.compile(r"(?:SUN|MON|TUE|WED|THU|FRI|SAT|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)", re.I)
_UTC = ("UTC", "Etc/UTC", "GMT", "Etc/GMT")
_PLACEHOLDER = "{minute}"


def pg_cron_sql(schedule: Schedule, store: RegistersByStatement) -> str:
    """The statements to run once, in the database of pg_cron. Raises `Unsupported` for what it can't do."""
    expression, zone = _expression(schedule)
    headers = {**schedule.headers, NAME_HEADER: schedule.name, TICK_HEADER: _PLACEHOLDER}
    record = schedule.any_job().to_record()
    statement = store.registration_sql(
        record._replace(idempotency_key=schedule.key_prefix + _PLACEHOLDER, headers=dump_json(headers))
    )
    return _TEMPLATE.format(
        name=schedule.name,
        zones=", ".join(f"'{each}'" for each in (_UTC if zone in _UTC else (zone,))),
        zone=zone,
        expression=expression,
        statement=statement.strip(),
        quote=_quote_around(statement),
        clock="" if zone in _UTC else _CLOCK_NOTE,
    )


_CLOCK_NOTE = """\
-- When the clock is changed pg_cron goes by what it shows: a time that is left out does not run, and one that
-- comes twice runs twice. A scheduler of jobcontract makes up for the first, not for the second.
"""

_TEMPLATE = """\
-- The schedule {name} for pg_cron: the same jobs under the same keys, so that workers may run it too.
-- Undo it with: SELECT cron.unschedule('jobcontract:{name}');
{clock}\
DO $check$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_cron') THEN
        RAISE EXCEPTION 'pg_cron is not installed in this database; run CREATE EXTENSION pg_cron';
    END IF;
    IF coalesce(nullif(current_setting('cron.timezone', true), ''), 'GMT') NOT IN ({zones}) THEN
        RAISE EXCEPTION 'all jobs of pg_cron are in one time zone; set cron.timezone = {zone} for this one';
    END IF;
END
$check$;
SELECT cron.schedule('jobcontract:{name}', '{expression}', {quote}
{statement}
{quote});
"""


def _expression(schedule: Schedule) -> tuple[str, str]:
    ticks = schedule.ticks
    if isinstance(ticks, Cron):
        if _OURS_ALONE.search(_NAMES.sub("", ticks.expression)):
            raise Unsupported(f"schedules.{schedule.name}.cron: pg_cron does not know L, W and #")
        return " ".join(ticks.expression.split()), ticks.zone.key
    assert isinstance(ticks, Interval)
    if ticks.length % _MINUTE == timedelta():
        if ticks.length < _HOUR and _HOUR % ticks.length == timedelta():
            return f"*/{ticks.length // _MINUTE} * * * *", "UTC"
        if ticks.length < _DAY and ticks.length % _HOUR == timedelta() and _DAY % ticks.length == timedelta():
            return f"0 */{ticks.length // _HOUR} * * *", "UTC"
        if ticks.length == _DAY:
            return "0 0 * * *", "UTC"
    raise Unsupported(
        f"schedules.{schedule.name}.every: pg_cron runs at minutes of the clock; an interval must divide an "
        "hour in minutes, or a day in hours"
    )


def _quote_around(statement: str) -> str:
    """A dollar quote that the statement does not end."""
    number = 0
    while (quote := f"$jobcontract{number or ''}$") in statement:
        number += 1
    return quote

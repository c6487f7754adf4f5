"""When schedules are due, above all where a clock is put forward or back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from jobcontract.schedules import Cron, Interval, tick_name

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
CHANGES = {
    "Europe/Berlin": ["2026-03-29T01:00", "2026-10-25T01:00", "2027-03-28T01:00", "2027-10-31T01:00"],
    "America/New_York": ["2026-03-08T07:00", "2026-11-01T06:00", "2027-03-14T07:00", "2027-11-07T06:00"],
    "Australia/Lord_Howe": ["2026-04-04T15:00", "2026-10-03T15:30", "2027-04-03T15:00", "2027-10-02T15:30"],
    "Asia/Kathmandu": [],
}
"""When the clock is put forward or back, in UTC."""


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def cron(expression: str, zone: str) -> Cron:
    return Cron(expression, ZoneInfo(zone))


def around(expression: str, zone: str, change: str, hours: int = 3) -> list[str]:
    """The ticks near a change of the clock, in UTC."""
    middle = utc(change)
    found = cron(expression, zone).between(middle - hours * HOUR, middle + hours * HOUR)
    return [tick.strftime("%d %H:%M") for tick in found]


@pytest.mark.parametrize(
    ("zone", "expression", "change", "ticks"),
    [
        # Put forward: a time that is left out runs at the moment of the change, in each of the two years.
        ("Europe/Berlin", "30 2 * * *", "2026-03-29T01:00", ["29 01:00"]),
        ("Europe/Berlin", "30 2 * * *", "2027-03-28T01:00", ["28 01:00"]),
        ("America/New_York", "30 2 * * *", "2026-03-08T07:00", ["08 07:00"]),
        ("America/New_York", "30 2 * * *", "2027-03-14T07:00", ["14 07:00"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T15:30", ["03 15:30"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2027-10-02T15:30", ["02 15:30"]),
        # ... together with whatever else falls on it, once.
        ("Europe/Berlin", "0,20,40 2,3 * * *", "2026-03-29T01:00", ["29 01:00", "29 01:20", "29 01:40"]),
        # Half an hour is left out on Lord Howe, and 02:30 is not in it.
        ("Australia/Lord_Howe", "30 2 * * *", "2026-10-03T15:30", ["03 15:30"]),
        ("Australia/Lord_Howe", "0,45 2 * * *", "2026-10-03T15:30", ["03 15:30", "03 15:45"]),
        # Put back: a time that comes twice runs once, at the first.
        ("Europe/Berlin", "30 2 * * *", "2026-10-25T01:00", ["25 00:30"]),
        ("Europe/Berlin", "30 2 * * *", "2027-10-31T01:00", ["31 00:30"]),
        ("America/New_York", "30 1 * * *", "2026-11-01T06:00", ["01 05:30"]),
        ("America/New_York", "30 1 * * *", "2027-11-07T06:00", ["07 05:30"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T15:00", ["04 14:45"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2027-04-03T15:00", ["03 14:45"]),
        ("Australia/Lord_Howe", "15 1 * * *", "2026-04-04T15:00", ["04 14:15"]),
        (
            "Europe/Berlin",
            "*/30 2,3 * * *",
            "2026-10-25T01:00",
            ["25 00:00", "25 00:30", "25 02:00", "25 02:30"],
        ),
        # What names every hour follows real time.
        (
            "Europe/Berlin",
            "0 * * * *",
            "2026-10-25T01:00",
            ["24 23:00", "25 00:00", "25 01:00", "25 02:00", "25 03:00", "25 04:00"],
        ),
        (
            "Europe/Berlin",
            "30 */1 * * *",
            "2026-03-29T01:00",
            ["28 22:30", "28 23:30", "29 00:30", "29 01:00", "29 01:30", "29 02:30", "29 03:30"],
        ),
        (
            "Australia/Lord_Howe",
            "0,30 * * * *",
            "2026-04-04T15:00",
            [f"04 {hour}:{minute}" for hour in range(12, 19) for minute in ("00", "30")][1:-1],
        ),
    ],
)
def test_where_the_clock_is_changed(zone: str, expression: str, change: str, ticks: list[str]) -> None:
    assert around(expression, zone, change) == ticks


def test_a_zone_that_never_changes_its_clock_has_the_same_time_every_day() -> None:
    ticks = list(
        cron("15 2 * * *", "Asia/Kathmandu").between(utc("2026-01-01T00:00"), utc("2028-01-01T00:00"))
    )
    assert len(ticks) == 730
    assert {tick.strftime("%H:%M") for tick in ticks} == {"20:30"}
    assert {later - earlier for earlier, later in pairwise(ticks)} == {DAY}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "45 1 * * *", "0 0 * * *", "15 12 * * 1-5", "59 23 31 * *"]
)
def test_each_day_of_two_years_has_its_tick_once(zone: str, expression: str) -> None:
    start, end = datetime(2026, 1, 1), datetime(2028, 1, 1)
    days = [local.date() for local in takewhile_before(end, CronSim(expression, start - MINUTE))]
    ticks = cron(expression, zone).between(
        start.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) - timedelta(seconds=1),
        end.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) - timedelta(seconds=1),
    )
    assert [tick.astimezone(ZoneInfo(zone)).date() for tick in ticks] == days


def takewhile_before(end: datetime, times: CronSim) -> Iterator[datetime]:
    for time in times:
        if time >= end:
            return
        yield time


def by_looking_at_the_clock(expression: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """The rule, the slow way: a minute at a time, reading what the clock on the wall shows."""
    hours = CronSim(expression, datetime(2000, 1, 1)).hours
    seen: set[datetime] = set()
    found: list[datetime] = []

    def names(local: datetime) -> bool:
        return next(CronSim(expression, local - MINUTE)) == local

    at = after - 3 * HOUR
    shown = (at - MINUTE).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    while at <= until:
        local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        left_out = [shown + n * MINUTE for n in range(1, int((local - shown) / MINUTE))]
        is_new = local not in seen or len(hours) == 24
        if (names(local) and is_new) or any(names(each) for each in left_out):
            found.append(at)
        seen.add(local)
        shown, at = local, at + MINUTE
    return [tick for tick in found if after < tick]


expressions = st.builds(
    "{} {} * * *".format,
    st.sampled_from(["0", "30", "*/15", "5,35,59", "*", "10-20"]),
    st.sampled_from(["*", "*/1", "0-23", "1", "2", "1,2,3", "*/2", "0-3", "3"]),
)


@settings(max_examples=20, deadline=None)
@given(
    expression=expressions,
    place=st.sampled_from([(zone, change) for zone, changes in CHANGES.items() for change in changes]),
    before=st.integers(1, 300),
)
def test_it_is_what_somebody_sees_who_watches_the_clock(
    expression: str, place: tuple[str, str], before: int
) -> None:
    zone, change = place
    after, until = utc(change) - before * MINUTE, utc(change) + 5 * HOUR
    found = cron(expression, zone)
    expected = by_looking_at_the_clock(expression, zone, after, until)
    assert list(found.between(after, until)) == expected
    assert found.upcoming(after, len(expected)) == expected


@given(
    expression=expressions,
    zone=st.sampled_from(ZONES),
    minutes=st.lists(st.integers(0, 2 * 365 * 24 * 60), min_size=3, max_size=3).map(sorted),
)
@settings(max_examples=20, deadline=None)
def test_two_spans_have_the_ticks_of_the_whole(expression: str, zone: str, minutes: list[int]) -> None:
    """However often schedulers are restarted, no tick is lost or doubled between two looks."""
    first, middle, last = (utc("2026-01-01T00:00") + minute * MINUTE for minute in minutes)
    last = min(last, first + 60 * DAY)
    middle = min(middle, last)
    found = cron(expression, zone)
    assert [*found.between(first, middle), *found.between(middle, last)] == list(found.between(first, last))


def test_an_interval_runs_in_real_time_from_the_same_instants_for_everybody() -> None:
    every = Interval(90 * MINUTE)
    ticks = every.upcoming(utc("2026-10-24T23:10"), 4)
    assert [tick_name(tick) for tick in ticks] == [
        "2026-10-25T00:00Z",
        "2026-10-25T01:30Z",
        "2026-10-25T03:00Z",
        "2026-10-25T04:30Z",
    ]
    assert list(every.between(ticks[0], ticks[2])) == ticks[1:3]
    assert every.following(ticks[0] - timedelta(microseconds=1)) == ticks[0]


def test_a_rare_tick_is_found_and_one_that_never_comes_is_none() -> None:
    assert cron("0 0 29 2 *", "UTC").following(utc("2026-01-01T00:00")) == utc("2028-02-29T00:00")
    with pytest.raises(ValueError, match="no cron expression: bad day-of-month"):
        cron("0 0 30 2 *", "UTC")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("* * * *", "must have five fields: minute hour day month weekday"),
        ("0 0 2 * * *", "must have five fields"),
        ("@daily", "must have five fields"),
        ("61 * * * *", "bad minute"),
        ("* * * * mo", "bad day-of-week"),
    ],
)
def test_what_is_no_expression_is_said(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        cron(expression, "UTC")


@pytest.mark.parametrize("length", [timedelta(), timedelta(milliseconds=500), timedelta(seconds=1.5)])
def test_an_interval_is_whole_seconds(length: timedelta) -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        Interval(length)

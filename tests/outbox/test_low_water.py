"""Where claims begin to read: behind what is gone, and never for long behind what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobcontract_outbox.low_water import START, LowWater, Position


def position(number: int) -> Position:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number), number


def test_a_claim_begins_where_the_last_one_ended() -> None:
    low_water = LowWater()
    low, reading = low_water.begin()
    assert low is START
    low_water.advance(position(1), reading)
    assert low_water.begin() == (position(1), reading)


def test_of_two_threads_the_one_that_is_behind_does_not_take_the_other_back() -> None:
    low_water = LowWater()
    _, reading = low_water.begin()
    low_water.advance(position(1), reading)
    low_water.advance(position(3), reading)
    low_water.advance(position(2), reading)
    assert low_water.begin() == (position(3), reading)


def test_what_a_new_reading_found_is_not_skipped_because_of_the_one_before() -> None:
    low_water = LowWater()
    _, before = low_water.begin()
    low_water.advance(position(10), before)
    low, anew = low_water.begin_again()
    assert low is START
    assert low_water.begin() == (position(10), before), "the other thread need not wait for it"
    low_water.advance(position(2), anew)
    low_water.advance(position(11), before)
    assert low_water.begin() == (position(2), anew)


def test_a_reading_that_finds_nothing_begins_at_the_start_again() -> None:
    low_water = LowWater()
    _, before = low_water.begin()
    low_water.advance(position(10), before)
    low, anew = low_water.begin_again()
    low_water.advance(low, anew)
    assert low_water.begin() == (START, anew)


def test_reading_from_the_start_takes_a_twentieth_of_the_time_at_most() -> None:
    low_water = LowWater()
    low_water.charge(1000)
    _, reading = low_water.begin()
    low_water.advance(position(1), reading)
    assert low_water.begin() == (position(1), reading)

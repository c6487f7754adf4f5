"""Lengths of time as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from jobcontract.durations import Duration, PositiveDuration, format_duration, parse_duration

duration: TypeAdapter[timedelta] = TypeAdapter(Duration)
positive: TypeAdapter[timedelta] = TypeAdapter(PositiveDuration)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("0", timedelta()),
        ("5", timedelta(seconds=5)),
        ("1.5", timedelta(seconds=1.5)),
        ("250ms", timedelta(milliseconds=250)),
        ("30s", timedelta(seconds=30)),
        ("10m", timedelta(minutes=10)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        (" 5s ", timedelta(seconds=5)),
    ],
)
def test_good_texts(text: str, length: timedelta) -> None:
    assert parse_duration(text) == length
    assert duration.validate_python(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "5 s",
        "-5s",
        "+5s",
        "1e5",
        ".5s",
        "5x",
        "5S",
        "5s later",
        "٣s",
        "NaN",
        "inf",
        "9" * 11,
        "999999999w",
    ],
)
def test_bad_texts_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"length of time|longer than a timedelta") as caught:
        parse_duration(text)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValidationError):
        duration.validate_python(text)


@given(st.text())
def test_any_text_is_a_length_or_a_value_error(text: str) -> None:
    try:
        length = parse_duration(text)
    except ValueError:
        return
    assert length >= timedelta()


@given(st.integers(0, 10**9))
def test_whole_seconds_are_read_exactly(seconds: int) -> None:
    if seconds < 10**9:
        assert parse_duration(f"{seconds}s") == parse_duration(str(seconds)) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value", [True, None, [], "x", -1, timedelta(seconds=-1), float("nan"), float("inf"), 1e300]
)
def test_a_field_refuses_what_is_no_length(value: Any) -> None:
    with pytest.raises(ValidationError):
        duration.validate_python(value)


@pytest.mark.parametrize("value", [5, 5.0, "5s", timedelta(seconds=5)])
def test_a_field_takes_numbers_texts_and_timedeltas(value: Any) -> None:
    assert duration.validate_python(value) == positive.validate_python(value) == timedelta(seconds=5)


@pytest.mark.parametrize("value", [0, "0s", timedelta()])
def test_a_positive_length_is_longer_than_nothing(value: Any) -> None:
    assert duration.validate_python(value) == timedelta()
    with pytest.raises(ValidationError, match="longer than nothing"):
        positive.validate_python(value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.012, "12ms"),
        (0.9996, "1.0s"),
        (2.5, "2.5s"),
        (9.96, "10s"),
        (59, "59s"),
        (59.6, "1m"),
        (90, "1m 30s"),
        (3600, "1h"),
        (5400, "1h 30m"),
        (90_000, "1d 1h"),
        (86_405, "1d"),
        (-2.5, "-2.5s"),
    ],
)
def test_lengths_for_people(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.timedeltas(timedelta(), timedelta(days=100_000)))
def test_what_is_shown_can_be_read(length: timedelta) -> None:
    """Rounded to the second largest unit, at most half of it off."""
    shown = parse_duration(format_duration(length).replace(" ", ""))
    assert abs(shown - length) <= max(timedelta(milliseconds=1), length * 0.05)

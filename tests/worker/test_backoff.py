"""How long a failed job waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobcontract import Backoff, ConfigError
from jobcontract.backoff import DEFAULT_BACKOFF

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def no_jitter() -> float:
    return 0.0


def test_the_default_doubles_from_a_second_to_an_hour() -> None:
    delays = [DEFAULT_BACKOFF.delay(attempt, no_jitter) for attempt in range(1, 15)]

    assert delays[:4] == [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND]
    assert delays[11] == 2048 * SECOND
    assert delays[12:] == [HOUR, HOUR]


@pytest.mark.parametrize("attempt", [1000, 10**6, 10**30])
def test_no_attempt_number_overflows(attempt: int) -> None:
    assert DEFAULT_BACKOFF.delay(attempt, no_jitter) == HOUR


def test_jitter_takes_away_and_never_adds() -> None:
    backoff = Backoff(base=8 * SECOND, cap=8 * SECOND, jitter=0.25)

    assert backoff.delay(5, lambda: 0.0) == 8 * SECOND
    assert backoff.delay(5, lambda: 1.0) == 6 * SECOND


def test_a_factor_of_one_is_constant() -> None:
    backoff = Backoff(base=3 * SECOND, factor=1, jitter=0)

    assert {backoff.delay(attempt) for attempt in (1, 2, 50, 1000)} == {3 * SECOND}


def test_no_base_is_no_delay() -> None:
    assert Backoff(base=timedelta()).delay(7) == timedelta()


@given(
    base=st.timedeltas(min_value=timedelta(), max_value=HOUR),
    more=st.timedeltas(min_value=timedelta(), max_value=timedelta(days=365)),
    factor=st.floats(min_value=1, max_value=1e6),
    jitter=st.floats(min_value=0, max_value=1),
    attempt=st.integers(min_value=0, max_value=10_000),
)
def test_a_delay_is_never_negative_and_never_beyond_the_cap(
    base: timedelta, more: timedelta, factor: float, jitter: float, attempt: int
) -> None:
    backoff = Backoff(base=base, factor=factor, cap=base + more, jitter=jitter)

    assert timedelta() <= backoff.delay(attempt) <= base + more


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"base": -SECOND}, "base"),
        ({"base": 2 * SECOND, "cap": SECOND}, "cap"),
        ({"factor": 0.5}, "factor"),
        ({"factor": float("nan")}, "factor"),
        ({"factor": float("inf")}, "factor"),
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": 1.1}, "jitter"),
    ],
)
def test_what_gives_no_sensible_delay_is_refused_by_name(values: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}: "):
        Backoff(**values)

"""Hypothesis strategies for what a job may hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from jobcontract.contract import Job


def storable_text(max_size: int = 20) -> st.SearchStrategy[str]:
    """Any text without NUL and lone surrogates."""
    return st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=0, max_size=max_size)


def json_values() -> st.SearchStrategy[Any]:
    """Any value that JSON has: floats of every size, integers beyond 64 bit, nesting."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.integers(min_value=-(10**100), max_value=10**100)
        | st.floats(allow_nan=False, allow_infinity=False)
        | storable_text()
    )
    return st.recursive(
        leaves,
        lambda children: (
            st.lists(children, max_size=4) | st.dictionaries(storable_text(8), children, max_size=4)
        ),
        max_leaves=12,
    )


def input_refs() -> st.SearchStrategy[dict[str, Any]]:
    """What an `input_ref` may be."""
    return st.dictionaries(storable_text(8), json_values(), max_size=5)


def headers() -> st.SearchStrategy[dict[str, str]]:
    """What `headers` may be."""
    return st.dictionaries(storable_text(8), storable_text(), max_size=4)


def keys() -> st.SearchStrategy[str]:
    """What an idempotency key may be."""
    return storable_text(40).map(str.strip).filter(bool)


def jobs() -> st.SearchStrategy[Job]:
    """Any job."""
    return st.builds(
        Job,
        kind=st.from_regex(r"\A[A-Za-z0-9_.:\-]{1,128}\Z"),
        input_ref=input_refs(),
        idempotency_key=st.none() | keys(),
        queue=st.from_regex(r"\A[a-z0-9_.\-]{1,64}\Z").filter(lambda name: not name.startswith("amq.")),
        priority=st.integers(0, 9),
        run_at=st.none() | st.datetimes(datetime(1970, 1, 1), datetime(2099, 12, 31), timezones=st.just(UTC)),
        max_attempts=st.integers(1, 1000),
        headers=headers(),
    )

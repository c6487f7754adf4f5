"""Which tests a store's declaration selects.

A test says with `needs` and `lacks` which features it is about. What a store declares selects the tests that
prove it; what it does not declare selects those that prove that it says so: `Unsupported`, and nothing left
behind. A side door that is no feature is not declared but there (`through`).

What does not apply is known only when a store is there, too late to deselect it. pytest is told to skip it,
and it is counted apart: "skipped" in the results means what it means elsewhere, that something is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import pytest

from jobcontract.contract import Capabilities, Driver, Feature
from jobcontract.side_doors import CarriesCopies, Diagnosis, HostsTables

Test = TypeVar("Test", bound=Callable[..., None])

DOORS: tuple[type, ...] = (HostsTables, Diagnosis, CarriesCopies)
"""The side doors that are no features, and that tests go through."""


NOT_APPLICABLE = "not applicable"
"""What the store does not declare, and so need not show."""
NOT_TRIED = "not tried"
"""What the harness gives no way to try."""


def leave_out(category: str, reason: str) -> NoReturn:
    """End the test that runs; it is counted as `category`."""
    pytest.skip(f"{category}: {reason}")


@dataclass(frozen=True, slots=True)
class Selection:
    """What a test is about."""

    needs: frozenset[Feature] = frozenset()
    lacks: frozenset[Feature] = frozenset()
    doors: frozenset[type] = frozenset()

    def reason_against(self, capabilities: Capabilities, doors: Collection[type]) -> str | None:
        """Why the test does not apply to a store with `capabilities` and `doors`; None when it does."""
        absent = sorted(door.__name__ for door in self.doors.difference(doors))
        if absent:
            return f"{capabilities.store} has no {', '.join(absent)}"
        missing = capabilities.lacking(self.needs)
        if missing:
            return f"{capabilities.store} does not declare {', '.join(missing)}"
        declared = sorted(feature for feature in self.lacks if capabilities.has(feature))
        return f"{capabilities.store} declares {', '.join(declared)}" if declared else None


def needs(*features: Feature) -> Callable[[Test], Test]:
    """The test is for stores that declare all of `features`."""
    return _selecting(Selection(needs=frozenset(features)))


def lacks(*features: Feature) -> Callable[[Test], Test]:
    """The test is for stores that declare none of `features`: it proves that they refuse."""
    return _selecting(Selection(lacks=frozenset(features)))


def through(door: type) -> Callable[[Test], Test]:
    """The test is for stores that have the side door `door`, a protocol that is no feature."""
    assert door in DOORS
    return _selecting(Selection(doors=frozenset({door})))


def doors_of(driver: Driver) -> frozenset[type]:
    """Those of `DOORS` that `driver` has."""
    return frozenset(door for door in DOORS if isinstance(driver, door))


def selection_of(test: Callable[..., object]) -> Selection:
    """What `test` was marked with."""
    found = getattr(test, "_conformance", Selection())
    assert isinstance(found, Selection)
    return found


def _selecting(selection: Selection) -> Callable[[Test], Test]:
    def mark(test: Test) -> Test:
        before = selection_of(test)
        both = Selection(
            before.needs | selection.needs, before.lacks | selection.lacks, before.doors | selection.doors
        )
        setattr(test, "_conformance", both)  # noqa: B010 - a function has no such attribute for a type checker
        return test

    return mark

"""Which tests a store's declaration selects, and the record of those that ran.

A test says with `needs` and `lacks` which features it is about. What a store declares selects the tests that
prove it; what it does not declare selects those that prove that it says so: `Unsupported`, and nothing left
behind. A side door that is no feature is not declared but there (`through`). The record is what lets
`ConformanceSuite` fail when something declared went untested.

What does not apply is known only when a store is there, too late to deselect it. pytest is told to skip it,
and it is counted apart: "skipped" in the results means what it means elsewhere, that something is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

import pytest

from jobcontract.contract import FEATURES, Capabilities, Diagnosis, Driver, Feature, HostsTables

Test = TypeVar("Test", bound=Callable[..., None])

DOORS: tuple[type, ...] = (HostsTables, Diagnosis)
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


@dataclass(slots=True)
class Record:
    """What became of the tests of one suite class in this session."""

    title: str
    capabilities: Capabilities | None = None
    doors: frozenset[type] = frozenset()
    ran: dict[str, int] = field(default_factory=dict[str, int])
    """By the name of the test, how many of its cases ran."""
    inapplicable: dict[str, str] = field(default_factory=dict[str, str])
    """By the name of the test, why it does not apply to this store."""
    not_offered: dict[str, str] = field(default_factory=dict[str, str])
    """By the name of the test, what it asked the harness for in vain."""

    def lines(self, chapters: dict[str, list[str]]) -> list[str]:
        """The record for people. `chapters` has the names of the tests of each."""
        if self.capabilities is None:
            return []
        counts = {
            chapter: sum(self.ran.get(name, 0) for name in names) for chapter, names in chapters.items()
        }
        lacking = self.capabilities.lacking(FEATURES)
        lines = [
            f"{self.title}: {self.capabilities.store}",
            "  ran: " + ", ".join(f"{chapter} {count}" for chapter, count in counts.items() if count),
        ]
        if lacking:
            lines.append("  not declared: " + ", ".join(lacking))
        if self.not_offered:
            lines.append(
                "  not tried, for the harness has no: " + ", ".join(sorted(set(self.not_offered.values())))
            )
        return lines


_KEY = pytest.StashKey[dict[str, Record]]()


def record_of(config: pytest.Config, suite: type) -> Record:
    """The record of class `suite` in this session; the first one brings the summary at the end of the run."""
    records = config.stash.setdefault(_KEY, {})
    if not records:
        config.pluginmanager.register(_Summary())
    return records.setdefault(f"{suite.__module__}.{suite.__qualname__}", Record(suite.__qualname__))


class _Summary:
    """Counts what was left out, and writes what ran below the results."""

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if report.skipped and isinstance(report.longrepr, tuple):
            for category in (NOT_APPLICABLE, NOT_TRIED):
                if report.longrepr[2].startswith(f"Skipped: {category}: "):
                    return category, "-", category.upper()
        return None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from jobcontract.conformance.suite import CHAPTERS

        names = {chapter.title(): chapter.names_of_tests() for chapter in CHAPTERS}
        lines = [
            line for record in terminalreporter.config.stash[_KEY].values() for line in record.lines(names)
        ]
        if lines:
            terminalreporter.section("conformance")
            for line in lines:
                terminalreporter.write_line(line)

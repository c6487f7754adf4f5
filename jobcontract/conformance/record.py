"""What became of the tests of a suite: it lets `ConformanceSuite` fail when something declared went untested.

It is also a plugin of pytest that counts what was left out, and writes what ran below the results. The
suite's first test brings it along. Under xdist the process that prints has no tests: have it loaded there
from the start, with `-p jobcontract.conformance.record`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from jobcontract.conformance.selection import NOT_APPLICABLE, NOT_TRIED
from jobcontract.contract import FEATURES, Capabilities


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


_RECORDS = pytest.StashKey[dict[str, Record]]()
_FROM_WORKERS = pytest.StashKey[list[str]]()
_LINES = "jobcontract_conformance"
"""Under what name a worker of xdist hands its lines on."""


def record_of(config: pytest.Config, suite: type) -> Record:
    """The record of class `suite` in this session."""
    plugin = sys.modules[__name__]
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin)
    records = config.stash.setdefault(_RECORDS, {})
    return records.setdefault(f"{suite.__module__}.{suite.__qualname__}", Record(suite.__qualname__))


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    if report.skipped and isinstance(report.longrepr, tuple):
        for category in (NOT_APPLICABLE, NOT_TRIED):
            if report.longrepr[2].startswith(f"Skipped: {category}: "):
                return category, "-", category.upper()
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_LINES] = _lines_of(session.config)


class _Node(Protocol):
    """A worker of xdist, as far as it concerns us."""

    config: pytest.Config
    workeroutput: Mapping[str, list[str]]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: _Node) -> None:
    output: Mapping[str, list[str]] = getattr(node, "workeroutput", {})  # a worker that crashed has none
    node.config.stash.setdefault(_FROM_WORKERS, []).extend(output.get(_LINES, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    from_workers: list[str] = []
    lines = _lines_of(config) + config.stash.get(_FROM_WORKERS, from_workers)
    if lines:
        terminalreporter.section("conformance")
        for line in lines:
            terminalreporter.write_line(line)


def _lines_of(config: pytest.Config) -> list[str]:
    from jobcontract.conformance.suite import CHAPTERS  # its tests keep this record

    names = {chapter.title(): chapter.names_of_tests() for chapter in CHAPTERS}
    none: dict[str, Record] = {}
    return [line for record in config.stash.get(_RECORDS, none).values() for line in record.lines(names)]

"""The suite sees each of the faults in `broken`, and says so in the test that is about it."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from jobcontract.conformance.stateful import DriverMachine
from tests.conformance.broken import VARIANTS, BrokenHarness

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from jobcontract.conformance import ConformanceSuite
from tests.conformance.broken import {driver}, BrokenHarness

class TestBroken(ConformanceSuite):
    @pytest.fixture
    def harness(self):
        return BrokenHarness({driver})
"""

# Faults that show in the answers to a history of calls, one after the other.
SEEN_BY_THE_MODEL = [
    "CountsRunningJobsAsReady",
    "GivesEveryClaimTheSameToken",
    "IgnoresPriorities",
    "LosesTheError",
    "MixesQueues",
    "ReleaseSpendsAnAttempt",
    "RequeueCountsFromOneAgain",
    "SwallowsConflicts",
]


class Run(NamedTuple):
    """A run of the suite: by the name of each test what became of it, and what pytest printed."""

    outcomes: dict[str, str]
    output: str


class Reports:
    """Collects the outcomes."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.outcomes[report.nodeid.partition("::TestBroken::")[2]] = report.outcome


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> Run:
    """Run the class TestBroken in `source`, in this process."""
    reports = Reports()
    result = pytester.runpytest_inprocess(
        pytester.makepyfile(source), "-p", "no:cacheprovider", *arguments, plugins=[reports]
    )
    return Run(reports.outcomes, result.stdout.str())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_fault_is_seen(pytester: pytest.Pytester, variant: str) -> None:
    names = VARIANTS[variant].seen_by
    selected = " or ".join(name.partition("[")[0] for name in names)
    found = run(pytester, SUITE.format(driver=variant), "-k", selected)
    assert {name: found.outcomes.get(name) for name in names} == dict.fromkeys(names, "failed")


FILE_SUITE = """
import pytest
from jobcontract.conformance import ConformanceSuite
from tests.conformance.broken import {driver}
from tests.conformance.test_sqlite import FileHarness

class BrokenHarness(FileHarness):
    def connect(self, url):
        return {driver}(url)

class TestBroken(ConformanceSuite):
    @pytest.fixture
    def harness(self, tmp_path):
        return BrokenHarness(tmp_path)
"""


def test_a_job_that_commits_by_itself_is_seen(pytester: pytest.Pytester) -> None:
    name = "test_a_rolled_back_transaction_leaves_no_job_and_no_key"
    found = run(pytester, FILE_SUITE.format(driver="CommitsByItself"), "-k", name)
    assert found.outcomes == {name: "failed"}
    assert "with a connection of kind 'SQLite'" in found.output


@pytest.mark.parametrize(
    ("driver", "seen"),
    [("HostsWithoutTransactions", "failed"), ("SoundFile", "passed")],
    ids=["broken", "sound"],
)
def test_tables_without_transactions_are_seen(pytester: pytest.Pytester, driver: str, seen: str) -> None:
    names = (
        "test_a_block_that_raises_rolls_back",
        "test_a_statement_that_fails_is_a_store_error_and_undoes_the_block",
        "test_a_block_sees_what_others_committed_and_nothing_else",
    )
    found = run(pytester, FILE_SUITE.format(driver=driver), "-k", " or ".join(names))
    assert found.outcomes == dict.fromkeys(names, seen)


@pytest.mark.parametrize("variant", SEEN_BY_THE_MODEL)
def test_a_fault_is_seen_by_made_up_histories(variant: str) -> None:
    class Machine(DriverMachine):
        harness = BrokenHarness(VARIANTS[variant].driver)

    only_look = settings(
        max_examples=500, stateful_step_count=50, deadline=None, database=None, phases=[Phase.generate]
    )
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(Machine, settings=only_look)
    assert "state = Machine()" in "\n".join(caught.value.__notes__)


def test_the_same_tests_pass_without_a_fault(pytester: pytest.Pytester) -> None:
    names = {name.partition("[")[0] for fault in VARIANTS.values() for name in fault.seen_by}
    found = run(pytester, SUITE.format(driver="Sound"), "-k", " or ".join(names))
    not_passed = {name: outcome for name, outcome in found.outcomes.items() if outcome != "passed"}
    assert not_passed == {
        "test_a_registration_outlives_its_client": "skipped"
    }  # it is in memory, and says so

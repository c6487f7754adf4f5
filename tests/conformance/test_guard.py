"""The guard of the suite: nothing that is declared goes untested, and nothing is quietly left out."""

from __future__ import annotations

import re

import pytest

from jobcontract.conformance import CHAPTERS
from jobcontract.conformance.selection import selection_of
from jobcontract.contract import FEATURES
from tests.conformance.test_can_fail import run

pytest_plugins = ["pytester"]

GUARD = "test_everything_declared_was_tested"

SUITE = """
import pytest
from jobcontract.conformance import ConformanceSuite
from tests.conformance.bare import BareDriver, BareHarness, ConnectionBoundDriver
from tests.conformance.broken import BrokenHarness, Sound
from tests.conformance.test_sqlite import FileHarness

class Quick(BareHarness):
    claimed_jobs, claimers, large_batch, examples = 100, 4, 1001, 2

class WithoutDisconnect(Quick):
    def disconnect(self, driver):
        return super(BareHarness, self).disconnect(driver)

class WithoutTransactions(FileHarness):
    claimed_jobs, claimers, large_batch, examples = 100, 4, 1001, 2

    def transactions(self, url):
        return super(FileHarness, self).transactions(url)

class TestBroken(ConformanceSuite):
    @pytest.fixture
    def harness(self, tmp_path):
        return {harness}
{more}
"""


def test_every_feature_has_a_test_for_those_that_declare_it_and_one_for_those_that_dont() -> None:
    tests = [selection_of(vars(chapter)[name]) for chapter in CHAPTERS for name in chapter.names_of_tests()]
    assert {feature for feature in FEATURES if any(feature in test.needs for test in tests)} == set(FEATURES)
    # A store says in its durability and its lease what they are: there is nothing that it could refuse. And
    # no verb of `Backend` moves jobs.
    refused = set(FEATURES) - {"fsync", "move", "timed_lease"}
    assert {feature for test in tests for feature in test.lacks} == refused


def test_no_two_tests_share_a_name() -> None:
    """In one class the one would silently replace the other."""
    names = [name for chapter in CHAPTERS for name in chapter.names_of_tests()]
    assert sorted(names) == sorted(set(names))


def test_a_complete_run_passes_and_is_summed_up(pytester: pytest.Pytester) -> None:
    found = run(pytester, SUITE.format(harness="Quick(BareDriver)", more=""))
    assert set(found.outcomes.values()) == {"passed", "skipped"}
    results = found.output.splitlines()[-1]
    assert re.search(r" \d+ not applicable, ", results), results
    assert "skipped" not in results
    assert found.outcomes[GUARD] == "passed"
    assert "TestBroken: Bare 1.0" in found.output
    assert "not declared: cancel, deduplication, fsync, " in found.output
    assert "not tried, for the harness has no: corrupt, disconnect" in found.output


def test_declared_transactions_need_connections_to_try_them(pytester: pytest.Pytester) -> None:
    found = run(pytester, SUITE.format(harness="WithoutTransactions(tmp_path)", more=""))
    assert [name for name, outcome in found.outcomes.items() if outcome == "failed"] == [GUARD]
    assert "transactions is declared by SQLite" in found.output
    assert "none of its tests ran" in found.output


def test_processes_that_share_the_tests_are_summed_up_by_the_one_that_prints(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(SUITE.format(harness="Quick(BareDriver)", more=""))
    spread = ("-n", "2", "--dist", "loadscope", "-p", "jobcontract.conformance.record")
    output = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", *spread, "-k", "an_empty_store"
    ).stdout.str()
    assert " not applicable " in output.splitlines()[-1]
    assert "TestBroken: Bare 1.0" in output


def test_a_lease_that_is_a_connection_needs_a_way_to_cut_it(pytester: pytest.Pytester) -> None:
    found = run(pytester, SUITE.format(harness="WithoutDisconnect(ConnectionBoundDriver)", more=""))
    assert [name for name, outcome in found.outcomes.items() if outcome == "failed"] == [GUARD]
    assert "can't be tested unless the harness has `disconnect`" in found.output


@pytest.mark.parametrize(
    "replacement",
    [
        "    def test_a_completed_job_is_done_and_never_comes_again(self): pass",
        "    test_a_completed_job_is_done_and_never_comes_again = None",
    ],
)
def test_a_test_that_was_replaced_is_named(pytester: pytest.Pytester, replacement: str) -> None:
    source = SUITE.format(harness="Quick(BareDriver)", more=replacement)
    found = run(pytester, source, "-k", f"{GUARD} or test_a_completed_job")
    assert found.outcomes[GUARD] == "failed"
    assert (
        "tests of the suite were replaced: test_a_completed_job_is_done_and_never_comes_again" in found.output
    )


MARKS = [
    "    @pytest.mark.skip\n    def test_a_completed_job_is_done_and_never_comes_again(self): pass",
    "    pytestmark = pytest.mark.xfail",
    "    pytestmark = [pytest.mark.skipif(True, reason='today')]",
    "pytestmark = pytest.mark.skip",
    "TestBroken = pytest.mark.skip(TestBroken)",
]


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_that_would_silence_the_suite_fails_it(pytester: pytest.Pytester, mark: str) -> None:
    found = run(pytester, SUITE.format(harness="Quick(BareDriver)", more=mark))
    assert found.outcomes == {}
    assert re.search("the mark '(skip|skipif|xfail)' on TestBroken would silence the conf", found.output)
    assert " error" in found.output.splitlines()[-1]


def test_a_mark_that_was_added_later_is_seen_by_the_guard(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if item.name.startswith('test_an_empty_store'): item.add_marker(pytest.mark.xfail)\n"
    )
    found = run(
        pytester, SUITE.format(harness="Quick(BareDriver)", more=""), "-k", f"{GUARD} or test_an_empty_store"
    )
    assert found.outcomes[GUARD] == "failed"
    assert "tests of the suite are marked to be skipped or to fail: test_an_empty_store" in found.output


def test_a_part_of_the_suite_can_be_run_alone(pytester: pytest.Pytester) -> None:
    found = run(
        pytester, SUITE.format(harness="Quick(BareDriver)", more=""), "-k", f"{GUARD} or test_an_empty_store"
    )
    assert found.outcomes[GUARD] == "passed"


def test_a_suite_without_a_harness_says_what_to_write(pytester: pytest.Pytester) -> None:
    source = (
        "from jobcontract.conformance import ConformanceSuite\nclass TestBroken(ConformanceSuite): pass\n"
    )
    found = run(pytester, source, "-k", GUARD)
    assert found.outcomes[GUARD] == "failed"
    assert "write a fixture `harness` that gives the Harness of your driver" in found.output

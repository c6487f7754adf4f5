"""The whole suite as one class, and the guard that nothing declared went untested."""

from __future__ import annotations

import os

import pytest

from jobcontract.conformance.batches import BatchesChapter
from jobcontract.conformance.cancel import CancelChapter
from jobcontract.conformance.capabilities import CapabilitiesChapter
from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.claim import ClaimChapter
from jobcontract.conformance.concurrency import ConcurrencyChapter
from jobcontract.conformance.copies import CopiesChapter
from jobcontract.conformance.decode import DecodeChapter
from jobcontract.conformance.diagnosis import DiagnosisChapter
from jobcontract.conformance.hosting import HostingChapter
from jobcontract.conformance.keys import KeysChapter
from jobcontract.conformance.lease import LeaseChapter
from jobcontract.conformance.lookup import LookupChapter
from jobcontract.conformance.move import MoveChapter
from jobcontract.conformance.notes import NotesChapter
from jobcontract.conformance.outage import OutageChapter
from jobcontract.conformance.pause import PauseChapter
from jobcontract.conformance.priority import PriorityChapter
from jobcontract.conformance.prune import PruneChapter
from jobcontract.conformance.record import record_of
from jobcontract.conformance.register import RegisterChapter
from jobcontract.conformance.requeue import RequeueChapter
from jobcontract.conformance.rescue import RescueChapter
from jobcontract.conformance.schedule import ScheduleChapter
from jobcontract.conformance.selection import Selection, selection_of
from jobcontract.conformance.settle import SettleChapter
from jobcontract.conformance.stateful import StatefulChapter
from jobcontract.conformance.stats import StatsChapter
from jobcontract.conformance.store import Store
from jobcontract.conformance.transactions import TransactionsChapter
from jobcontract.conformance.wait import WaitChapter
from jobcontract.contract import FEATURES, ConnectionLease

_SILENCING = ("skip", "skipif", "xfail")

CHAPTERS: tuple[type[Chapter], ...] = (
    CapabilitiesChapter,
    RegisterChapter,
    ClaimChapter,
    SettleChapter,
    LeaseChapter,
    RescueChapter,
    ScheduleChapter,
    PriorityChapter,
    KeysChapter,
    TransactionsChapter,
    HostingChapter,
    WaitChapter,
    PauseChapter,
    LookupChapter,
    StatsChapter,
    CancelChapter,
    RequeueChapter,
    PruneChapter,
    NotesChapter,
    MoveChapter,
    CopiesChapter,
    DecodeChapter,
    BatchesChapter,
    DiagnosisChapter,
    ConcurrencyChapter,
    OutageChapter,
    StatefulChapter,
)


class ConformanceSuite(
    StatefulChapter,
    OutageChapter,
    ConcurrencyChapter,
    DiagnosisChapter,
    BatchesChapter,
    DecodeChapter,
    CopiesChapter,
    MoveChapter,
    NotesChapter,
    PruneChapter,
    RequeueChapter,
    CancelChapter,
    StatsChapter,
    LookupChapter,
    PauseChapter,
    WaitChapter,
    HostingChapter,
    TransactionsChapter,
    KeysChapter,
    PriorityChapter,
    ScheduleChapter,
    RescueChapter,
    LeaseChapter,
    SettleChapter,
    ClaimChapter,
    RegisterChapter,
    CapabilitiesChapter,
):
    """Every clause of the contract that one process can show, for one driver.

    Subclass it and write the fixture `harness`. (The bases stand in reverse: pytest collects the last one
    first, and this class's own test, the guard, at the end.)
    """

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """pytest's hook, called for each test as it is collected: no mark may silence one, or the guard."""
        for mark in metafunc.definition.iter_markers():
            if mark.name in _SILENCING:
                pytest.fail(
                    f"the mark {mark.name!r} on {type(self).__name__} would silence the conformance suite; "
                    "take it off (where a server is missing, skip in the fixture `harness`)",
                    pytrace=False,
                )

    def test_everything_declared_was_tested(self, store: Store, request: pytest.FixtureRequest) -> None:
        """Looks back at the run: no test was replaced or left out, and each declared feature was tried."""
        record = record_of(request.config, type(self))
        tests = {
            name: selection_of(getattr(chapter, name))
            for chapter in CHAPTERS
            for name in chapter.names_of_tests()
        }
        replaced = sorted(name for name in tests if not _is_ours(type(self), name))
        assert not replaced, f"tests of the suite were replaced: {', '.join(replaced)}"

        marked = sorted(item.name for item in _items_of(request, type(self)) if _is_silenced(item))
        assert not marked, f"tests of the suite are marked to be skipped or to fail: {', '.join(marked)}"

        selected = {item.originalname for item in _items_of(request, type(self))}
        missing = sorted(
            name
            for name, selection in tests.items()
            if name in selected
            and selection.reason_against(store.capabilities, record.doors) is None
            and name not in record.ran
            and name not in record.not_offered
        )
        hint = "; under xdist use --dist loadscope" if "PYTEST_XDIST_WORKER" in os.environ else ""
        assert not missing, f"tests that the declaration selects did not run: {', '.join(missing)}{hint}"
        if selected >= set(tests):
            _assert_each_feature_tried(store, tests, set(record.ran))
            offered = "disconnect" not in record.not_offered.values()
            assert offered or not isinstance(store.capabilities.lease, ConnectionLease), (
                "a lease that is a connection can't be tested unless the harness has `disconnect`"
            )


def _assert_each_feature_tried(store: Store, tests: dict[str, Selection], ran: set[str]) -> None:
    for feature in FEATURES:
        declared = store.has(feature)
        concerned = [
            name for name, each in tests.items() if feature in (each.needs if declared else each.lacks)
        ]
        if concerned:
            word = "declared" if declared else "not declared"
            assert ran & set(concerned), (
                f"{feature} is {word} by {store.capabilities.store}, and none of its tests ran: "
                + ", ".join(concerned)
            )


def _is_ours(suite: type, name: str) -> bool:
    chapter = next(chapter for chapter in CHAPTERS if name in vars(chapter))
    return getattr(suite, name, None) is vars(chapter)[name]


def _is_silenced(item: pytest.Item) -> bool:
    return any(mark.name in _SILENCING for mark in item.iter_markers())


def _items_of(request: pytest.FixtureRequest, suite: type) -> list[pytest.Function]:
    return [item for item in request.session.items if isinstance(item, pytest.Function) and item.cls is suite]

"""What every chapter of the suite stands on: a fresh store for each test, and the choice of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobcontract.conformance.harness import Harness
from jobcontract.conformance.record import record_of
from jobcontract.conformance.selection import NOT_APPLICABLE, doors_of, leave_out, selection_of
from jobcontract.conformance.store import Store


class Chapter:
    """Tests of one verb or one side door. Part of `ConformanceSuite`."""

    @pytest.fixture
    def harness(self) -> Harness:
        """The store under test. To be overridden."""
        raise NotImplementedError("write a fixture `harness` that gives the Harness of your driver")

    @pytest.fixture(autouse=True)
    def store(self, harness: Harness, request: pytest.FixtureRequest) -> Iterator[Store]:
        """A fresh store, if what it declares selects the test."""
        record = record_of(request.config, type(self))
        name = request.function.__name__
        if record.capabilities is not None:
            # Every store of a harness declares the same, and some take a second to make.
            reason = selection_of(request.function).reason_against(record.capabilities, record.doors)
            if reason is not None:
                record.inapplicable[name] = reason
                leave_out(NOT_APPLICABLE, reason)
        url = harness.create()
        try:
            store = Store(harness, url)
            try:
                record.capabilities, record.doors = store.capabilities, doors_of(store.driver)
                reason = selection_of(request.function).reason_against(record.capabilities, record.doors)
                if reason is not None:
                    record.inapplicable[name] = reason
                    leave_out(NOT_APPLICABLE, reason)
                yield store
            finally:
                store.close()
        finally:
            harness.destroy(url)
        if store.not_offered is not None:
            record.not_offered[name] = store.not_offered
        else:
            record.ran[name] = record.ran.get(name, 0) + 1

    @classmethod
    def title(cls) -> str:
        """The chapter's name for people."""
        return cls.__name__.removesuffix("Chapter").lower()

    @classmethod
    def names_of_tests(cls) -> list[str]:
        """The tests of this chapter alone, in their order."""
        return [name for name in vars(cls) if name.startswith("test_")]

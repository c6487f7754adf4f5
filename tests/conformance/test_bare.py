"""Drivers with little to declare pass the suite too, each with its own part of it."""

from __future__ import annotations

import pytest

from jobcontract.conformance import ConformanceSuite, Harness
from tests.conformance.bare import BareDriver, BareHarness, ConnectionBoundDriver


class TestBare(ConformanceSuite):
    @pytest.fixture
    def harness(self) -> Harness:
        return BareHarness(BareDriver)


class TestConnectionBound(ConformanceSuite):
    @pytest.fixture
    def harness(self) -> Harness:
        return BareHarness(ConnectionBoundDriver)

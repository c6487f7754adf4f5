"""Acme keeps the contract."""

from __future__ import annotations

import os
from uuid import uuid4

import pytest

from jobcontract.conformance import ConformanceSuite, Harness


class AcmeHarness(Harness):
    clock = "process"
    claimed_jobs = 2_000  # each claim looks at every job

    def create(self) -> str:
        return f"{os.environ.get('ACME_SCHEME', 'acme')}://{uuid4().hex}"


class TestAcme(ConformanceSuite):
    @pytest.fixture
    def harness(self) -> Harness:
        return AcmeHarness()

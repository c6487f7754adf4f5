"""The driver that follows a migration keeps the contract, at any point where jobs are registered."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from jobcontract_migrate import Coordinator, Phase, open_routed

from jobcontract.config import load_settings
from jobcontract.conformance import ConformanceSuite, Harness, Transactions
from jobcontract.contract import Driver, State
from jobcontract.registry import open_store
from jobcontract.side_doors import Installation, Pruning
from tests.conformance.transactions import transactions_of
from tests.connections.callers import SQLITE

SETTINGS = """
default = "old"
control = "old"
[backends.old]
url = "sqlite:///{folder}/old.db"
[backends.new]
url = "sqlite:///{folder}/new.db"
"""


class RoutedHarness(Harness):
    """Two files, between which a migration has come to `phase`, and stands there."""

    installed = True
    claimers = 20
    claimed_jobs = 1000

    def __init__(self, directory: Path, phase: Phase) -> None:
        self.directory = directory
        self.phase = phase

    def create(self) -> str:
        folder = self.directory / uuid4().hex
        folder.mkdir()
        file = folder / "jobcontract.toml"
        file.write_text(SETTINGS.format(folder=folder))
        coordinator = Coordinator(load_settings(file, environment={}))
        try:
            coordinator.begin("old", "new", {"first_source": "old"})
            source = coordinator.ends.driver("old")
            assert isinstance(source, Installation)
            source.install()
            coordinator.run(self.phase)
            canary = coordinator.ends.driver("new")  # the jobs by which it was tried
            assert isinstance(canary, Pruning)
            canary.prune(timedelta(), {State.DONE}, 1000)
        finally:
            coordinator.close()
        return f"sqlite:///{folder}/old.db"

    def connect(self, url: str) -> Driver:
        folder = Path(url.removeprefix("sqlite:///")).parent
        settings = load_settings(folder / "jobcontract.toml", environment={})
        return open_routed(settings, settings.store(None), lambda store: open_store(store, settings))

    def transactions(self, url: str) -> Transactions:
        """Where jobs are registered."""
        home = "old" if self.phase is Phase.DUAL_READ else "new"
        return transactions_of(SQLITE, f"{url.removesuffix('old.db')}{home}.db")


class TestBothAreClaimedAt(ConformanceSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return RoutedHarness(tmp_path, Phase.DUAL_READ)


class TestTheOtherIsRegisteredAt(ConformanceSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return RoutedHarness(tmp_path, Phase.MOVING)

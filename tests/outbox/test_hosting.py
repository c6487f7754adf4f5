"""`HostsTables` beyond what the conformance suite shows: deadlines, and names that need quoting."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator

import pytest

from jobcontract import get_backend
from jobcontract.config import Settings
from jobcontract.conformance.hosting import Notes
from jobcontract.side_doors import HostsTables, Installation


@contextlib.contextmanager
def opened(url: str) -> Generator[HostsTables]:
    with get_backend(url, settings=Settings()) as backend:
        driver = backend.driver
        assert isinstance(driver, Installation)
        driver.install()
        assert isinstance(driver, HostsTables)
        yield driver


@pytest.fixture
def hasty_url(host_url: str) -> str:
    """A store whose deadline is a second."""
    option = "busy_timeout" if host_url.startswith("sqlite") else "timeout"
    return f"{host_url}?{option}=1s"


def test_the_time_between_two_statements_is_the_callers(hasty_url: str) -> None:
    """A deadline bounds each statement, not the whole block."""
    with opened(hasty_url) as host, host.transaction() as transaction:
        assert Notes.run(transaction, "SELECT 1") == [(1,)]
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            time.sleep(0.1)
        assert Notes.run(transaction, "SELECT 1") == [(1,)]


def test_a_schema_with_an_odd_name_holds_tables(postgres_url: str) -> None:
    with opened(f"{postgres_url}?schema=100%25%20%22odd%22") as host:
        notes = Notes(host)
        notes.create()
        with host.transaction() as transaction:
            notes.write(transaction, "a")
        assert notes.committed() == ["a"]

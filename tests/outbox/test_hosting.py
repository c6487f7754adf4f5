"""The side door `HostsTables`, which an outbox stands on: the clauses, on each store that has it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Iterator
from datetime import timedelta
from typing import Protocol, cast

import pytest

from jobcontract import StoreError, get_backend
from jobcontract.config import Settings
from jobcontract.contract import Driver, HostsTables, Installation, Statement, Transaction


class Both(Driver, HostsTables, Installation, Protocol):
    """What these tests need of a driver."""


@contextlib.contextmanager
def opened(url: str) -> Generator[Both]:
    with get_backend(url, settings=Settings()) as backend:
        driver = backend.driver
        assert isinstance(driver, HostsTables)
        assert isinstance(driver, Installation)
        yield cast(Both, driver)


@pytest.fixture
def host(host_url: str) -> Iterator[Both]:
    """An initialised store with a table of ours."""
    with opened(host_url) as driver:
        driver.install()
        with driver.transaction() as transaction:
            run(transaction, f"CREATE TABLE {driver.table('notes')} (note text NOT NULL)")
        yield driver


def run(transaction: Transaction, sql: str, *parameters: object) -> list[tuple[object, ...]]:
    if transaction.dialect == "sqlite":
        sql = sql.replace("%s", "?")
    return transaction.run(Statement(sql, parameters))


def notes(host: Both) -> list[object]:
    with host.transaction() as transaction:
        return [note for (note,) in run(transaction, f"SELECT note FROM {host.table('notes')} ORDER BY 1")]


def write(transaction: Transaction, host: Both, note: str) -> None:
    run(transaction, f"INSERT INTO {host.table('notes')} VALUES (%s)", note)


def test_the_block_commits(host: Both) -> None:
    with host.transaction() as transaction:
        write(transaction, host, "a")
        write(transaction, host, "b")
    assert notes(host) == ["a", "b"]


def test_a_block_that_raises_rolls_back(host: Both) -> None:
    with pytest.raises(LookupError), host.transaction() as transaction:  # noqa: PT012 - that is the test
        write(transaction, host, "a")
        raise LookupError
    assert notes(host) == []


def test_what_a_statement_raises_is_an_error_of_ours_and_undoes_the_block(host: Both) -> None:
    with pytest.raises(StoreError), host.transaction() as transaction:  # noqa: PT012 - that is the test
        write(transaction, host, "a")
        run(transaction, "SELECT nothing FROM nowhere")
    assert notes(host) == []
    with host.transaction() as transaction:
        write(transaction, host, "b")
    assert notes(host) == ["b"]


def test_an_uncommitted_row_is_nobody_elses(host: Both, host_url: str) -> None:
    with host.transaction() as transaction:
        write(transaction, host, "a")
        with opened(host_url) as other:
            seen: list[object] = []
            reading = threading.Thread(target=lambda: seen.append(notes(other)))
            reading.start()
            reading.join(0.2)
            assert seen in ([], [[]])  # SQLite: it waits for the one writer
            if transaction.dialect == "postgresql":
                reading.join()
                assert seen == [[]]
    reading.join()


def test_the_time_between_two_statements_is_the_callers(make_host: str) -> None:
    """A deadline bounds each statement, not the whole block."""
    with opened(make_host) as host:
        host.install()
        with host.transaction() as transaction:
            run(transaction, "SELECT 1")
            end = time.monotonic() + 1.2
            while time.monotonic() < end:
                time.sleep(0.1)
            assert run(transaction, "SELECT 1") == [(1,)]


@pytest.fixture
def make_host(host_url: str) -> str:
    """A store whose deadline is a second."""
    option = "busy_timeout" if host_url.startswith("sqlite") else "timeout"
    return f"{host_url}?{option}=1s"


def test_a_store_that_is_not_initialised_says_so(host_url: str) -> None:
    with (
        opened(host_url) as driver,
        pytest.raises(StoreError, match="run `jobctl init`"),
        driver.transaction(),
    ):
        pass


def test_who_waits_for_a_topic_is_woken_by_the_commit(host: Both) -> None:
    wake = host.wake("relay of tests")
    if wake is None:
        assert host.dialect == "sqlite"
        return
    woken: list[bool] = []
    waiting = threading.Thread(
        target=lambda: woken.append(host.wait(["relay of tests"], timedelta(seconds=30)))
    )
    waiting.start()
    begun = time.monotonic()
    while waiting.is_alive():  # until somebody waits there is nobody to wake
        with host.transaction() as transaction:
            transaction.run(wake)
        waiting.join(0.1)
    assert woken == [True]
    assert time.monotonic() - begun < 20


def test_a_schema_with_an_odd_name_holds_tables(postgres_url: str) -> None:
    url = f"{postgres_url}?schema=100%25%20%22odd%22"
    with opened(url) as host:
        host.install()
        with host.transaction() as transaction:
            run(transaction, f"CREATE TABLE {host.table('notes')} (note text NOT NULL)")
            write(transaction, host, "a")
        assert notes(host) == ["a"]

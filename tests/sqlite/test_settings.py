"""URLs, options, and what they make of the capabilities."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from jobcontract_sqlite import SQLiteDriver
from jobcontract_sqlite.capabilities import has_wal_reset_bug
from jobcontract_sqlite.connections import check_library

from jobcontract.contract import Durability, Transactional
from jobcontract.errors import ConfigError
from jobcontract.side_doors import Installation, JoinsTransactions
from tests.sqlite.stores import FileStore, open_file, open_url, record


def test_a_relative_path_starts_from_the_working_directory_of_the_moment_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    driver = open_url("sqlite:///jobs.db")
    monkeypatch.chdir("/")
    install(driver)
    assert (tmp_path / "jobs.db").exists()


def test_a_path_may_hold_what_a_uri_would_read(tmp_path: Path) -> None:
    path = tmp_path / "50% of jobs?mode=memory#1.db"
    install(open_url(f"sqlite:///{tmp_path}/50%25%20of%20jobs%3Fmode%3Dmemory%231.db"))
    assert path.exists()


@pytest.mark.parametrize(
    "url", ["sqlite://jobs.db", "sqlite://localhost/jobs.db", "sqlite://user:secret@/jobs.db"]
)
def test_a_host_or_user_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match=r"has no host or user; write sqlite:///relative\.db") as refused:
        open_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:", "sqlite:////var/lib/"])
def test_a_url_without_a_file_name_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"names no file; write sqlite:///relative\.db"):
        open_url(url)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("synchronus=FULL", "'synchronus' is not a setting; did you mean 'synchronous'?"),
        ("synchronous=EXTRA", "'synchronous'"),
        ("busy_timeout=0", "'busy_timeout': must be longer than nothing"),
        ("busy_timeout=soon", "'busy_timeout': 'soon' is not a length of time"),
        ("retention=-1d", "'retention'"),
    ],
)
def test_a_bad_option_is_named(path: Path, option: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_url(f"sqlite:///{path}?{option}")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("synchronous", "durability", "note"),
    [
        ("full", Durability.FSYNC, None),
        ("NORMAL", Durability.WINDOW, "synchronous=NORMAL: a loss of power loses the commits"),
        ("off", Durability.MEMORY, "synchronous=OFF: a killed process loses nothing"),
    ],
)
def test_durability_is_declared_as_it_is_set(
    path: Path, synchronous: str, durability: Durability, note: str | None
) -> None:
    driver = open_file(path, synchronous=synchronous)
    driver.install()
    declared = driver.capabilities
    assert declared.durability is durability
    notes = [each for each in declared.notes if each.startswith("synchronous")]
    assert len(notes) == (note is not None)
    assert note is None or notes[0].startswith(note)


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1), ("OFF", 0)])
def test_every_connection_has_the_synchronous_setting(path: Path, synchronous: str, level: int) -> None:
    driver = open_file(path, synchronous=synchronous)
    driver.install()
    with driver.connections.write() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)


def test_a_store_in_memory_declares_itself_and_needs_no_installation() -> None:
    driver = open_url("sqlite://")
    assert driver.capabilities.store == f"SQLite {sqlite3.sqlite_version} in memory"
    assert driver.capabilities.durability is Durability.MEMORY
    assert driver.capabilities.transactional is Transactional.NONE
    assert not isinstance(driver, (Installation, JoinsTransactions))
    assert driver.register([record()])[0].created


def test_stores_in_memory_are_separate() -> None:
    one, other = open_url("sqlite://"), open_url("sqlite://")
    one.register([record()])
    assert other.claim(["default"], 1, timedelta(minutes=1)) == []


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)
def test_which_versions_have_the_wal_reset_bug(version: tuple[int, int, int], affected: bool) -> None:
    assert has_wal_reset_bug(version) is affected


def test_the_wal_reset_bug_is_noted_when_the_running_version_has_it(store: FileStore) -> None:
    noted = [note for note in store.driver.capabilities.notes if "WAL-reset bug" in note]
    assert bool(noted) == has_wal_reset_bug(sqlite3.sqlite_version_info)


def test_an_old_library_is_refused_in_one_sentence() -> None:
    with pytest.raises(
        ConfigError, match=r"^this Python runs on SQLite 3\.34\.1, and jobcontract needs 3\.37\.0 or newer; "
    ):
        check_library((3, 34, 1))
    check_library((3, 37, 0))


def install(driver: SQLiteDriver) -> None:
    """Install what `open_url` opened on a file."""
    assert isinstance(driver, Installation)
    driver.install()

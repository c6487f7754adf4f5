"""`install`: what is created, by whom, and what a file that does not fit the code says."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from jobcontract_sqlite.schema import CURRENT_VERSION, MIGRATIONS

from jobcontract.errors import StoreError
from tests.sqlite.stores import Edit, FileStore, open_file, record


def test_the_first_install_takes_steps_and_the_second_none(path: Path) -> None:
    driver = open_file(path)
    assert [step.title for step in driver.install()] == [
        "write-ahead log",
        *(f"schema {each.name}" for each in MIGRATIONS),
    ]
    assert driver.install() == []
    assert driver.register([record()])[0].created


def test_a_dry_run_makes_no_file_and_tells_what_somebody_may_run_by_hand(path: Path) -> None:
    steps = open_file(path).install(dry_run=True)
    assert not path.exists()
    with closing(sqlite3.connect(path)) as by_hand:
        by_hand.executescript("".join(step.statements for step in steps))
    driver = open_file(path)
    assert driver.install() == []
    assert driver.register([record()])[0].created


def test_a_dry_run_leaves_an_existing_file_as_it_is(path: Path) -> None:
    path.touch()
    assert open_file(path).install(dry_run=True)
    assert path.read_bytes() == b""


def test_the_queue_can_move_into_the_file_of_an_application(path: Path) -> None:
    with closing(sqlite3.connect(path)) as application, application:
        application.execute("CREATE TABLE documents (id INTEGER PRIMARY KEY)")
        application.execute("INSERT INTO documents VALUES (7)")
    open_file(path).install()
    with closing(sqlite3.connect(path)) as application:
        assert application.execute("SELECT id FROM documents").fetchall() == [(7,)]


def test_many_processes_may_install_at_once(path: Path, edit: Edit) -> None:
    script = "import sys; from tests.sqlite.stores import open_file; open_file(sys.argv[1]).install()"
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(path)], stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 6, errors
    assert edit("SELECT version FROM jobcontract_schema") == [
        (number,) for number in range(1, CURRENT_VERSION + 1)
    ]


def test_the_file_is_in_wal_mode(store: FileStore, edit: Edit) -> None:
    assert edit("PRAGMA journal_mode") == [("wal",)]
    assert not any("journal_mode" in note for note in store.driver.capabilities.notes)


def test_a_file_that_lost_its_wal_mode_still_works_and_says_so(store: FileStore, edit: Edit) -> None:
    store.close()
    edit("PRAGMA journal_mode = DELETE")
    again = FileStore(store.path)
    again.add()
    assert len(again.claim()) == 1
    assert any(note.startswith("journal_mode is delete") for note in again.driver.capabilities.notes)


def test_a_file_without_a_schema_says_what_to_do(path: Path) -> None:
    path.touch()
    with pytest.raises(StoreError, match=r"holds no job queue yet; run `jobctl init`"):
        open_file(path).register([record()])


def test_a_file_that_is_not_there_says_what_to_do_and_is_not_created(path: Path) -> None:
    with pytest.raises(StoreError, match=r"jobs\.db does not exist yet; run `jobctl init`"):
        open_file(path).register([record()])
    assert not path.exists()


@pytest.mark.parametrize("verb", ["install", "stats"])
def test_a_missing_directory_is_named(tmp_path: Path, verb: str) -> None:
    driver = open_file(tmp_path / "nowhere" / "jobs.db")
    with pytest.raises(StoreError, match=rf"create {tmp_path}/nowhere, then run `jobctl init`"):
        getattr(driver, verb)()


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (0, "holds no job queue yet; run `jobctl init`"),
        (99, f"knows {CURRENT_VERSION} at most; upgrade jobcontract"),
    ],
)
def test_a_schema_of_another_version_is_refused(path: Path, edit: Edit, version: int, remedy: str) -> None:
    open_file(path).install()
    edit("UPDATE jobcontract_schema SET version = version + ?", version - CURRENT_VERSION)
    with pytest.raises(StoreError, match=remedy):
        open_file(path).register([record()])


def test_a_newer_schema_is_left_alone(path: Path, edit: Edit) -> None:
    open_file(path).install()
    edit("UPDATE jobcontract_schema SET version = 99 WHERE version = ?", CURRENT_VERSION)
    with pytest.raises(
        StoreError,
        match=f"has schema version 99, and this jobcontract knows {CURRENT_VERSION} at most; upgrade",
    ):
        open_file(path).install()
    assert edit("SELECT max(version) FROM jobcontract_schema") == [(99,)]

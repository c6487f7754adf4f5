"""`jobctl init`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.cli.conftest import Run


def test_it_creates_the_store_and_does_nothing_the_second_time(run: Run, folder: Path) -> None:
    first = run("init")
    assert (first.code, first.err) == (0, "")
    assert "sqlite:///jobcontract.db: initialised" in first.out
    second = run("init")
    assert (second.code, second.out) == (0, "sqlite:///jobcontract.db: up to date\n")


def test_a_dry_run_prints_the_statements_and_makes_nothing(run: Run, folder: Path) -> None:
    dry = run("init", "--dry-run")
    assert dry.code == 0
    assert "CREATE TABLE" in dry.out
    assert all(line.startswith("-- ") for line in dry.out.splitlines()[:1])
    assert list(folder.iterdir()) == []


def test_the_statements_of_a_dry_run_make_the_store(run: Run, folder: Path) -> None:
    connection = sqlite3.connect(folder / "jobcontract.db")
    connection.executescript(run("init", "--dry-run", "--backend", "sqlite:///none.db").out)
    connection.close()
    assert run("init").out == "sqlite:///jobcontract.db: up to date\n"
    assert run("stats").code == 0


def test_as_json_each_step_has_its_title_and_its_statements(run: Run) -> None:
    steps = run("init", "--json").json()
    assert steps
    assert set(steps[0]) == {"backend", "title", "statements"}
    assert run("init", "--json").json() == []


def test_all_goes_on_behind_a_backend_that_fails_and_says_so_at_the_end(run: Run, folder: Path) -> None:
    (folder / "jobcontract.toml").write_text(
        'default = "b"\n[backends.a]\nurl = "sqlite:///missing/a.db"\n[backends.b]\nurl = "sqlite:///b.db"\n'
    )
    ran = run("init", "--all")
    assert ran.code == 1
    assert ran.err.startswith("Error: a: ")
    assert ran.err.splitlines()[-1] == "Error: 1 of 2 backends could not be initialised"
    assert "sqlite:///b.db: initialised" in ran.out
    assert (folder / "b.db").exists()


def test_all_is_not_one(run: Run) -> None:
    assert run("init", "--all", "--backend", "sqlite:///b.db").code == 2
    ran = run("init", "--all")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "Error: --all: no backend is configured.")

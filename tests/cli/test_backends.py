"""`jobctl backends` and `jobctl config`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from jobcontract.cli.capability_words import sentences, words
from jobcontract.contract import (
    Capabilities,
    ConnectionLease,
    Deduplication,
    Durability,
    Transactional,
)
from tests.cli.conftest import Ran, Run

CONFIGURATION = """
default = "local"

[backends.local]
url = "sqlite:///local.db"
busy_timeout = 2

[backends.away]
url = "sqlite:///nowhere/away.db"

[backends.odd]
url = "mysql://app:canary-password@db/app"

[backends.wrong]
url = "sqlite:///wrong.db?synchronus=canary-secret"
"""


@pytest.fixture
def configured(folder: Path, run: Run) -> None:
    (folder / "jobcontract.toml").write_text(CONFIGURATION)
    assert run("init").code == 0


@pytest.mark.usefixtures("configured")
def test_each_backend_is_a_line_and_one_that_can_not_be_asked_is_one_with_the_reason(run: Run) -> None:
    ran = run("backends")
    assert ran.code == 0
    assert ran.out.splitlines()[1].startswith("local (default)  SQLite ")
    assert "away  the SQLite store " in ran.out
    assert "odd  no driver for 'mysql' URLs is installed; " in ran.out
    assert "wrong  backend 'wrong': 'synchronus' is not a setting; did you mean 'synchronous'?" in ran.out
    assert "canary" not in ran.out + ran.err


@pytest.mark.usefixtures("configured")
def test_as_json_all_that_is_known_is_there(run: Run) -> None:
    found = {each["name"]: each for each in run("backends", "--json").json()}
    assert {name: each["reachable"] for name, each in found.items()} == {
        "away": False,
        "local": True,
        "odd": False,
        "wrong": False,
    }
    local = found["local"]["capabilities"]
    assert local["deduplication"] == "retention"
    assert local["lease"]["type"] == "timed"
    assert {"lookup", "cancel", "prune", "stats"} <= set(local["features"])
    assert (found["local"]["default"], found["away"]["default"]) == (True, False)
    assert found["odd"]["url"] == "mysql://app:***@db/app"


@pytest.mark.usefixtures("configured")
def test_one_backend_is_told_in_sentences(run: Run) -> None:
    ran = run("backends", "local")
    assert ran.code == 0
    assert ran == run("backends", "--backend", "local")
    for sentence in (
        "local (default)",
        "sqlite:///local.db",
        "survives the loss of power of each node",
        "it commits or vanishes with it",
        "held for as long as the record of its job lives",
        "10 levels, 0 to 9; larger is sooner.",
        "list and show jobs",
    ):
        assert sentence in ran.out


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(("name", "code"), [("away", 1), ("odd", 2), ("wrong", 2), ("other", 2)])
def test_one_backend_that_can_not_be_asked_fails_the_command(run: Run, name: str, code: int) -> None:
    ran = run("backends", name)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1


def test_with_nothing_configured_the_default_is_listed_under_its_name_and_found_by_it(run: Run) -> None:
    run("init")
    assert run("backends").out.splitlines()[1].startswith("default (default)")
    told = run("backends", "default").out
    assert "backend       default (default)\nurl           sqlite:///jobcontract.db\n" in told


def test_listing_makes_no_store(run: Run, folder: Path) -> None:
    assert "does not exist yet; run `jobctl init`" in run("backends").out
    assert list(folder.iterdir()) == []


def test_a_name_and_the_option_are_not_both_given(run: Run) -> None:
    assert run("backends", "a", "--backend", "b").code == 2


def test_a_store_that_can_do_little_is_described_by_what_it_lacks() -> None:
    poor = Capabilities(
        store="Poor 1",
        deduplication=Deduplication.NONE,
        lease=ConnectionLease(timedelta(minutes=30)),
        scheduling=None,
        priority_levels=1,
        durability=Durability.MEMORY,
        transactional=Transactional.NONE,
        max_register_batch=10,
        max_input_ref_bytes=1000,
    )
    assert words(poor) == (
        *("Poor 1", "nothing", "none", "none", "none", "1"),
        "lookup, stats, cancel, requeue, prune, pause, notes, move",
    )
    told = dict(sentences(poor))
    assert told["leases"] == "A claim holds while the worker's connection lives, 30m at most."
    assert told["delays"] == "Jobs can't be scheduled: each is due at once."
    assert told["priorities"] == "None: every job has priority 0."
    assert told["can't"].startswith("list and show jobs, count jobs, ")


@pytest.mark.usefixtures("configured")
def test_config_show_hides_what_may_be_secret(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBCONTRACT_BACKENDS__ODD__TOKEN", "canary-token")
    ran = run("config", "show")
    assert ran.code == 0
    assert "canary" not in ran.out + ran.err
    for line in (
        "default                      local",
        "backends.local.url           sqlite:///local.db",
        "backends.local.busy_timeout  2",
        "backends.odd.url             mysql://app:***@db/app",
        "backends.odd.token           ***",
        "backends.wrong.synchronus    ***",
        "environment                  JOBCONTRACT_BACKENDS__ODD__TOKEN",
        "worker.concurrency           16",
    ):
        assert line in ran.out.splitlines()
    as_json = run("config", "show", "--json").json()
    assert as_json["backends"]["odd"] == {"url": "mysql://app:***@db/app", "token": "***"}


def test_config_show_of_nothing(run: Run) -> None:
    ran = run("config", "show")
    assert ran.out.splitlines()[:3] == [
        "file                    none",
        "environment             none",
        "default                 sqlite:///jobcontract.db, for nothing is configured",
    ]


def test_config_is_not_about_one_backend(run: Run) -> None:
    assert run("--backend", "x", "config", "show") == Ran(
        2,
        "",
        "Error: jobctl config show is not about one backend; drop --backend\n"
        "Try 'jobctl config show --help' for help.\n",
    )

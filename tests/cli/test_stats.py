"""`jobctl stats`."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from jobcontract import Backend, State
from tests.cli.conftest import Ran, Run, put
from tests.cli.process import Process, until


def test_it_counts_each_state_of_each_queue(run: Run, backend: Backend) -> None:
    put(backend, State.READY)
    put(backend, State.READY, run_at=datetime(2090, 1, 1, tzinfo=UTC))
    for state in (State.RUNNING, State.DONE, State.DEAD, State.CANCELLED):
        put(backend, state, queue="other")
    backend.pause("other")
    lines = [line.split() for line in run("stats").out.splitlines()]
    assert lines[0] == [
        "QUEUE",
        "READY",
        "SCHEDULED",
        "RUNNING",
        "EXPIRED",
        "DEAD",
        "DONE",
        "CANCELLED",
        "OLDEST",
    ]
    assert lines[1][:8] == ["default", "1", "1", "0", "0", "0", "0", "0"]
    assert lines[2] == ["other", "(paused)", "0", "0", "1", "0", "1", "1", "1"]
    first, second = run("stats", "--json").json()["queues"]
    assert first["oldest_ready_seconds"] >= 0
    assert {key: first[key] for key in ("queue", "ready", "scheduled", "paused")} == {
        "queue": "default",
        "ready": 1,
        "scheduled": 1,
        "paused": False,
    }
    assert (second["paused"], second["oldest_ready_seconds"], second["dead"]) == (True, None, 1)


def test_an_empty_store_is_said(run: Run, backend: Backend) -> None:
    assert run("stats") == Ran(0, "", "no queue has jobs or is paused\n")
    assert run("stats", "--json").json() == {"queues": [], "outbox": None}


def test_watching_ends_with_ctrl_c_and_shows_the_rate(backend: Backend, folder: Path) -> None:
    put(backend, State.DONE)
    output = folder / "watched"
    with (
        output.open("wb") as out,
        Process("stats", "--watch", "--json", "--interval", "100ms", folder=folder, stdout=out) as jobctl,
    ):
        until(lambda: output.read_text().count("\n") >= 1)
        put(backend, State.DONE)
        until(lambda: '"done": 2' in output.read_text())
        jobctl.interrupt()
        ran = jobctl.end()
    assert ran == Ran(130, "", "\n")
    looks = [json.loads(line) for line in output.read_text().splitlines()]
    assert all(datetime.fromisoformat(look["at"]).tzinfo for look in looks)
    rates = [look["queues"][0]["done_per_second"] for look in looks[1:]]
    assert max(rates) > 0


def test_watching_outlives_a_store_that_fails(backend: Backend, folder: Path) -> None:
    put(backend, State.READY)
    output = folder / "watched"
    with (
        output.open("wb") as out,
        Process("stats", "--watch", "--interval", "100ms", folder=folder, stdout=out, stderr=out) as jobctl,
    ):
        until(lambda: "QUEUE" in output.read_text())
        with sqlite3.connect(folder / "jobcontract.db") as connection:
            connection.execute("ALTER TABLE jobcontract_jobs RENAME TO elsewhere")
        until(lambda: "Error: " in output.read_text())
        with sqlite3.connect(folder / "jobcontract.db") as connection:
            connection.execute("ALTER TABLE elsewhere RENAME TO jobcontract_jobs")
        seen = output.read_text().count("QUEUE")
        until(lambda: output.read_text().count("QUEUE") > seen)
        jobctl.interrupt()
        assert jobctl.end().code == 130


def test_an_interval_that_would_be_a_storm_is_refused(run: Run, backend: Backend) -> None:
    ran = run("stats", "--watch", "--interval", "1ms")
    assert ran.code == 2
    assert "--interval: must be 100ms or longer" in ran.err


def test_an_interval_without_a_watch_is_bad_usage(run: Run, backend: Backend) -> None:
    ran = run("stats", "--interval", "1s")
    assert (ran.code, ran.out) == (2, "")
    assert "--interval says how often to look again; it needs --watch." in ran.err


def test_what_waits_in_an_outbox_is_a_line_of_its_own(run: Run, backend: Backend, folder: Path) -> None:
    tables = f'[backends.main]\nurl = "sqlite:///{folder}/jobcontract.db"\n'
    tables += f'[backends.target]\nurl = "sqlite:///{folder}/target.db"\noutbox = "main"\n'
    (folder / "jobcontract.toml").write_text(tables)
    assert run("init", "--backend", "target").code == 0
    for delay in ("0s", "0s", "1h"):
        assert run("register", "k", "--in", delay, "--backend", "target").code == 0
    ran = run("stats", "--backend", "target")
    assert ran.out.startswith("outbox: 2 pending (the oldest for ")
    assert ran.out.endswith("), 1 scheduled, 0 parked\n")
    outbox = run("stats", "--backend", "target", "--json").json()["outbox"]
    assert (outbox["pending"], outbox["scheduled"], outbox["parked"]) == (2, 1, 0)
    assert outbox["oldest_seconds"] >= 0

"""`jobctl metrics`: what it serves, to whom, and that dashboard and alerts are made of it."""

from __future__ import annotations

import json
import re
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobcontract import Backend, State, get_backend
from jobcontract.config import load_settings
from jobcontract.metrics import FAMILIES
from tests.cli.conftest import folder, invoke, logging_as_before, put
from tests.cli.process import Process, until
from tests.servers.postgres import PostgresServer

__all__ = ["folder", "logging_as_before"]

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
Samples = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture
def backend(postgres_server: PostgresServer, folder: Path) -> Iterator[Backend]:
    """A PostgreSQL store, and behind an outbox in it a SQLite one; both installed."""
    name = postgres_server.create_database()
    (folder / "jobcontract.toml").write_text(
        f'default = "main"\n[backends.main]\nurl = "{postgres_server.url(name)}"\n'
        '[backends.target]\nurl = "sqlite:///target.db"\noutbox = "main"\n'
    )
    with get_backend("target", settings=load_settings(folder / "jobcontract.toml")) as target:
        target.install()
        put(target, State.READY, queue="mail")
    with get_backend("main", settings=load_settings(folder / "jobcontract.toml")) as backend:
        yield backend
    postgres_server.drop_database(name)


def samples(text: str) -> Samples:
    """The values by name and labels (in the order of `FAMILIES`)."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[label] for label in FAMILIES[sample.name][1])
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_it_tells_the_numbers_of_each_store_and_outbox(backend: Backend) -> None:
    put(backend, State.READY)
    for state in (State.RUNNING, State.DONE, State.DEAD):
        put(backend, state, queue="other")
    backend.pause("other")
    ran = invoke("metrics", "--once")
    assert (ran.code, ran.err) == (0, "")
    found = samples(ran.out)
    assert found.keys() == FAMILIES.keys()
    assert found["jobcontract_up"] == {("main",): 1, ("target",): 1}
    jobs = found["jobcontract_jobs"]
    assert jobs["main", "default", "ready"] == 1
    assert {state: jobs["main", "other", state] for state in ("ready", "running", "dead")} == {
        "ready": 0,
        "running": 1,
        "dead": 1,
    }
    assert found["jobcontract_queue_paused"]["main", "other"] == 1
    assert found["jobcontract_jobs_done_per_second"]["main", "other"] == pytest.approx(0.1)
    assert found["jobcontract_oldest_ready_seconds"]["main", "default"] > 0
    assert found["jobcontract_outbox_jobs"]["target", "due"] == 1
    assert found["jobcontract_outbox_oldest_seconds"]["target",] > 0


def test_it_shows_neither_inputs_nor_keys_nor_errors(backend: Backend) -> None:
    put(
        backend,
        State.DEAD,
        error="canary",
        input_ref={"canary": "canary"},
        idempotency_key="canary",
        kind="canary",
        headers={"canary": "canary"},
    )
    assert "canary" not in invoke("metrics", "--once").out


@pytest.fixture
def serving(backend: Backend, folder: Path) -> Iterator[str]:
    """The base URL of an endpoint that runs, and ends in order."""
    del backend
    log = folder / "log"
    with (
        log.open("wb") as err,
        Process("metrics", "--listen", "127.0.0.1:0", folder=folder, stderr=err) as jobctl,
    ):
        until(lambda: "metrics at http://" in log.read_text())
        match = re.search(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", log.read_text())
        assert match, log.read_text()
        yield match[1]
        jobctl.terminate()
        assert jobctl.end().code == 0
        assert "WARNING" not in log.read_text(), "loopback, as it is by default"


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_endpoint_answers_prometheus_and_the_probe(serving: str, folder: Path) -> None:
    status, text = fetch(f"{serving}/metrics")
    assert status == 200
    assert samples(text)["jobcontract_up"]["main",] == 1
    assert fetch(f"{serving}/health") == (200, "ok\n")
    assert fetch(f"{serving}/secrets")[0] == 404
    with closing(sqlite3.connect(folder / "target.db")) as connection:
        connection.execute("ALTER TABLE jobcontract_jobs RENAME TO elsewhere")
    until(lambda: fetch(f"{serving}/health") == (503, "target: can't be read\n"))
    until(lambda: samples(fetch(f"{serving}/metrics")[1])["jobcontract_up"]["target",] == 0)
    assert samples(fetch(f"{serving}/metrics")[1])["jobcontract_up"]["main",] == 1


def test_another_interface_is_a_warning(backend: Backend, folder: Path) -> None:
    del backend
    log = folder / "log"
    with (
        log.open("wb") as err,
        Process("metrics", "--listen", "0.0.0.0:0", folder=folder, stderr=err) as jobctl,
    ):
        until(lambda: "whoever reaches 0.0.0.0 can read" in log.read_text())
        jobctl.interrupt()
        assert jobctl.end().code == 0


def test_an_address_that_is_none_is_bad_usage(folder: Path) -> None:
    ran = invoke("metrics", "--listen", "9464")
    assert ran.code == 2
    assert "must be HOST:PORT" in ran.err


# -- What is committed for Prometheus and Grafana ----------------------------------------------------

ALERTS = (MONITORING / "alerts.yml").read_text()
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
EXPRESSIONS = [
    *re.findall(r"^ +expr: (.+)$", ALERTS, re.MULTILINE),
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(variable["definition"] for variable in DASHBOARD["templating"]["list"] if "definition" in variable),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_dashboard_and_alerts_name_metrics_and_labels_that_exist(expression: str) -> None:
    names = re.findall(r"\bjobcontract_\w+", expression)
    assert names
    for name in names:
        assert name in FAMILIES
    for name, matchers in re.findall(r"\b(jobcontract_\w+)\{([^}]*)\}", expression):
        for label in re.findall(r"(\w+)=", matchers):
            assert label in FAMILIES[name][1]


def test_each_metric_is_on_the_dashboard() -> None:
    shown = " ".join(EXPRESSIONS)
    assert {name for name in FAMILIES if name not in shown} == set()


def test_each_alert_says_what_helps() -> None:
    alerts = ALERTS.split("- alert: ")[1:]
    assert len(alerts) >= 8
    for alert in alerts:
        assert re.search(r"^ +summary: \S", alert, re.MULTILINE), alert
        assert re.search(r"^ +remedy: \S", alert, re.MULTILINE), alert

"""`jobctl dead`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from uuid import uuid4

import pytest

from jobcontract import Backend, State, get_backend
from tests.cli.conftest import Ran, Run, get, put


def test_list_shows_dead_jobs_only(run: Run, backend: Backend) -> None:
    dead = put(backend, State.DEAD, error="Traceback:\nKeyError: 'x'")
    put(backend, State.CANCELLED)
    put(backend, State.READY)
    ran = run("dead", "list")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["ID", str(dead.id)]
    assert ran.out.splitlines()[1].endswith("KeyError: 'x'")
    assert run("dead", "list", "--kind", "other").err == "no such jobs\n"
    assert run("dead", "list", "--json").json()["jobs"][0]["last_error"] == "Traceback:\nKeyError: 'x'"


def test_show_is_for_dead_jobs(run: Run, backend: Backend) -> None:
    dead, ready = put(backend, State.DEAD), put(backend, State.READY)
    assert "ValueError: no" in run("dead", "show", dead.id).out
    assert run("dead", "show", ready.id) == Ran(
        3, "", f"{ready.id} is ready, not dead; see jobctl jobs show\n"
    )
    assert run("dead", "show", uuid4()).code == 3


def test_requeue_sends_the_named_jobs_back_without_a_question(run: Run, backend: Backend) -> None:
    first, second = put(backend, State.DEAD), put(backend, State.DEAD)
    assert run("dead", "requeue", first.id) == Ran(0, f"{first.id} sent back\n", "")
    (claim,) = backend.claim(limit=10)
    assert claim.job.id == first.id
    assert run("dead", "requeue", first.id, second.id).err.splitlines() == [
        f"{first.id} is running, and can't be sent back",
        "Error: 1 of 2 jobs were not sent back",
    ]


def test_requeue_all_shows_the_store_and_asks(run: Run, backend: Backend) -> None:
    put(backend, State.DEAD)
    declined = run("dead", "requeue", "--all", stdin="n\n")
    assert declined == Ran(
        1,
        "",
        "Send all dead jobs of sqlite:///jobcontract.db back to be run again? [y/N] "
        "Error: nothing was changed\n",
    )
    assert backend.claim() == []
    assert run("dead", "requeue", "--all", stdin="y\n").out == "sent 1 job back\n"
    assert len(backend.claim()) == 1


def test_requeue_all_without_anybody_to_ask_changes_nothing(run: Run, backend: Backend) -> None:
    put(backend, State.DEAD)
    ran = run("dead", "requeue", "--all", stdin="")
    assert ran.code == 1
    assert ran.err.endswith(
        "Error: nobody answered, and nothing was changed; pass --yes to go on without a question\n"
    )
    assert backend.claim() == []


def test_requeue_all_takes_the_kind_and_the_queue_that_were_chosen(run: Run, backend: Backend) -> None:
    wanted = put(backend, State.DEAD, kind="a", queue="q")
    put(backend, State.DEAD, kind="b", queue="q")
    put(backend, State.DEAD, kind="a", queue="r")
    ran = run("dead", "requeue", "--all", "--kind", "a", "--queue", "q", stdin="y\n")
    assert "all dead jobs of kind 'a' of queue 'q' of sqlite:///" in ran.err
    assert [claim.job.id for claim in backend.claim(queues=["q", "r"], limit=10)] == [wanted.id]


def test_requeue_all_reaches_the_jobs_behind_the_first_page(run: Run, backend: Backend) -> None:
    run("register", "--from-file", "-", stdin='{"kind": "k"}\n' * 1100)
    while claims := backend.claim(limit=1000):
        backend.fail_many([backend.failure(claim, "no", permanent=True) for claim in claims])
    assert run("dead", "requeue", "--all", "--yes", "--json").json() == {"requeued": 1100}
    assert backend.stats()[0].ready == 1100


@pytest.mark.parametrize(
    "arguments", [[], [str(uuid4()), "--all"], [str(uuid4()), "--kind", "k"], ["--kind", "k"]], ids=len
)
def test_requeue_takes_names_or_all(run: Run, backend: Backend, arguments: list[str]) -> None:
    assert run("dead", "requeue", *arguments).code == 2


def test_what_is_exported_can_be_registered_in_another_store(
    run: Run, backend: Backend, folder: Path
) -> None:
    dead = put(
        backend,
        State.DEAD,
        kind="mail",
        queue="q",
        priority=4,
        max_attempts=2,
        idempotency_key="ключ",
        input_ref={"n": 10**30, "text": "\u202e", "list": [1.5, None]},
        headers={"tenant": "acme"},
    )
    put(backend, State.READY)
    exported = run("dead", "export")
    assert exported.code == 0
    assert exported.out.isascii()
    (line,) = map(json.loads, exported.out.splitlines())
    assert line["exported"]["error"] == "ValueError: no"
    assert (line["exported"]["state"], line["exported"]["attempt"]) == ("dead", 1)

    other = f"sqlite:///{folder}/other.db"
    run("init", "--backend", other)
    registered = run("register", "--from-file", "-", "--backend", other, stdin=exported.out)
    assert registered == Ran(0, "registered 1 job\n", "")
    with get_backend(other) as opened:
        (claim,) = opened.claim(queues=["q"])
    assert claim.job.model_dump(exclude={"run_at"}) == dead.model_dump(exclude={"run_at"})


def test_registered_where_they_are_still_known_nothing_happens(run: Run, backend: Backend) -> None:
    dead = put(backend, State.DEAD, idempotency_key="a")
    exported = run("dead", "export").out
    assert run("register", "--from-file", "-", stdin=exported).out == (
        "registered 0 jobs, 1 duplicate already there\n"
    )
    assert get(backend, dead.id).state is State.DEAD


def test_a_dead_job_that_is_not_valid_is_named_and_not_left_out_in_silence(
    run: Run, backend: Backend, folder: Path
) -> None:
    good, bad = put(backend, State.DEAD), put(backend, State.DEAD)
    with sqlite3.connect(folder / "jobcontract.db") as connection:
        connection.execute("UPDATE jobcontract_dead SET kind = 'no kind' WHERE id = ?", [str(bad.id)])
    ran = run("dead", "export")
    assert ran.code == 1
    assert [json.loads(line)["id"] for line in ran.out.splitlines()] == [str(good.id)]
    assert ran.err == f"Error: 1 job can't be exported, for they are not valid: {bad.id}\n"

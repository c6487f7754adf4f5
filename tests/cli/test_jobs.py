"""`jobctl jobs`."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from uuid import uuid4

import pytest

from jobcontract import Backend, State
from tests.cli.conftest import Ran, Run, get, put

NASTY = "\x1b[2J\u202egpj.exe\x07\u2028"
SHOWN = "\\x1b[2J\\u202egpj.exe\\x07\\u2028"


def ids(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines()[1:]]


def test_list_shows_the_newest_first_and_what_is_chosen(run: Run, backend: Backend) -> None:
    first = put(backend, State.READY, kind="a")
    second = put(backend, State.READY, kind="b", queue="mail", idempotency_key="k")
    dead = put(backend, State.DEAD, kind="c", queue="other")
    assert ids(run("jobs", "list").out) == [str(dead.id), str(second.id), str(first.id)]
    assert ids(run("jobs", "list", "--queue", "mail").out) == [str(second.id)]
    assert ids(run("jobs", "list", "--kind", "a").out) == [str(first.id)]
    assert ids(run("jobs", "list", "--state", "dead").out) == [str(dead.id)]
    assert ids(run("jobs", "list", "--key", "k").out) == [str(second.id)]
    assert run("jobs", "list", "--kind", "none") == Ran(0, "", "no such jobs\n")


def test_pages_follow_each_other_by_the_cursor(run: Run, backend: Backend) -> None:
    jobs = [put(backend, State.READY) for _ in range(5)]
    expected = [str(job.id) for job in reversed(jobs)]
    first = run("jobs", "list", "--limit", "2")
    assert ids(first.out) == expected[:2]
    cursor = first.err.removeprefix("there are more; go on with --cursor ").strip()
    second = run("jobs", "list", "--limit", "2", "--cursor", cursor, "--json").json()
    assert [job["id"] for job in second["jobs"]] == expected[2:4]
    last = run("jobs", "list", "--limit", "2", "--cursor", second["next_cursor"], "--json").json()
    assert ([job["id"] for job in last["jobs"]], last["next_cursor"]) == (expected[4:], None)


def test_a_list_may_be_longer_than_a_page_of_the_store(run: Run, backend: Backend) -> None:
    run("register", "--from-file", "-", stdin='{"kind": "k"}\n' * 2200)
    listed = run("jobs", "list", "--limit", "2100", "--json").json()
    assert len({job["id"] for job in listed["jobs"]}) == 2100
    rest = run("jobs", "list", "--limit", "2100", "--cursor", listed["next_cursor"], "--json").json()
    assert (len(rest["jobs"]), rest["next_cursor"]) == (100, None)


def test_show_tells_all_about_a_job(run: Run, backend: Backend) -> None:
    job = put(
        backend,
        State.DEAD,
        kind="mail",
        queue="q",
        idempotency_key="k",
        input_ref={"to": ["a", 18446744073709551617]},
        headers={"tenant": "acme"},
        error="Traceback:\n  line 1\nValueError: no",
    )
    sheet = run("jobs", "show", job.id)
    assert sheet.code == 0
    for line in (
        f"id            {job.id}",
        "state         dead",
        '                "a",',
        '  "tenant": "acme"',
    ):
        assert line in sheet.out
    assert "last error    Traceback:\n                line 1\n              ValueError: no\n" in sheet.out
    (as_json,) = run("jobs", "show", job.id, "--json").json()
    assert as_json["input_ref"] == {"to": ["a", 18446744073709551617]}
    assert as_json["last_error"] == "Traceback:\n  line 1\nValueError: no"
    assert (as_json["state"], as_json["attempt"], as_json["headers"]) == ("dead", 1, {"tenant": "acme"})
    assert as_json["finished_at"].endswith("Z")


def test_attempts_are_those_that_were_spent_since_the_job_was_requeued(run: Run, backend: Backend) -> None:
    job = put(backend, State.DEAD, max_attempts=1)
    assert row_of(run)[3:5] == ["dead", "1/1"]
    backend.requeue(job.id)
    assert row_of(run)[3:5] == ["ready", "0/1"]
    (claim,) = backend.claim()
    assert row_of(run)[3:5] == ["running", "1/1"]
    sheet = run("jobs", "show", job.id)
    assert "attempt       2\n" in sheet.out
    assert "spent         1\n" in sheet.out
    backend.complete(claim)
    assert row_of(run)[3:5] == ["done", "2"]
    (as_json,) = run("jobs", "show", job.id, "--json").json()
    assert as_json["attempt"] == 2


def row_of(run: Run) -> list[str]:
    """The words of the only job in the list."""
    _, line = run("jobs", "list").out.splitlines()
    return line.split()


def test_show_of_an_unknown_job_is_exit_code_3_behind_those_that_are_known(
    run: Run, backend: Backend
) -> None:
    known, unknown = put(backend, State.READY), uuid4()
    ran = run("jobs", "show", unknown, known.id)
    assert (ran.code, ran.err) == (3, f"Error: there is no job {unknown}\n")
    assert str(known.id) in ran.out
    assert [job["id"] for job in run("jobs", "show", unknown, known.id, "--json").json()] == [str(known.id)]


def test_what_strangers_wrote_can_not_steer_the_terminal(run: Run, backend: Backend) -> None:
    job = put(
        backend,
        State.DEAD,
        error=f"boom {NASTY}",
        idempotency_key=f"k{NASTY}k",
        input_ref={"a": NASTY},
        headers={"h": NASTY},
    )
    for ran in (
        run("jobs", "list"),
        run("jobs", "show", job.id),
        run("dead", "list"),
        run("dead", "show", job.id),
    ):
        assert ran.code == 0
        assert all(character.isprintable() or character == "\n" for character in ran.out)
    assert f"boom {SHOWN}" in run("jobs", "show", job.id).out
    for as_json in (
        run("jobs", "list", "--json"),
        run("jobs", "show", job.id, "--json"),
        run("dead", "export"),
    ):
        assert as_json.out.isascii()
        assert all(character.isprintable() or character == "\n" for character in as_json.out)
    (shown,) = run("jobs", "show", job.id, "--json").json()
    assert shown["last_error"] == f"boom {NASTY}"


def test_rich_markup_of_strangers_is_text(run: Run, backend: Backend) -> None:
    put(backend, State.DEAD, error="[bold red]no[/] [link=http://x]y[/link] :bomb:")
    assert "[bold red]no[/] [link=http://x]y[/link] :bomb:" in run("jobs", "list").out


def test_a_job_that_can_not_be_read_is_listed_with_the_reason(
    run: Run, backend: Backend, folder: Path
) -> None:
    job = put(backend, State.READY)
    with sqlite3.connect(folder / "jobcontract.db") as connection:
        connection.execute("UPDATE jobcontract_jobs SET kind = 'no kind'")
    assert "the stored job is not valid: kind: " in run("jobs", "list").out
    sheet = run("jobs", "show", job.id)
    assert sheet.code == 0
    assert "problem     the stored job is not valid: kind: " in sheet.out
    (as_json,) = run("jobs", "show", job.id, "--json").json()
    assert as_json["problem"].startswith("the stored job is not valid: kind: ")
    assert as_json["input_ref"] is None


@pytest.mark.parametrize("state", [State.READY, State.CANCELLED])
def test_cancel_leaves_a_ready_job_cancelled(run: Run, backend: Backend, state: State) -> None:
    job = put(backend, state)
    assert run("jobs", "cancel", job.id) == Ran(0, f"{job.id} cancelled\n", "")
    assert get(backend, job.id).state is State.CANCELLED


@pytest.mark.parametrize("state", [State.RUNNING, State.DONE, State.DEAD])
def test_cancel_of_another_job_is_exit_code_3(run: Run, backend: Backend, state: State) -> None:
    job = put(backend, state)
    assert run("jobs", "cancel", job.id) == Ran(3, "", f"{job.id} is {state}, and can't be cancelled\n")


@pytest.mark.parametrize("state", [State.READY, State.DEAD, State.CANCELLED])
def test_retry_makes_a_job_ready(run: Run, backend: Backend, state: State) -> None:
    later = {"run_at": "2090-01-01T00:00:00Z"} if state is State.READY else {}
    job = put(backend, state, **later)
    assert run("jobs", "retry", job.id) == Ran(0, f"{job.id} made ready\n", "")
    assert [claim.job.id for claim in backend.claim()] == [job.id]


@pytest.mark.parametrize("state", [State.RUNNING, State.DONE])
def test_retry_of_another_job_is_exit_code_3(run: Run, backend: Backend, state: State) -> None:
    job = put(backend, state)
    assert run("jobs", "retry", job.id) == Ran(3, "", f"{job.id} is {state}, and can't be made ready\n")


def test_several_jobs_are_told_apart(run: Run, backend: Backend) -> None:
    ready, done, unknown = put(backend, State.READY, queue="q"), put(backend, State.DONE), uuid4()
    ran = run("jobs", "cancel", ready.id, done.id, unknown, "--json")
    assert ran.code == 3
    assert ran.json() == [
        {"id": str(ready.id), "state": "cancelled", "ok": True},
        {"id": str(done.id), "state": "done", "ok": False},
        {"id": str(unknown), "state": None, "ok": False},
    ]
    assert ran.err == "Error: 2 of 3 jobs were not cancelled\n"
    assert f"{unknown} is not known\n" in run("jobs", "cancel", unknown, done.id).err


@pytest.mark.parametrize("verb", ["show", "cancel", "retry"])
def test_an_id_that_is_none_is_bad_usage(run: Run, backend: Backend, verb: str) -> None:
    ran = run("jobs", verb, "7")
    assert ran.code == 2
    assert "'7' is not a valid UUID" in ran.err


@pytest.mark.parametrize("arguments", [["--limit", "0"], ["--state", "gone"], ["--queue", "A b"]], ids=str)
def test_bad_choices_are_bad_usage(run: Run, backend: Backend, arguments: list[str]) -> None:
    ran = run("jobs", "list", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Error: ")

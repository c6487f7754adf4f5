"""`jobctl queues`."""

from __future__ import annotations

from jobcontract import Backend, State
from tests.cli.conftest import Ran, Run, put


def test_a_paused_queue_gives_no_jobs_until_it_is_resumed(run: Run, backend: Backend) -> None:
    put(backend, State.READY, queue="mail")
    put(backend, State.DONE, queue="exports")
    assert run("queues", "pause", "mail", "exports") == Ran(0, "mail is paused\nexports is paused\n", "")
    assert backend.claim(queues=["mail"]) == []
    assert run("queues", "list", "--json").json() == [
        {"queue": "exports", "paused": True},
        {"queue": "mail", "paused": True},
    ]
    assert run("queues", "resume", "mail") == Ran(0, "mail is open\n", "")
    assert len(backend.claim(queues=["mail"])) == 1


def test_a_paused_queue_without_jobs_is_named_for_it_may_be_mistyped(run: Run, backend: Backend) -> None:
    put(backend, State.READY, queue="mail")
    ran = run("queues", "pause", "mial", "mail")
    assert (ran.code, ran.out) == (0, "mial is paused\nmail is paused\n")
    assert ran.err == (
        "mial holds no jobs; if that was mistyped, `jobctl queues resume mial` takes it back\n"
    )


def test_the_list_says_what_is_paused_and_what_waits(run: Run, backend: Backend) -> None:
    put(backend, State.READY)
    put(backend, State.READY, queue="mail", run_at="2090-01-01T00:00:00Z")
    run("queues", "pause", "mail")
    assert [line.split() for line in run("queues", "list").out.splitlines()] == [
        ["QUEUE", "STATE", "WAITING", "RUNNING"],
        ["default", "open", "1", "0"],
        ["mail", "paused", "1", "0"],
    ]


def test_no_queue_is_no_mistake(run: Run, backend: Backend) -> None:
    assert run("queues", "list") == Ran(0, "", "no queue has jobs or is paused\n")


def test_a_bad_name_is_bad_usage(run: Run, backend: Backend) -> None:
    ran = run("queues", "pause", "A queue")
    assert (ran.code, ran.out) == (2, "")
    assert "'A queue' is not a queue name" in ran.err

"""The dead jobs of a broker: read without losing one, and sent back with all their attempts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pika
import pytest
from click.testing import CliRunner

from jobcontract import Backend, Job, State, StoreUnavailable, Unsupported
from jobcontract.cli.root import jobctl
from tests.rabbitmq.stores import NOTHING, claim_all, claim_one, driver_of, jobs, numbers, until
from tests.servers.rabbitmq import RabbitServer


def bury(backend: Backend, *made: Job, error: str = "it failed") -> list[Job]:
    """Register, claim and fail for good."""
    backend.register_many(made)
    queues = sorted({job.queue for job in made})
    for claim in claim_all(backend, len(made), queues=queues):
        assert backend.fail(claim, error, permanent=True).state is State.DEAD
    return list(made)


def test_a_dead_job_keeps_all_that_it_had(store: Backend) -> None:
    made = Job(
        kind="work", input_ref={"a": [1.0, "é"]}, headers={"tenant": "acme"}, max_attempts=9, priority=1
    )
    store.register(made)
    store.fail(claim_one(store), "first", retry_in=NOTHING)
    store.fail(claim_one(store), "last", permanent=True)
    (dead,) = store.dead_jobs()
    assert dead.job is not None
    assert dead.job.model_copy(update={"run_at": None}) == made
    assert (dead.id, dead.state, dead.attempt, dead.last_error) == (made.id, State.DEAD, 2, "last")
    assert dead.finished_at is not None
    assert dead.created_at < dead.finished_at


def test_dead_jobs_are_listed_newest_first_page_by_page_and_stay(store: Backend) -> None:
    made = bury(store, *jobs(7), *jobs(3, queue="mail", kind="other"))
    newest_first = [job.id for job in reversed(made)]
    for _ in range(2):
        assert [dead.id for dead in store.dead_jobs()] == newest_first
    pages = [store.dead_jobs(limit=4)]
    while len(pages[-1]) == 4:
        pages.append(store.dead_jobs(limit=4, cursor=pages[-1][-1].cursor))
    assert [dead.id for page in pages for dead in page] == newest_first
    assert [dead.id for dead in store.dead_jobs(queue="mail")] == newest_first[:3]
    assert [dead.id for dead in store.dead_jobs(kind="work")] == newest_first[3:]
    assert store.dead_jobs(queue="nowhere") == []


def test_looking_often_changes_nothing(store: Backend) -> None:
    """The broker counts each look as a delivery, and drops what it delivered too often, unless it is told not
    to.
    """
    (job,) = bury(store, Job(kind="work"))
    for _ in range(30):
        assert [dead.attempt for dead in store.dead_jobs()] == [1]
    assert store.revive_many([job.id]) == [State.READY]


def test_more_than_one_round_of_the_broker_is_read(store: Backend) -> None:
    made = jobs(3000)
    store.register_many(made)
    claims = claim_all(store, 3000)
    store.fail_many([store.failure(claim, "no", permanent=True) for claim in claims])
    assert len(store.dead_jobs(limit=1000)) == 1000
    assert store.dead_jobs(limit=10)[0].id == made[-1].id


def test_a_revived_job_has_all_its_attempts_again_and_its_number_grows(store: Backend) -> None:
    store.register(Job(kind="work", max_attempts=2, priority=2))
    for life in range(3):
        for spent in (1, 2):
            claim = claim_one(store)
            assert (claim.attempt, claim.spent, claim.job.priority) == (2 * life + spent, spent, 2)
            store.fail(claim, "no", retry_in=NOTHING)
        assert store.claim() == []
        assert store.revive_many([claim.job.id]) == [State.READY]
        assert store.dead_jobs() == []


def test_only_those_that_are_named_come_back(store: Backend) -> None:
    made = bury(store, *jobs(5))
    ready = Job(kind="ready")
    store.register(ready)
    asked = [made[3].id, uuid4(), ready.id, made[1].id]
    assert store.revive_many(asked) == [State.READY, None, None, State.READY]
    assert [dead.job and dead.job.input_ref["number"] for dead in store.dead_jobs()] == [4, 2, 0]
    claims = claim_all(store, 3)
    assert {claim.job.id for claim in claims} == {ready.id, made[1].id, made[3].id}


def test_of_many_who_revive_at_once_one_does(store: Backend, other: Backend) -> None:
    made = bury(store, *jobs(50))
    answers: list[list[State | None]] = []

    def revive(client: Backend) -> None:
        answers.append(client.revive_many([job.id for job in made]))

    threads = [threading.Thread(target=revive, args=[client]) for client in (store, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    revived = [sum(state is State.READY for state in answer) for answer in answers]
    assert sum(revived) == 50
    assert sorted(map(str, numbers(claim_all(store, 50)))) == sorted(map(str, range(50)))
    assert store.claim() == []


def test_a_reader_that_dies_loses_nothing(store: Backend, other: Backend) -> None:
    made = bury(store, *jobs(200))

    def read() -> None:
        with suppress(StoreUnavailable):
            while not cut.is_set():
                other.dead_jobs()

    cut = threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    driver_of(other).disconnect()
    cut.set()
    reader.join()
    until(lambda: len(store.dead_jobs(limit=1000)) == len(made), "dead jobs are lost")


def test_a_message_that_is_no_job_is_dead_with_its_reason_and_can_be_seen(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend
) -> None:
    connection = rabbitmq_server.connect(vhost)
    channel = connection.channel()
    channel.confirm_delivery()
    for body in (b"hello", b'{"task": "work"}'):
        channel.basic_publish(
            "jobcontract.v1.ready", "default:0", body, pika.BasicProperties(), mandatory=True
        )
    connection.close()
    store.register(Job(kind="good"))
    good = until(lambda: store.claim(limit=10), "the good job is never claimed")
    assert [claim.job.kind for claim in good] == ["good"]
    found = store.dead_jobs()
    assert [dead.job for dead in found] == [None, None]
    errors = "\n".join(dead.last_error or "" for dead in found)
    assert "the envelope is not JSON" in errors
    assert "the envelope has version None" in errors


def test_what_needs_more_than_the_dead_is_unsupported(store: Backend) -> None:
    (job,) = bury(store, Job(kind="work"))
    calls: list[Callable[[], object]] = [
        lambda: store.get(job.id),
        lambda: store.jobs(state=State.DEAD),
        lambda: store.requeue(job.id),
        lambda: store.cancel(job.id),
        store.stats,
        lambda: store.pause("default"),
    ]
    for call in calls:
        with pytest.raises(Unsupported):
            call()
    assert [dead.id for dead in store.dead_jobs()] == [job.id]


# jobctl dead ----------------------------------------------------------------------------------------------


def run(url: str, *arguments: str) -> Any:
    """``jobctl dead ...``: its output, as JSON where it was asked for that."""
    words = ["dead", *arguments, "--backend", f"{url}?queues=default,mail"]
    result = CliRunner().invoke(jobctl, words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


def test_the_commands_work_on_them(url: str, store: Backend) -> None:
    first, second, third = bury(store, *jobs(3, headers={"tenant": "acme"}), error="out of luck")
    listed = run(url, "list", "--json")
    assert [job["id"] for job in listed["jobs"]] == [str(job.id) for job in (third, second, first)]
    assert "out of luck" in run(url, "show", str(second.id))
    exported = [json.loads(line) for line in run(url, "export").splitlines()]
    assert [line["headers"] for line in exported] == [{"tenant": "acme"}] * 3
    assert "sent back" in run(url, "requeue", str(first.id))
    assert numbers(claim_all(store, 1)) == [0]
    assert run(url, "requeue", "--all", "--yes", "--json") == {"requeued": 2}
    assert sorted(map(str, numbers(claim_all(store, 2)))) == ["1", "2"]

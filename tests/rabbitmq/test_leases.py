"""A lease is a channel of a connection: how it ends, and that a stale tag never reaches the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pika
import pika.frame
import pika.spec
import pytest

from jobcontract import Backend, Claim, Job, JobStatus, LeaseLost
from jobcontract.contract import ConnectionLease
from tests.rabbitmq.stores import (
    NOTHING,
    claim_all,
    claim_one,
    connect,
    driver_of,
    jobs,
    kill_connections,
    opened,
    until,
)
from tests.servers.binaries import Programs
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer

SETTLE: dict[str, Callable[[Backend, Claim], object]] = {
    "complete": lambda backend, claim: backend.complete(claim),
    "fail": lambda backend, claim: backend.fail(claim, "no"),
    "extend": lambda backend, claim: backend.extend(claim),
    "release": lambda backend, claim: None if backend.release([claim])[0].applied else lost(),
}


def lost() -> None:
    raise LeaseLost


@pytest.mark.parametrize("settle", SETTLE.values(), ids=SETTLE)
def test_a_token_of_a_former_connection_is_lost_and_costs_no_other_lease(
    store: Backend, settle: Callable[[Backend, Claim], object]
) -> None:
    """The server closes a channel on which it hears of a tag that it does not know, with all on it."""
    store.register_many(jobs(2))
    stale = claim_one(store)
    driver_of(store).disconnect()
    current = claim_all(store, 2)
    with pytest.raises(LeaseLost):
        settle(store, stale)
    assert all(verdict.applied for verdict in store.complete_many(current))
    assert store.claim() == []


def test_a_connection_that_the_broker_closes_is_made_anew(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend
) -> None:
    store.register_many(jobs(3))
    held = store.claim(limit=1)[0]
    kill_connections(rabbitmq_server, vhost)

    def is_lost() -> bool:
        return not store.complete_many([held])[0].applied

    # Until the end of the connection has come through, a completion may be accepted and lost with it.
    until(is_lost, "the lease outlived its connection")
    claims = claim_all(store, 3)
    assert sorted(claim.attempt for claim in claims) == [1, 1, 2]
    assert store.register(Job(kind="work")).created


def test_a_queue_that_is_deleted_takes_its_leases_and_no_others(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend
) -> None:
    store.register_many([Job(kind="gone"), Job(kind="kept", queue="mail")])
    gone, kept = claim_one(store), claim_all(store, 1, queues=["mail"])[0]
    connection = rabbitmq_server.connect(vhost)
    connection.channel().queue_delete("jobcontract.v1.ready.default.0")
    connection.close()
    until(lambda: not store.extend_many([gone])[0].applied, "the lease outlived its queue")
    with pytest.raises(LeaseLost):
        store.complete(gone)
    store.complete(kept)


def test_the_expiry_is_what_the_server_allows_and_is_not_moved(url: str) -> None:
    with opened(url, consumer_timeout="10m") as backend:
        assert backend.capabilities.lease == ConnectionLease(timedelta(minutes=10))
        backend.register(Job(kind="work"))
        claim = claim_one(backend)
        assert backend.extend(claim, timedelta(minutes=5)).expires_at == claim.expires_at


def test_a_job_that_runs_through_many_heartbeats_keeps_its_connection(url: str) -> None:
    """Handlers run elsewhere, and the thread that owns the connections is never theirs."""
    with opened(url, heartbeat=1) as backend:
        backend.register(Job(kind="long"))
        claim = claim_one(backend)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            sum(range(10_000))  # busy, as Python code is
        backend.complete(claim)
        assert backend.claim() == []


# consumer_timeout -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient(rabbitmq_programs: Programs) -> Iterator[RabbitServer]:
    """A server that takes a job back after two seconds."""
    with RabbitServer(programs=rabbitmq_programs, settings={"consumer_timeout": "2000"}) as server:
        # It looks once a minute, and that is no line of rabbitmq.conf.
        server.rabbitmqctl("eval", "application:set_env(rabbit, channel_tick_interval, 500).")
        yield server


def test_a_job_that_is_held_too_long_is_lost_and_others_are_not(impatient: RabbitServer) -> None:
    url = impatient.url(impatient.create_vhost())
    with opened(url, queues="default,mail", consumer_timeout="2s") as backend:
        backend.register(Job(kind="long"))
        held = claim_one(backend)
        kept: list[Claim] = []

        def is_lost() -> bool:
            # A short job of another queue after the other, while the long one runs out of time.
            backend.register(Job(kind="short", queue="mail"))
            kept.extend(claim_all(backend, 1, queues=["mail"]))
            backend.complete(kept[-1])
            return not backend.extend_many([held])[0].applied

        until(is_lost, "the server's consumer_timeout did not show")
        with pytest.raises(LeaseLost):
            backend.complete(held)
        again = claim_one(backend)
        assert (again.job.id, again.attempt) == (held.job.id, 2)
        backend.complete(again)


def test_a_consumer_that_the_server_cancels_loses_what_it_held_and_nothing_else(
    rabbitmq_server: RabbitServer, vhost: str, other: Backend
) -> None:
    """How consumer_timeout shows from RabbitMQ 4.3 on: the jobs go back, and the channel stays open.

    Older servers don't do that, so a proxy does it in their name: it tells the client of the end, and has
    the server end the consumer and take the job back.
    """
    with (
        Proxy(rabbitmq_server.address) as proxy,
        connect(rabbitmq_server.url(vhost, host=proxy.host, port=proxy.port)) as store,
    ):
        other.register(Job(kind="long"))
        held = claim_one(store)
        consumer, channel = until(
            lambda: consumer_of(rabbitmq_server, vhost, "default"), "the server shows no consumer"
        )
        other.register(Job(kind="short"))
        kept = claim_one(store)
        cancel = pika.frame.Method(channel, pika.spec.Basic.Cancel(consumer, nowait=True)).marshal()
        returned = pika.frame.Method(channel, pika.spec.Basic.Nack(1, requeue=True)).marshal()
        proxy.inject(to_client=cancel, to_server=cancel + returned)
        until(lambda: not store.extend_many([held])[0].applied, "the lease outlived its consumer")
        with pytest.raises(LeaseLost):
            store.complete(held)
        assert store.extend_many([kept])[0].applied
        again = claim_one(store)
        assert (again.job.id, again.attempt) == (held.job.id, 2)
        assert all(verdict.applied for verdict in store.complete_many([kept, again]))
    assert other.claim() == [], "a completion was not heard"


def consumer_of(server: RabbitServer, vhost: str, queue: str) -> tuple[str, int] | None:
    """The tag of the one consumer of the jobs of priority 0, and the number of its channel."""
    found = [
        (each["consumer_tag"], each["channel_details"]["number"])
        for each in server.api("GET", f"/consumers/{vhost}")
        # The server shows a consumer some moments before it shows its channel.
        if each["queue"]["name"] == f"jobcontract.v1.ready.{queue}.0" and each["channel_details"]
    ]
    return found[0] if len(found) == 1 else None


def test_attempts_that_end_by_time_are_spent(impatient: RabbitServer) -> None:
    url = impatient.url(impatient.create_vhost())
    with opened(url, consumer_timeout="2s") as backend:
        backend.register(Job(kind="long", max_attempts=1))
        held = claim_one(backend)
        until(
            lambda: not backend.extend_many([held])[0].applied, "the server's consumer_timeout did not show"
        )
        assert backend.claim() == [], "it had one attempt"


# Death of workers -----------------------------------------------------------------------------------------


def test_a_poison_job_that_kills_every_worker_is_dead_when_its_attempts_are_spent(
    url: str, store: Backend
) -> None:
    store.register_many([Job(kind="poison", max_attempts=3), Job(kind="good", queue="mail")])
    for attempt in (1, 2, 3):
        with connect(url) as worker:
            claim = claim_one(worker)
            assert (claim.job.kind, claim.attempt) == ("poison", attempt)
            driver_of(worker).disconnect()  # as a process does that is killed

    def buried() -> list[JobStatus]:
        assert store.claim() == []
        return store.dead_jobs()

    (dead,) = until(buried, "it is not dead")
    assert (dead.attempt, dead.kind) == (3, "poison")
    assert "the last of 3 attempts" in (dead.last_error or "")
    assert claim_all(store, 1, queues=["mail"])[0].job.kind == "good"


def test_one_dying_job_after_the_other_does_not_hide_the_living(store: Backend, url: str) -> None:
    store.register_many([*jobs(20, max_attempts=1), Job(kind="good", max_attempts=2)])
    with connect(url) as worker:
        assert len(claim_all(worker, 21)) == 21
        driver_of(worker).disconnect()
    claims = until(lambda: store.claim(limit=1), "the living job is not to be had")
    assert [claim.job.kind for claim in claims] == ["good"]
    assert store.fail(claims[0], "no", retry_in=NOTHING).state == "dead"

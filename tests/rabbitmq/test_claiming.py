"""Who gets which job: nobody holds what he can't take, and what was fetched ahead goes back unspent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pika
import pika.spec
import pytest
from jobcontract_rabbitmq import intake
from jobcontract_rabbitmq.amqp import Endpoint
from jobcontract_rabbitmq.intake import SPARE

from jobcontract import Backend, Claim, Job
from tests.rabbitmq.stores import (
    NOTHING,
    SECOND,
    claim_all,
    claim_one,
    connect,
    driver_of,
    jobs,
    numbers,
    opened,
    until,
)
from tests.servers.rabbitmq import RabbitServer


def ready(server: RabbitServer, vhost: str, queue: str = "default") -> int:
    """How many jobs of all priorities are nobody's."""
    return sum(each.message_count for each in declared(server, vhost, queue))


def consumers(server: RabbitServer, vhost: str) -> int:
    """How many consumers the queue `default` has, at all priorities."""
    return sum(each.consumer_count for each in declared(server, vhost, "default"))


def declared(server: RabbitServer, vhost: str, queue: str) -> list[pika.spec.Queue.DeclareOk]:
    """What the server says of `queue` at each priority."""
    with closing(server.connect(vhost)) as connection:
        channel = connection.channel()
        names = [f"jobcontract.v1.ready.{queue}.{level}" for level in range(3)]
        return [channel.queue_declare(name, passive=True).method for name in names]


def make_again(server: RabbitServer, vhost: str, store: Backend, level: int) -> None:
    """The queue of one priority is deleted, and there again: an operator's mend, or a restored definition."""
    with closing(server.connect(vhost)) as connection:
        connection.channel().queue_delete(f"jobcontract.v1.ready.default.{level}")
    store.install()


# What is held ---------------------------------------------------------------------------------------------


def test_a_busy_worker_holds_only_what_it_runs(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend, other: Backend
) -> None:
    store.register_many(jobs(20))
    held = store.claim(limit=3)
    assert len(held) == 3
    assert numbers(claim_all(other, 17)) == list(range(3, 20))
    assert ready(rabbitmq_server, vhost) == 0


def test_a_hand_that_is_free_again_fetches_one_more_and_no_more(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend
) -> None:
    store.register_many(jobs(20))
    held = store.claim(limit=3)
    store.complete(held.pop())
    assert ready(rabbitmq_server, vhost) in (16, 17)
    held += store.claim(limit=1)
    assert len(held) == 3
    until(lambda: ready(rabbitmq_server, vhost) == 16, "more than the free hands can take is held")


def test_what_nobody_claims_is_given_back_and_no_attempt_is_spent(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend, other: Backend
) -> None:
    """A worker whose hands became free, and which claims no more, keeps nothing from an idle one."""
    store.register_many(jobs(20, max_attempts=1))
    for claim in store.claim(limit=5):
        store.complete(claim)
    until(lambda: ready(rabbitmq_server, vhost) == 15, "what was fetched ahead did not go back")
    claims = claim_all(other, 15)
    assert sorted(map(str, numbers(claims))) == sorted(map(str, range(5, 20)))
    assert {(claim.attempt, claim.spent) for claim in claims} == {(1, 1)}


def test_a_wait_that_was_answered_holds_the_job_no_longer_than_a_moment(
    store: Backend, other: Backend
) -> None:
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(store.wait(timeout=timedelta(seconds=20))))
    waiter.start()
    other.register(Job(kind="work"))
    waiter.join()
    assert woken == [True]
    # Nobody claims it there, and here somebody asks.
    claim = claim_one(other)
    assert (claim.attempt, claim.spent) == (1, 1)


def test_one_free_hand_takes_one_job_however_many_priorities_come_at_once(
    store: Backend, other: Backend
) -> None:
    assert store.claim(limit=1) == []
    assert not store.wait(timeout=timedelta(milliseconds=50))
    other.register_many([*jobs(3, priority=0), *jobs(3, priority=1), *jobs(3, priority=2)])
    assert store.wait(timeout=10 * SECOND)
    first = claim_one(store)
    claims = claim_all(other, 8)
    assert {claim.attempt for claim in [first, *claims]} == {1}
    assert len({claim.job.id for claim in [first, *claims]}) == 9


def test_a_queue_that_came_back_is_heard_while_the_other_priorities_have_all_the_credit(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend, other: Backend
) -> None:
    assert store.claim(limit=10) == []
    assert not store.wait(timeout=timedelta(milliseconds=50))  # a share for each priority
    other.register_many(jobs(10))
    store.complete_many(claim_all(store, 10))  # now priority 0 has credit for ten beside them
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(store.wait(timeout=timedelta(seconds=60))))
    waiter.start()
    make_again(rabbitmq_server, vhost, other, 1)
    other.register(Job(kind="work", priority=1))
    waiter.join()
    assert woken == [True]
    assert claim_one(store).job.priority == 1


@pytest.fixture
def untold(store: Backend, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A client whom the server never tells that a consumer ended; at times it tells none."""

    def parameters(endpoint: Endpoint) -> pika.ConnectionParameters:
        ours = told(endpoint)
        ours.client_properties = {"capabilities": {"publisher_confirms": True, "basic.nack": True}}
        return ours

    told = Endpoint.parameters
    with monkeypatch.context() as context:
        context.setattr(Endpoint, "parameters", parameters)
        with connect(url, queues="default,mail") as backend:
            assert backend.claim(limit=10) == []
            yield backend


def test_a_claim_finds_what_a_consumer_does_not_that_ended_without_a_word(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend, untold: Backend
) -> None:
    assert not untold.wait(timeout=timedelta(milliseconds=50))  # it listens now
    make_again(rabbitmq_server, vhost, store, 0)
    store.register(Job(kind="work"))
    assert len(claim_all(store, 1)) == 1
    driver_of(store).disconnect()  # its worker is lost, and with it an attempt
    assert claim_one(untold).attempt == 2


def test_a_wait_does_not_trust_a_consumer_for_ever(
    rabbitmq_server: RabbitServer,
    vhost: str,
    store: Backend,
    untold: Backend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "LONGEST_TRUST", 0.3)
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(untold.wait(timeout=timedelta(seconds=60))))
    waiter.start()
    until(lambda: consumers(rabbitmq_server, vhost) == 3, "it never listened")
    make_again(rabbitmq_server, vhost, store, 1)
    store.register(Job(kind="work", priority=1))
    waiter.join()
    assert woken == [True]
    assert claim_one(untold).job.priority == 1


def test_who_waits_after_a_drain_holds_no_credit_for_others_work(store: Backend, other: Backend) -> None:
    """Claims that follow each other closely and get all that they ask for leave their credit behind."""
    store.register_many(jobs(300))
    for _ in range(3):
        store.complete_many(claim_all(store, 100))
    store.claim(limit=5)
    assert not store.wait(timeout=timedelta(milliseconds=50))
    other.register_many(jobs(100))
    assert len(other.claim(limit=100)) >= 97  # all but one for each priority


def test_two_idle_workers_share_what_comes(store: Backend, other: Backend) -> None:
    for backend in (store, other):
        backend.claim(limit=2)
    store.register_many(jobs(4))
    shares: dict[str, list[Claim]] = {"store": [], "other": []}
    started = time.monotonic()

    def work(name: str, backend: Backend) -> None:
        while sum(map(len, shares.values())) < 4 and time.monotonic() - started < 20:
            shares[name] += backend.claim(limit=2 - len(shares[name])) if len(shares[name]) < 2 else []
            backend.wait(timeout=timedelta(milliseconds=50))

    workers = [threading.Thread(target=work, args=each) for each in (("store", store), ("other", other))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {name: len(claims) for name, claims in shares.items()} == {"store": 2, "other": 2}


def test_closing_gives_back_what_was_fetched_ahead(url: str, store: Backend) -> None:
    with opened(url) as leaving:
        leaving.register_many(jobs(15, max_attempts=1))
        for _ in range(2):
            leaving.complete_many(leaving.claim(limit=5))  # the second time, five more are on their way
    claims = claim_all(store, 5)
    assert {claim.attempt for claim in claims} == {1}


# Order ----------------------------------------------------------------------------------------------------


def test_a_better_priority_overtakes_what_was_fetched_ahead(store: Backend, other: Backend) -> None:
    store.register_many(jobs(10))
    for _ in range(2):
        store.complete(claim_one(store))  # and then one of the eight is in the buffer, or on its way
    other.register(Job(kind="urgent", priority=2))
    assert claim_one(store).job.kind == "urgent"


def test_what_a_better_priority_pushed_aside_goes_to_an_idle_worker(store: Backend, other: Backend) -> None:
    store.register_many(jobs(3))
    for _ in range(2):
        store.complete(claim_one(store))
    other.register(Job(kind="urgent", priority=2))
    assert claim_one(store).job.kind == "urgent"
    assert numbers([claim_one(other)]) == [2]


@pytest.mark.parametrize("limit", [1, 5])
def test_who_claims_alone_gets_the_order_of_the_queue_however_long_the_jobs_take(
    store: Backend, limit: int
) -> None:
    """What is fetched ahead and not claimed goes back behind all others: nothing may be, in vain."""
    store.register_many(jobs(6 * limit))
    seen: list[object] = []
    for _ in range(6):
        claims = claim_all(store, limit)
        seen += numbers(claims)
        time.sleep(2.5 * SPARE / limit)  # the work
        store.complete_many(claims)
        time.sleep(2.5 * SPARE)
    assert seen == list(range(6 * limit))


def test_a_worker_that_pauses_in_a_backlog_keeps_its_place(store: Backend) -> None:
    """It had claimed without a pause, and five more were fetched for it."""
    store.register_many(jobs(20))
    for _ in range(2):
        store.complete_many(claim_all(store, 5))
    time.sleep(4 * SPARE)
    assert numbers(claim_all(store, 10)) == list(range(10, 20))


def test_a_full_queue_hides_no_other_of_its_priority(store: Backend) -> None:
    store.register_many([*jobs(50), *jobs(1, queue="mail")])
    claims = store.claim(queues=["default", "mail"], limit=10)
    assert [claim.job.queue for claim in claims].count("mail") == 1


def test_jobs_come_back_in_the_order_in_which_they_failed(store: Backend) -> None:
    store.register_many(jobs(5))
    claims = claim_all(store, 5)
    for number in (3, 0, 4, 1, 2):
        store.fail(claims[number], "no", retry_in=NOTHING)
    assert numbers(claim_all(store, 5)) == [3, 0, 4, 1, 2]


# Attempts -------------------------------------------------------------------------------------------------


def test_a_released_job_has_the_attempt_back_and_its_number_grows(store: Backend) -> None:
    store.register(Job(kind="work", max_attempts=2))
    for number in range(1, 6):
        claim = claim_one(store)
        assert (claim.attempt, claim.spent) == (number, 1)
        store.release([claim])
    assert store.fail(claim_one(store), "no", retry_in=NOTHING).state == "ready"
    assert store.fail(claim_one(store), "no", retry_in=NOTHING).state == "dead"


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_claims_of_any_size_drain_the_queue_once(store: Backend, limit: int) -> None:
    store.register_many(jobs(200))
    seen: list[object] = []
    while len(seen) < 200:
        claims = store.claim(limit=limit)
        assert len(claims) <= limit
        seen += numbers(claims)
        assert all(verdict.applied for verdict in store.complete_many(claims))
    assert sorted(map(str, seen)) == sorted(map(str, range(200)))
    assert store.claim() == []


def test_many_threads_of_one_client_claim_each_job_once(store: Backend) -> None:
    store.register_many(jobs(500))
    seen: list[object] = []

    def work() -> None:
        while claims := store.claim(limit=5):
            seen.extend(numbers(claims))
            assert all(verdict.applied for verdict in store.complete_many(claims))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    while claims := store.claim(limit=100):
        seen += numbers(claims)
    assert sorted(map(str, seen)) == sorted(map(str, range(500)))


def test_a_consumer_that_is_cancelled_in_the_middle_of_a_burst_loses_no_delivery(
    store: Backend, other: Backend
) -> None:
    """The server answers a cancel before it delivers what is on its way; a delivery that nobody takes then
    would be nobody's until the channel ends, and a rejected one would have spent an attempt.
    """
    for _ in range(30):
        made = jobs(20, max_attempts=1)
        assert store.claim(limit=10) == []
        store.wait(timeout=timedelta(milliseconds=1))  # now it listens
        producer = threading.Thread(target=other.register_many, args=[made])
        producer.start()
        claims = store.claim(limit=1)  # nine too many may come
        producer.join()
        claims += claim_all(store, 20 - len(claims))
        assert {claim.attempt for claim in claims} == {1}
        assert all(verdict.applied for verdict in store.complete_many(claims))

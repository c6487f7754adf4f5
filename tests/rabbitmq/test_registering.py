"""A registration that returned is stored; whatever could not be stored is said, in time and in a sentence."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from jobcontract import Backend, Claim, Job, StoreError, StoreUnavailable, Unsupported
from jobcontract.contract import Registration
from tests.rabbitmq.stores import PATIENCE, claim_all, connect, jobs, numbers, opened, until
from tests.servers.binaries import Programs
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer


def test_a_job_for_a_queue_that_nobody_made_is_refused_loudly(store: Backend) -> None:
    with pytest.raises(StoreError, match=r"no queue for jobs of 'nowhere'.*run jobctl init"):
        store.register(Job(kind="work", queue="nowhere"))


def test_its_batch_is_stored_around_it_and_not_twice_when_it_is_repeated(store: Backend) -> None:
    batch = [*jobs(3), Job(kind="work", queue="nowhere"), *jobs(3)]
    with pytest.raises(StoreError, match="6 of 7 jobs were stored"):
        store.register_many(batch)
    with pytest.raises(StoreError, match="0 of 1 jobs were stored"):
        store.register_many(batch)
    assert len(claim_all(store, 6)) == 6
    assert store.claim(limit=10) == []


def test_a_queue_that_is_deleted_behind_our_back_is_missed_by_the_next_registration(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend
) -> None:
    store.register(Job(kind="work"))
    connection = rabbitmq_server.connect(vhost)
    connection.channel().queue_delete("jobcontract.v1.ready.default.0")
    connection.close()
    with pytest.raises(StoreError, match="no queue for jobs of 'default'"):
        store.register(Job(kind="work"))
    assert store.claim() == []
    store.install()
    assert store.register(Job(kind="work")).created
    assert len(claim_all(store, 1)) == 1


def test_a_queue_can_be_made_by_its_first_job(url: str) -> None:
    with opened(url, create_queues="true") as backend:
        assert backend.register_many([*jobs(2, queue="new"), *jobs(1)])
        assert numbers(claim_all(backend, 2, queues=["new"])) == [0, 1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"priority": 3}, "priority 3"), ({"run_at": "2030-01-01T00:00:00Z"}, "run_at")],
    ids=["priority", "run_at"],
)
def test_what_it_can_t_do_is_unsupported_and_leaves_no_trace(
    store: Backend, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(Unsupported, match=message):
        store.register_many([Job(kind="work"), Job(kind="work", **fields)])
    assert store.claim() == []


def test_more_than_the_window_goes_through_it(url: str) -> None:
    with opened(url, window=7) as backend:
        backend.register_many(jobs(100))
        assert numbers(claim_all(backend, 100)) == list(range(100))


# Alarms ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alarmed(rabbitmq_programs: Programs) -> Iterator[RabbitServer]:
    """A server that may be given too little memory."""
    with RabbitServer(programs=rabbitmq_programs) as server:
        yield server


def test_under_a_memory_alarm_registering_fails_in_time_and_then_works_again(alarmed: RabbitServer) -> None:
    with opened(alarmed.url(), timeout="2s") as backend:
        backend.register_many(jobs(3))
        claims = backend.claim(limit=2)
        alarmed.rabbitmqctl("set_vm_memory_high_watermark", "0.0001")
        try:
            error = until(lambda: refusal(backend), "the alarm never showed")
            assert "short of something (low on memory)" in str(error)
            started = time.monotonic()
            with pytest.raises(StoreUnavailable, match="low on memory"):
                backend.register(Job(kind="work"))
            assert time.monotonic() - started < 2 * 2 + 3  # registering tries twice
            # What is claimed can be finished all the same: nothing is published on that connection.
            backend.complete(claims[0])
            with pytest.raises(StoreUnavailable, match="did not confirm 1 of 1 failed jobs"):
                backend.fail(claims[1], "no")
        finally:
            alarmed.rabbitmqctl("set_vm_memory_high_watermark", "0.6")
        registered = until(lambda: registration(backend), "it does not recover")
        assert registered.created
        assert backend.fail(claims[1], "no", permanent=True).applied, "its lease was kept"


def refusal(backend: Backend) -> StoreUnavailable | None:
    """Why a job can't be registered, if it can't."""
    try:
        backend.register(Job(kind="work", queue="default"))
    except StoreUnavailable as error:
        return error
    return None


def registration(backend: Backend) -> Registration | None:
    """A job, registered, if it can be."""
    try:
        return backend.register(Job(kind="work"))
    except StoreUnavailable:
        return None


# Silence --------------------------------------------------------------------------------------------------


def test_a_silent_network_ends_a_call_within_its_deadline(rabbitmq_server: RabbitServer, vhost: str) -> None:
    opened(rabbitmq_server.url(vhost)).close()
    with Proxy(rabbitmq_server.address) as proxy:
        host, port = proxy.address
        with connect(rabbitmq_server.url(vhost, host=host, port=port), timeout="1s") as backend:
            backend.register(Job(kind="work"))
            claim = claim_all(backend, 1)[0]
            proxy.blackhole()
            for call in (
                lambda: backend.register(Job(kind="work")),
                backend.claim,
                lambda: backend.extend(claim),
                lambda: backend.complete(claim),
            ):
                started = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    call()
                assert time.monotonic() - started < 5
            proxy.reset_all()
            proxy.pass_all()
            assert until(lambda: registration(backend), "it does not recover").created


def test_jobs_whose_confirms_were_lost_are_stored_once_where_the_first_part_was_confirmed(
    rabbitmq_server: RabbitServer, vhost: str
) -> None:
    """The connection breaks in the middle of a batch: only what was not confirmed is sent again."""
    batch = jobs(2000)
    opened(rabbitmq_server.url(vhost)).close()
    with Proxy(rabbitmq_server.address) as proxy:
        host, port = proxy.address
        url = rabbitmq_server.url(vhost, host=host, port=port)
        with connect(url, window=100) as backend:
            backend.register(Job(kind="first"))
            cut = proxy.cut_next_reply(lambda data: data.count(b"work") > 1000)
            registered = backend.register_many(batch)
            assert cut.done
            assert len(registered) == len(batch)
    with connect(rabbitmq_server.url(vhost)) as backend:
        claims: list[Claim] = []
        deadline = time.monotonic() + PATIENCE
        while more := backend.claim(limit=1000):
            claims += more
            assert time.monotonic() < deadline
        stored = [claim.job.id for claim in claims if claim.job.kind == "work"]
        assert set(stored) == {job.id for job in batch}
        assert len(stored) - len(batch) <= 200, "more than the unconfirmed window was repeated"


def test_a_delay_longer_than_the_deadline_is_no_lost_job(rabbitmq_server: RabbitServer, vhost: str) -> None:
    """The caller is told that nobody knows; a job that was stored in spite of it can be claimed."""
    opened(rabbitmq_server.url(vhost)).close()
    with Proxy(rabbitmq_server.address) as proxy:
        host, port = proxy.address
        with connect(rabbitmq_server.url(vhost, host=host, port=port), timeout="500ms") as backend:
            backend.register(Job(kind="work"))
            proxy.delay(2)
            with pytest.raises(
                StoreUnavailable, match=r"did not answer in time|did not confirm|can't be reached"
            ):
                backend.register(Job(kind="work"))
            proxy.pass_all()
    with connect(rabbitmq_server.url(vhost)) as backend:
        assert claim_all(backend, 1)

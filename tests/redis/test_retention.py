"""Finished jobs are kept for a time, and their keys exactly as long."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from uuid import uuid4

import pytest
from jobcontract_redis import RedisDriver

from jobcontract.contract import JobRecord, State
from tests.redis.stores import HOUR, NOTHING, QUEUE, counts, failure, leases_of, open_store, records, until
from tests.servers.redis import RedisServer


@pytest.fixture
def forgetful(redis_server: RedisServer, namespace: str) -> Generator[RedisDriver]:
    """A store that keeps finished jobs for the shortest time there is."""
    driver = open_store(redis_server.url(), namespace=namespace, retention="1ms")
    yield driver
    driver.close()


def finish(store: RedisDriver, state: State) -> JobRecord:
    """A job with a key, brought to its end."""
    (made,) = records(1, idempotency_key=uuid4().hex)
    store.register([made])
    if state is State.CANCELLED:
        store.cancel([made.id])
    else:
        (lease,) = leases_of(store.claim([QUEUE], 1, HOUR))
        if state is State.DONE:
            store.complete([lease])
        else:
            store.fail([failure(lease, permanent=True)])
    return made


def test_each_completion_takes_outdated_ones_along(forgetful: RedisDriver) -> None:
    first = finish(forgetful, State.DONE)

    def is_forgotten() -> bool:
        finish(forgetful, State.DONE)
        return forgetful.get(first.id) is None

    until(is_forgotten, "the history grows for ever")
    assert counts(forgetful)["done"] <= 3


@pytest.mark.parametrize("state", [State.DONE, State.CANCELLED])
def test_rescue_forgets_what_is_outdated_and_frees_its_key(forgetful: RedisDriver, state: State) -> None:
    made = finish(forgetful, state)

    def is_forgotten() -> bool:
        forgetful.rescue(10)
        return forgetful.get(made.id) is None

    until(is_forgotten, "it is kept for ever")
    assert counts(forgetful) == {}
    assert forgetful.register(records(1, idempotency_key=made.idempotency_key))[0].created


def test_dead_jobs_and_their_keys_stay(forgetful: RedisDriver) -> None:
    made = finish(forgetful, State.DEAD)
    until(lambda: _forgets_a_done_job(forgetful), "nothing is forgotten at all")
    assert forgetful.get(made.id) is not None
    assert not forgetful.register(records(1, idempotency_key=made.idempotency_key))[0].created


def _forgets_a_done_job(store: RedisDriver) -> bool:
    made = finish(store, State.DONE)
    store.rescue(10)
    return store.get(made.id) is None


@pytest.mark.parametrize("retention", ["1h", "0"], ids=["for an hour", "for ever"])
def test_what_is_to_be_kept_is_kept(redis_server: RedisServer, namespace: str, retention: str) -> None:
    store = open_store(redis_server.url(), namespace=namespace, retention=retention)
    made = [finish(store, state) for state in (State.DONE, State.CANCELLED, State.DEAD)]
    finish(store, State.DONE)
    store.rescue(10)
    assert all(store.get(each.id) for each in made)
    assert all(
        not store.register(records(1, idempotency_key=each.idempotency_key))[0].created for each in made
    )
    store.close()


def test_a_pruned_job_leaves_no_key_behind(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    empty = own_server.ask("DBSIZE")
    for state in (State.DONE, State.CANCELLED, State.DEAD):
        finish(store, state)
        assert store.prune(NOTHING, {state}, 10) == 1
    # The list of queues; the marker that wakes a waiter may stand, too.
    assert own_server.ask("DBSIZE") <= empty + 2
    store.close()


def test_many_are_pruned_in_steps_of_the_limit(store: RedisDriver) -> None:
    store.register([record._replace(idempotency_key=record.id) for record in records(2500)])
    store.complete(leases_of(store.claim([QUEUE], 2500, HOUR)))
    assert store.prune(timedelta(hours=1), {State.DONE}, 1000) == 0
    assert [store.prune(NOTHING, {State.DONE}, 1000) for _ in range(4)] == [1000, 1000, 500, 0]

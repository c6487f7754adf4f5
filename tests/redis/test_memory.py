"""A server whose memory is full, one that would evict, and how much memory a job takes."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta

import pytest
from jobcontract_redis import RedisDriver

from jobcontract import Job
from jobcontract.contract import State
from jobcontract.errors import ConfigError, StoreError, StoreUnavailable
from tests.redis.stores import (
    HOUR,
    NOTHING,
    QUEUE,
    connect,
    counts,
    failure,
    leases_of,
    open_store,
    records,
    row_of,
    state_of,
    until,
)
from tests.servers.binaries import Programs
from tests.servers.redis import RedisServer

BYTES_PER_JOB = 900


@pytest.fixture
def full(own_server: RedisServer) -> Generator[RedisDriver]:
    """A store on a server of its own; `fill` makes it full."""
    driver = open_store(own_server.url())
    yield driver
    driver.close()


def fill(server: RedisServer) -> None:
    """From now on every command that needs memory is refused."""
    server.ask("CONFIG SET", "maxmemory", "1")


def make_room(server: RedisServer) -> None:
    """The end of `fill`."""
    server.ask("CONFIG SET", "maxmemory", "0")


def test_register_fails_loudly_and_stores_nothing(own_server: RedisServer, full: RedisDriver) -> None:
    known = records(3)
    full.register(known)
    fill(own_server)
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        full.register(records(100))
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        full.register([*known, *records(1, queue="other")])
    assert counts(full) == {"ready": 3}
    assert row_of(full, "other") is None
    make_room(own_server)
    assert all(each.created for each in full.register(records(100)))


def test_what_is_known_can_be_registered_again(own_server: RedisServer, full: RedisDriver) -> None:
    known = records(2, idempotency_key="a")[:1] + records(2)
    full.register(known)
    fill(own_server)
    assert [each.created for each in full.register(known)] == [False, False, False]


def test_no_acknowledged_job_is_lost_while_it_fills_up(redis_programs: Programs) -> None:
    with RedisServer(programs=redis_programs, maxmemory=8 * 1024 * 1024) as server:
        store = open_store(server.url())
        acknowledged: list[str] = []

        def until_full() -> None:
            while True:
                made = records(100)
                store.register(made)
                acknowledged.extend(each.id for each in made)

        with pytest.raises(StoreUnavailable, match="maxmemory"):
            until_full()
        done: list[str] = []
        while claimed := store.claim([QUEUE], 100, HOUR):
            assert all(verdict.applied for verdict in store.complete(leases_of(claimed)))
            done += [each.record.id for each in claimed]
        assert sorted(done) == sorted(acknowledged)
        assert len(done) >= 1000
        store.close()


def test_workers_drain_a_full_server(own_server: RedisServer, full: RedisDriver) -> None:
    full.register(records(10))
    fill(own_server)
    leases = leases_of(full.claim([QUEUE], 10, HOUR))
    assert len(leases) == 10
    assert all(verdict.applied for verdict in full.extend(leases, HOUR))
    assert all(verdict.applied for verdict in full.complete(leases[:3]))
    assert full.fail([failure(leases[3])])[0].state is State.READY
    assert full.fail([failure(leases[4], permanent=True)])[0].state is State.DEAD
    assert full.release(leases[5:6], NOTHING)[0].applied
    assert counts(full) == {"ready": 2, "running": 4, "dead": 1, "done": 3}


def test_a_full_server_can_be_rescued(own_server: RedisServer, full: RedisDriver) -> None:
    full.register(records(1, max_attempts=1) + records(2))
    full.claim([QUEUE], 3, timedelta(milliseconds=1))
    until(lambda: (row := row_of(full)) and row.expired == 3, "the leases do not run out")
    fill(own_server)
    assert tuple(full.rescue(100)) == (2, 1)
    assert counts(full) == {"ready": 2, "dead": 1}


def test_an_operator_can_act_on_a_full_server(own_server: RedisServer, full: RedisDriver) -> None:
    made = records(3)
    full.register(made)
    fill(own_server)
    assert full.cancel([made[0].id]) == [State.CANCELLED]
    assert full.requeue([made[0].id]) == [State.READY]
    full.pause(QUEUE)
    assert full.claim([QUEUE], 3, HOUR) == []
    full.resume(QUEUE)
    full.complete(leases_of(full.claim([QUEUE], 3, HOUR)))
    assert full.prune(NOTHING, {State.DONE}, 10) == 3
    assert counts(full) == {}


def test_a_body_that_was_evicted_is_found_on_a_full_server(
    own_server: RedisServer, full: RedisDriver
) -> None:
    (made,) = records(1, run_at=None)
    full.register([made])
    own_server.ask("DEL", f"{{jobcontract:{QUEUE}}}:b:{made.id}")
    fill(own_server)
    assert full.claim([QUEUE], 1, HOUR) == []
    assert state_of(full, made.id) is State.DEAD


# -- Settings that lose jobs -----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_server_that_evicts_any_key_is_refused(own_server: RedisServer, policy: str) -> None:
    own_server.ask("CONFIG SET", "maxmemory-policy", policy)
    store = connect(own_server.url())
    for call in (store.install, store.stats, lambda: store.register(records(1)), lambda: store.capabilities):
        with pytest.raises(ConfigError, match=f"maxmemory-policy {policy}.*accept_loss"):
            call()
    store.close()


def test_a_server_that_evicts_is_taken_when_the_loss_is_accepted(own_server: RedisServer) -> None:
    own_server.ask("CONFIG SET", "maxmemory-policy", "allkeys-lru")
    store = open_store(own_server.url(), accept_loss=True)
    assert any("allkeys-lru" in note for note in store.capabilities.notes)
    assert store.register(records(1))[0].created
    store.close()


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-ttl"])
def test_a_server_that_evicts_only_what_expires_takes_no_job(own_server: RedisServer, policy: str) -> None:
    """None of our keys expires."""
    own_server.ask("CONFIG SET", "maxmemory-policy", policy)
    store = open_store(own_server.url())
    store.register(records(10))
    fill(own_server)
    with pytest.raises(StoreError, match="maxmemory"):
        store.register(records(1))
    assert counts(store) == {"ready": 10}
    store.close()


# -- How much --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [False, True], ids=["without a key", "with a key"])
def test_a_waiting_job_takes_little_memory(own_server: RedisServer, full: RedisDriver, keyed: bool) -> None:
    count = 20_000
    reference = "x" * (200 - len('{"document":""}'))

    def register(numbers: range) -> None:
        made = [
            Job(
                kind="embed_document",
                input_ref={"document": reference},
                idempotency_key=f"document-{number:08}" if keyed else None,
            )
            for number in numbers
        ]
        assert {len(each.input_json) for each in made} == {200}
        for start in range(0, len(made), 1000):
            full.register([each.to_record() for each in made[start : start + 1000]])

    register(range(1000))
    before = own_server.information("memory")["used_memory"]
    register(range(1000, 1000 + count))
    used = own_server.information("memory")["used_memory"] - before
    assert used / count <= BYTES_PER_JOB

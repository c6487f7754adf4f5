"""`wait`: woken by work, by its time, and by nothing else; whatever the server does meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta

import pytest
from jobcontract_redis import RedisDriver

from tests.redis.stores import (
    HOUR,
    NOTHING,
    PATIENCE,
    QUEUE,
    connect,
    leases_of,
    open_store,
    records,
    stored,
    until,
)
from tests.servers.proxy import Proxy, contains
from tests.servers.redis import RedisServer
from tests.servers.redis_groups import RedisCluster

LONG = timedelta(seconds=2 * PATIENCE)


class Waiting:
    """A thread inside of `wait`."""

    def __init__(
        self, store: RedisDriver, queues: Sequence[str] = (QUEUE,), timeout: timedelta = LONG
    ) -> None:
        self.answer: bool | None = None
        self.error: BaseException | None = None
        self.seconds = 0.0

        def wait() -> None:
            started = time.monotonic()
            try:
                self.answer = store.wait(list(queues), timeout)
            except BaseException as error:
                self.error = error
            self.seconds = time.monotonic() - started

        self._thread = threading.Thread(target=wait, daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> bool:
        self._thread.join(PATIENCE)
        assert self.over, "wait goes on"
        assert self.error is None, f"wait raised {self.error!r}"
        assert self.answer is not None
        return self.answer


def blocked(server: RedisServer, count: int = 1) -> None:
    """Return when `count` clients of the server are blocked."""
    until(
        lambda: server.information("clients")["blocked_clients"] == count,
        f"there are not {count} clients blocked",
    )


def test_each_waiter_is_woken(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    waiters = [Waiting(store) for _ in range(5)]
    blocked(own_server, 5)
    store.register(records(5))
    assert all(waiter.join() for waiter in waiters)
    store.close()


def test_one_job_wakes_one_waiter_at_once(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    waiters = [Waiting(store, timeout=timedelta(seconds=4)) for _ in range(3)]
    blocked(own_server, 3)
    store.register(records(1))
    until(lambda: any(waiter.over for waiter in waiters), "nobody was woken")
    assert len(store.claim([QUEUE], 1, HOUR)) == 1
    assert sorted(waiter.join() for waiter in waiters) == [False, False, True]
    store.close()


def test_a_claim_that_leaves_work_wakes_the_next(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    store.register(records(3))
    store.claim([QUEUE], 2, HOUR)
    with own_server.client() as client:
        assert client.zcard(f"{{jobcontract:{QUEUE}}}:wake") == 1
        store.claim([QUEUE], 2, HOUR)
        assert client.zcard(f"{{jobcontract:{QUEUE}}}:wake") == 0
    store.close()


def test_a_job_that_becomes_due_wakes_it(store: RedisDriver) -> None:
    (first,) = records(1)
    store.register([first])
    store.complete(leases_of(store.claim([QUEUE], 1, HOUR)))
    soon = stored(store, first.id).created_at + timedelta(seconds=1)
    (made,) = records(1, run_at=soon)
    store.register([made])
    # A wait that did not know when to look would block for all of its time.
    assert store.wait([QUEUE], timedelta(seconds=1.9)) is True
    (claimed,) = store.claim([QUEUE], 1, HOUR)
    assert claimed.record.id == made.id


def test_a_job_that_is_due_sooner_than_what_it_waits_for_wakes_it(store: RedisDriver) -> None:
    (first,) = records(1)
    store.register([first])
    store.complete(leases_of(store.claim([QUEUE], 1, HOUR)))
    now = stored(store, first.id).created_at
    store.register(records(1, run_at=now + HOUR))
    waiter = Waiting(store)
    store.register(records(1, run_at=now + timedelta(seconds=1)))
    assert waiter.join() is True


def test_a_paused_queue_wakes_nobody(store: RedisDriver) -> None:
    store.register(records(1))
    store.pause(QUEUE)
    assert store.wait([QUEUE], timedelta(milliseconds=100)) is False
    store.resume(QUEUE)
    assert store.wait([QUEUE], NOTHING) is True


def test_it_survives_a_restart_and_hears_of_work_after_it(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    waiter = Waiting(store)
    blocked(own_server)
    own_server.kill()
    own_server.start()
    assert not waiter.over
    store.register(records(1))
    assert waiter.join() is True
    assert len(store.claim([QUEUE], 1, HOUR)) == 1
    store.close()


def test_it_keeps_its_timeout_while_the_server_is_down(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    waiter = Waiting(store, timeout=timedelta(seconds=1))
    own_server.kill()
    assert waiter.join() is False
    assert store.wait([QUEUE], timedelta(milliseconds=100)) is False
    own_server.start()
    store.register(records(1))
    assert store.wait([QUEUE], NOTHING) is True
    store.close()


def test_it_keeps_its_timeout_while_the_server_is_silent(
    redis_server: RedisServer, store: RedisDriver, proxy: Proxy, namespace: str
) -> None:
    client = connect(redis_server.url(host=proxy.host, port=proxy.port), namespace=namespace)
    assert client.wait([QUEUE], NOTHING) is False
    proxy.blackhole()
    waiter = Waiting(client, timeout=timedelta(milliseconds=300))
    assert waiter.join() is False
    assert waiter.seconds < 5  # the client's own timeout, which an answer may take
    proxy.reset_all()
    proxy.pass_all()
    store.register(records(1))
    assert client.wait([QUEUE], LONG) is True
    client.close()


def test_a_half_open_connection_is_noticed_while_it_waits(
    redis_server: RedisServer, store: RedisDriver, proxy: Proxy, namespace: str
) -> None:
    """The network swallows what the server says; a new connection gets through."""
    client = connect(redis_server.url(host=proxy.host, port=proxy.port), namespace=namespace)
    waiter = Waiting(client)
    blocked(redis_server)
    proxy.blackhole()
    store.register(records(1))
    with redis_server.client() as server:
        until(
            lambda: not server.zcard(f"{{{namespace}:{QUEUE}}}:wake"), "the marker was not popped for nobody"
        )
    proxy.reset_all()
    proxy.pass_all()
    assert waiter.join() is True
    client.close()


def test_a_script_that_was_forgotten_is_no_reason_to_miss_work(
    redis_server: RedisServer, store: RedisDriver
) -> None:
    store.register(records(1))
    assert store.wait([QUEUE], NOTHING) is True
    redis_server.ask("SCRIPT FLUSH")
    assert store.wait([QUEUE], NOTHING) is True


def test_close_wakes_it_and_leaves_no_connection(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    waiters = [Waiting(store) for _ in range(3)]
    blocked(own_server, 3)
    store.close()
    assert [waiter.join() for waiter in waiters] == [False] * 3
    assert store.wait([QUEUE], LONG) is False
    store.close()
    until(lambda: own_server.information("clients")["connected_clients"] == 1, "a connection was left open")


def test_waits_reuse_their_connections(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    store.wait([QUEUE], NOTHING)
    before = own_server.information("stats")["total_connections_received"]
    for _ in range(20):
        store.wait([QUEUE], timedelta(milliseconds=10))
        store.register(records(1))
        assert store.wait([QUEUE], NOTHING) is True
        store.claim([QUEUE], 1, HOUR)
    asked = 1  # the question itself
    assert own_server.information("stats")["total_connections_received"] == before + asked
    store.close()


@pytest.mark.parametrize("queue", ["a", "b", "c"])
def test_in_a_cluster_each_of_several_queues_wakes_it(
    cluster: RedisCluster, namespace: str, queue: str
) -> None:
    """Three queues lie in three slots, which one command can't name."""
    store = open_store(cluster.url(), namespace=namespace)
    waiter = Waiting(store, ["a", "b", "c"])
    until(
        lambda: sum(node.information("clients")["blocked_clients"] for node in cluster.members) == 3,
        "it does not wait on three connections",
    )
    store.register(records(1, queue=queue))
    assert waiter.join() is True
    store.close()


def test_in_a_cluster_it_keeps_its_timeout(cluster: RedisCluster, namespace: str) -> None:
    store = open_store(cluster.url(), namespace=namespace)
    assert store.wait(["a", "b", "c"], timedelta(milliseconds=200)) is False
    store.close()


def test_a_wake_up_that_was_lost_on_its_way_is_found_by_looking(
    store: RedisDriver, proxied: RedisDriver, proxy: Proxy
) -> None:
    waiter = Waiting(proxied)
    proxy.cut_next_reply(contains(b"BZPOPMIN"), reply=contains(b"work"))
    store.register(records(1))
    assert waiter.join() is True

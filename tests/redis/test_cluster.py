"""A cluster: one queue, one slot; a node that is down or a slot that moved concerns its own queues only."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import pytest
from redis.crc import key_slot

from jobcontract.errors import ConfigError, StoreUnavailable
from jobcontract.side_doors import Page
from tests.redis.stores import HOUR, NOTHING, connect, counts, leases_of, open_store, records, until
from tests.servers.binaries import Programs
from tests.servers.process import DEFAULT_PASSWORD
from tests.servers.redis import RedisServer
from tests.servers.redis_groups import RedisCluster, start_cluster

QUEUES = [f"q{number}" for number in range(12)]


def node_of(cluster: RedisCluster, namespace: str, queue: str) -> RedisServer:
    """Who has the queue."""
    slot = key_slot(f"{{{namespace}:{queue}}}".encode())
    for member in cluster.members:
        for first, last, (_, port, *_), *_ in cast("list[Any]", member.ask("CLUSTER SLOTS")):
            if first <= slot <= last and port == member.port:
                return member
    raise AssertionError(f"nobody has slot {slot}")


def test_one_call_reaches_queues_on_every_node(cluster: RedisCluster, namespace: str) -> None:
    store = open_store(cluster.url(), namespace=namespace)
    made = [record._replace(priority=number % 10) for number, record in enumerate(records(120))]
    made = [record._replace(queue=QUEUES[number % 12]) for number, record in enumerate(made)]
    assert len({node_of(cluster, namespace, queue).port for queue in QUEUES}) == 3
    assert [str(each.job_id) for each in store.register(made)] == [each.id for each in made]
    claimed = store.claim(QUEUES, 50, HOUR)
    assert len(claimed) == 50
    priorities = [each.record.priority for each in claimed]
    assert priorities == sorted((record.priority for record in made), reverse=True)[:50]
    assert all(verdict.applied for verdict in store.complete(leases_of(claimed)))
    assert len(store.jobs(Page(limit=1000))) == 120
    assert sum(row.done or 0 for row in store.stats()) == 50
    store.close()


def test_any_node_of_the_url_will_do(cluster: RedisCluster, namespace: str) -> None:
    url = cluster.url().replace(f":{cluster.members[0].port}", ":1", 1)
    store = open_store(url, namespace=namespace)
    assert store.register(records(1))[0].created
    store.close()


def test_a_node_under_a_plain_url_is_refused(cluster: RedisCluster) -> None:
    store = connect(cluster.members[0].url())
    with pytest.raises(ConfigError, match=r"is a node of a cluster; write redis\+cluster://"):
        store.install()
    store.close()


def test_a_single_server_under_a_cluster_url_is_told_so(redis_server: RedisServer) -> None:
    store = connect(redis_server.url().replace("redis://", "redis+cluster://"))
    with pytest.raises(StoreUnavailable, match="cluster support disabled") as refused:
        store.install()
    assert DEFAULT_PASSWORD not in str(refused.value)
    store.close()


@pytest.fixture
def own_cluster(redis_programs: Programs) -> Generator[RedisCluster]:
    """A cluster for a test that kills its nodes or moves its slots."""
    settings = {"cluster-require-full-coverage": "no"}
    with start_cluster(programs=redis_programs, settings=settings) as cluster:
        yield cluster


def test_a_node_that_is_down_stops_its_own_queues_only(own_cluster: RedisCluster) -> None:
    store = open_store(own_cluster.url(), timeout="1s")
    store.register([record for queue in QUEUES for record in records(2, queue=queue)])
    # Not the one that has the list of queues.
    holder = node_of(own_cluster, "jobcontract", "")
    down = next(member for member in own_cluster.members if member is not holder)
    lost = [queue for queue in QUEUES if node_of(own_cluster, "jobcontract", queue) is down]
    served = [queue for queue in QUEUES if queue not in lost]
    assert lost
    assert served
    down.kill()
    claimed = store.claim(QUEUES, 100, HOUR)
    assert {each.record.queue for each in claimed} == set(served)
    assert len(claimed) == 2 * len(served)
    with pytest.raises(StoreUnavailable):
        store.claim(lost, 10, HOUR)
    assert all(verdict.applied for verdict in store.complete(leases_of(claimed)))
    down.start()

    def served_again() -> bool:
        try:
            return len(store.claim(lost, 100, HOUR)) == 2 * len(lost)
        except StoreUnavailable:
            return False

    until(served_again, "the queues of the node that came back are not served")
    store.close()


def test_known_queues_take_jobs_while_the_node_with_the_list_of_queues_is_down(
    own_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobcontract_redis.namespace._KNOWN_FOR", 0.0)  # look at the list every time
    store = open_store(own_cluster.url(), timeout="1s")
    holder = node_of(own_cluster, "jobcontract", "")
    served = (queue for queue in QUEUES if node_of(own_cluster, "jobcontract", queue) is not holder)
    queue, unknown = next(served), next(served)
    store.register(records(1, queue=queue))
    holder.kill()
    assert store.register(records(1, queue=queue))[0].created
    assert len(store.claim([queue], 10, HOUR)) == 2
    with pytest.raises(StoreUnavailable):
        store.register(records(1, queue=unknown))  # nobody would find it again
    store.close()


def test_a_slot_that_moved_is_followed(own_cluster: RedisCluster) -> None:
    store = open_store(own_cluster.url())
    made = records(50, queue="a")
    store.register(made)
    leases = leases_of(store.claim(["a"], 10, HOUR))
    source = node_of(own_cluster, "jobcontract", "a")
    target = next(member for member in own_cluster.members if member is not source)
    move_slot(own_cluster, key_slot(b"{jobcontract:a}"), source, target)
    assert node_of(own_cluster, "jobcontract", "a") is target
    assert all(verdict.applied for verdict in store.complete(leases))
    assert not store.register(made[:1])[0].created
    assert counts(store, "a") == {"ready": 40, "done": 10}
    store.close()


def test_a_wait_follows_a_slot_that_moved(own_cluster: RedisCluster) -> None:
    store = open_store(own_cluster.url())
    store.register(records(1, queue="a"))
    assert store.wait(["a"], NOTHING) is True
    source = node_of(own_cluster, "jobcontract", "a")
    target = next(member for member in own_cluster.members if member is not source)
    move_slot(own_cluster, key_slot(b"{jobcontract:a}"), source, target)
    until(lambda: store.wait(["a"], NOTHING), "wait does not find the node that has the queue now")
    store.close()


def move_slot(cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    """As an operator would, with its keys."""
    source_id, target_id = (cast(bytes, each.ask("CLUSTER MYID")).decode() for each in (source, target))
    target.ask("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
    source.ask("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
    while keys := cast("list[str]", source.ask("CLUSTER GETKEYSINSLOT", slot, 100)):
        source.ask("MIGRATE", target.host, target.port, "", 0, 5000, "AUTH", target.password, "KEYS", *keys)
    for member in (target, *(each for each in cluster.members if each is not target)):
        member.ask("CLUSTER SETSLOT", slot, "NODE", target_id)

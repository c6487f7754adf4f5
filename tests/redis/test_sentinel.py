"""A group under Sentinel whose primary is killed while producers and workers are busy."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import pytest
from jobcontract_redis import RedisDriver

from jobcontract.contract import Durability, Lease, State
from jobcontract.errors import StoreError, StoreUnavailable
from tests.redis.stores import HOUR, NOTHING, QUEUE, connect, counts, leases_of, open_store, records, until
from tests.servers.binaries import Programs
from tests.servers.redis_groups import RedisSentinel, start_sentinel

LEASE = timedelta(seconds=2)


@pytest.fixture
def group(redis_programs: Programs) -> Generator[RedisSentinel]:
    """A primary, a replica and three Sentinels."""
    with start_sentinel(programs=redis_programs, down_after=0.5) as group:
        yield group


class Claimed(NamedTuple):
    """One lease that a worker was given."""

    attempt: int
    begins: datetime
    ends: datetime


class Load:
    """A producer and two workers, until told to stop; what each was told by the store is remembered."""

    def __init__(self, store: RedisDriver) -> None:
        self._store = store
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: set[str] = set()
        self.completed: set[str] = set()
        self.leases: defaultdict[str, list[Claimed]] = defaultdict(list)
        self._threads = [
            threading.Thread(target=self._again_and_again, args=[turn], daemon=True)
            for turn in (self._produce, self._work, self._work)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _again_and_again(self, turn: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                turn()
            except StoreUnavailable:
                self._stop.wait(0.05)

    def _produce(self) -> None:
        made = records(20)
        while not self._stop.is_set():
            try:
                self._store.register(made)
            except StoreUnavailable:
                self._stop.wait(0.05)
            else:
                with self._lock:
                    self.acknowledged.update(each.id for each in made)
                return

    def _work(self) -> None:
        leases = leases_of(self._store.claim([QUEUE], 10, LEASE))
        self.remember(leases)
        self._store.rescue(100)
        if leases:
            verdicts = self._store.complete(leases)
            with self._lock:
                self.completed.update(
                    lease.job_id for lease, verdict in zip(leases, verdicts, strict=True) if verdict.applied
                )

    def remember(self, leases: list[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self.leases[lease.job_id].append(
                    Claimed(lease.attempt, lease.expires_at - LEASE, lease.expires_at)
                )

    def overlaps(self) -> int:
        """How many leases began before an earlier one of the same job had run out."""
        return sum(
            later.begins < earlier.ends
            for leases in self.leases.values()
            for ordered in [sorted(leases, key=lambda each: each.begins)]
            for earlier, later in pairwise(ordered)
        )


@pytest.mark.parametrize("wait_replicas", [0, 1], ids=["asynchronous", "wait_replicas=1"])
def test_failover_under_load(
    group: RedisSentinel, wait_replicas: int, record_property: Callable[[str, object], None]
) -> None:
    """What a failover lost is counted; where replicas were waited for, nothing is, and no leases overlap."""
    store = open_store(group.url(), timeout="1s", wait_replicas=wait_replicas)
    load = Load(store)
    until(lambda: len(load.completed) >= 200, "the load does not run")
    former = group.primary()
    former.kill()
    group.await_primary_other_than(former)
    before = len(load.completed)
    former.start()  # comes back as a replica of the new primary
    until(lambda: len(load.completed) >= before + 200, "the load does not go on by itself after the failover")
    load.stop()
    drain(store, load)

    lost = {job_id for job_id in load.acknowledged if store.get(job_id) is None}
    forgotten = {job_id for job_id in load.completed - lost if len(load.leases[job_id]) > 1}
    figures = {
        "acknowledged": len(load.acknowledged),
        "lost": len(lost),
        "run again": len(forgotten),
        "overlapping leases": load.overlaps(),
    }
    for name, number in figures.items():
        record_property(name, number)
    print(f"failover with wait_replicas={wait_replicas}: {figures}")
    assert set(counts(store)) == {"done"}
    assert all(store.get(job_id) for job_id in load.acknowledged - lost)
    if wait_replicas:
        assert lost == set()
        assert load.overlaps() == 0
    store.close()


def drain(store: RedisDriver, load: Load) -> None:
    """Run what is left, whoever was killed with it."""

    def empty() -> bool:
        store.rescue(1000)
        leases = leases_of(store.claim([QUEUE], 1000, LEASE))
        load.remember(leases)
        if leases:
            store.complete(leases)
        return not {"ready", "running", "scheduled"} & set(counts(store))

    until(empty, "the jobs are not drained")


def test_a_token_of_the_former_primary_changes_nothing(group: RedisSentinel) -> None:
    store = open_store(group.url(), timeout="1s", wait_replicas=1)
    store.register(records(2))
    leases = leases_of(store.claim([QUEUE], 2, HOUR))
    store.release(leases[1:], NOTHING)
    (again,) = leases_of(store.claim([QUEUE], 1, HOUR))
    former = group.primary()
    former.kill()
    group.await_primary_other_than(former)
    assert [verdict.applied for verdict in store.complete([leases[0], leases[1]])] == [True, False]
    assert store.complete([again])[0].applied
    store.close()


def test_durability_with_replicas_is_declared_and_kept(group: RedisSentinel) -> None:
    plain = open_store(group.url())
    assert plain.capabilities.durability is Durability.WINDOW
    assert any("wait_replicas" in note for note in plain.capabilities.notes)
    plain.close()
    store = connect(group.url(), wait_replicas=1, timeout="1s")
    assert store.capabilities.durability is Durability.QUORUM
    (replica,) = group.replicas()
    (made,) = records(1)
    with (
        replica.paused(),
        pytest.raises(StoreUnavailable, match=r"only 0 of 1 replicas .* repeating it is safe"),
    ):
        store.register([made])
    assert (store.register([made])[0].created, store.register([made])[0].state) == (False, State.READY)
    store.close()


def test_the_sentinels_are_tried_in_turn(group: RedisSentinel) -> None:
    group.sentinels[0].kill()
    store = open_store(group.url(), timeout="1s")
    assert store.register(records(1))[0].created
    store.close()


def test_an_unknown_service_is_named(group: RedisSentinel) -> None:
    store = connect(group.url().replace("/mymaster/", "/other/"))
    with pytest.raises(StoreError, match="knows no service 'other'"):
        store.stats()
    store.close()


def test_no_primary_is_one_clear_sentence(group: RedisSentinel) -> None:
    store = open_store(group.url(), timeout="1s")
    for server in group.servers:
        server.kill()
    with pytest.raises(StoreUnavailable) as failed:
        store.stats()
    assert group.password not in str(failed.value)
    store.close()

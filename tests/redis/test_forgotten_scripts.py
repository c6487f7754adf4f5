"""A server that forgot the scripts (SCRIPT FLUSH, a restart, a failover): nobody notices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from jobcontract_redis import RedisDriver

from jobcontract.contract import State
from jobcontract.side_doors import Page
from tests.redis.stores import HOUR, NOTHING, QUEUE, counts, failure, leases_of, open_store, records
from tests.servers.redis import RedisServer


@pytest.fixture
def forget(redis_server: RedisServer) -> Callable[[], None]:
    """Make the server forget every script."""
    return lambda: redis_server.ask("SCRIPT FLUSH")


def test_between_any_two_verbs(store: RedisDriver, forget: Callable[[], None]) -> None:
    made = records(7)
    forget()
    assert all(each.created for each in store.register(made))
    forget()
    leases = leases_of(store.claim([QUEUE], 5, HOUR))
    assert len(leases) == 5
    forget()
    assert store.extend(leases[:1], HOUR)[0].applied
    forget()
    assert store.complete(leases[:1])[0].applied
    forget()
    assert store.fail([failure(leases[1], permanent=True)])[0].state is State.DEAD
    forget()
    assert store.release(leases[2:3], NOTHING)[0].applied
    forget()
    assert store.cancel([made[-1].id]) == [State.CANCELLED]
    forget()
    assert store.requeue([made[-1].id]) == [State.READY]
    forget()
    assert tuple(store.rescue(100)) == (0, 0)
    forget()
    store.pause(QUEUE)
    forget()
    assert store.claim([QUEUE], 10, HOUR) == []
    forget()
    store.resume(QUEUE)
    forget()
    assert store.wait([QUEUE], NOTHING) is True
    forget()
    assert len(store.jobs(Page())) == 7
    forget()
    assert store.get(made[0].id) is not None
    forget()
    assert counts(store) == {"ready": 3, "running": 2, "done": 1, "dead": 1}
    forget()
    assert store.prune(NOTHING, {State.DONE}, 10) == 1


def test_inside_a_batch_over_several_queues(store: RedisDriver, forget: Callable[[], None]) -> None:
    queues = ["a", "b", "c"]
    made = [record for queue in queues for record in records(10, queue=queue)]
    forget()
    store.register(made)
    forget()
    claimed = store.claim(queues, 30, HOUR)
    assert sorted(each.record.id for each in claimed) == sorted(each.id for each in made)
    forget()
    assert all(verdict.applied for verdict in store.complete(leases_of(claimed)))


def test_all_the_time(store: RedisDriver, forget: Callable[[], None]) -> None:
    """One script of a pipeline may be known and the next one not: each job still runs to its end, once."""
    queues = ["a", "b", "c"]
    made = [record for queue in queues for record in records(300, queue=queue)]
    done: list[str] = []
    with again_and_again(forget):
        for start in range(0, len(made), 90):
            assert all(each.created for each in store.register(made[start : start + 90]))
        assert not any(each.created for each in store.register(made))
        while claimed := store.claim(queues, 50, HOUR):
            verdicts = store.complete(leases_of(claimed))
            assert all(verdict.applied for verdict in verdicts)
            assert {each.lease.attempt for each in claimed} == {1}
            done += [each.record.id for each in claimed]
    assert sorted(done) == sorted(each.id for each in made)


@contextmanager
def again_and_again(action: Callable[[], None]) -> Generator[None]:
    """A thread that does it until the block ends."""
    over = threading.Event()
    times = 0

    def repeat() -> None:
        nonlocal times
        while not over.is_set():
            action()
            times += 1

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert times > 10, "the server forgot too rarely to prove anything"


def test_a_restart_keeps_what_was_acknowledged_and_forgets_the_scripts(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    store.register(records(1000))
    running, done = leases_of(store.claim([QUEUE], 2, HOUR))
    store.complete([done])
    own_server.kill()
    own_server.start()
    assert counts(store) == {"ready": 998, "running": 1, "done": 1}
    assert store.extend([running], timedelta(minutes=5))[0].applied
    assert store.complete([running, done])[0].applied
    store.close()

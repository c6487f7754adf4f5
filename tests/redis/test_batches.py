"""Batches larger than what one script takes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from jobcontract_redis import RedisDriver

from jobcontract.contract import Failure, State
from tests.redis.stores import HOUR, NOTHING, QUEUE, counts, leases_of, records
from tests.servers.redis import RedisServer

MANY = 10_000


def test_ten_thousand_go_all_the_way(store: RedisDriver) -> None:
    made = records(MANY)
    assert store.capabilities.max_register_batch >= MANY
    registrations = store.register(made)
    assert [str(each.job_id) for each in registrations] == [each.id for each in made]
    assert all(each.created for each in registrations)
    assert not any(each.created for each in store.register(made))

    leases = leases_of(store.claim([QUEUE], MANY, HOUR))
    assert len({lease.job_id for lease in leases}) == MANY
    assert len({lease.token for lease in leases}) == MANY
    assert all(verdict.applied for verdict in store.extend(leases, HOUR))
    assert all(verdict.applied for verdict in store.release(leases, NOTHING))

    leases = leases_of(store.claim([QUEUE], MANY, HOUR))
    failures = [Failure(lease, "it failed", NOTHING, False) for lease in leases]
    assert {verdict.state for verdict in store.fail(failures)} == {State.READY}

    leases = leases_of(store.claim([QUEUE], MANY, HOUR))
    assert all(verdict.applied for verdict in store.complete(leases))
    assert not any(verdict.applied for verdict in store.complete(leases))
    assert counts(store) == {"done": MANY}


def test_the_first_of_two_with_one_key_wins_wherever_they_stand(store: RedisDriver) -> None:
    made = records(3000)
    first, second = made[10]._replace(idempotency_key="a"), made[2900]._replace(idempotency_key="a")
    made[10], made[2900] = first, second
    registrations = store.register(made)
    assert registrations[10].created
    assert (str(registrations[2900].job_id), registrations[2900].created) == (first.id, False)


def test_ten_thousand_over_many_queues(store: RedisDriver) -> None:
    made = [record for number in range(50) for record in records(MANY // 50, queue=f"q{number}")]
    made.sort(key=lambda record: record.id[::-1])
    assert [str(each.job_id) for each in store.register(made)] == [each.id for each in made]
    queues = [f"q{number}" for number in range(50)]
    leases = leases_of(store.claim(queues, MANY, HOUR))
    assert len(leases) == MANY
    leases.sort(key=lambda lease: lease.job_id[::-1])
    assert all(verdict.applied for verdict in store.complete(leases))


def test_ten_thousand_expired_leases_are_rescued_in_small_steps(store: RedisDriver) -> None:
    store.register(records(MANY))
    store.claim([QUEUE], MANY, timedelta(milliseconds=1))
    rescued = 0
    while rescued < MANY:
        step = store.rescue(1000)
        assert sum(step) <= 1000
        rescued += step.ready
    assert rescued == MANY
    assert counts(store) == {"ready": MANY}


def test_huge_jobs_come_in_smaller_batches(store: RedisDriver) -> None:
    """A claim stops at some 8 MiB, looked at every 20 jobs, however many it may take."""
    big = records(40, kind="big")
    big = [each._replace(input_ref='{"text":"' + "x" * 1_000_000 + '"}') for each in big]
    store.register(big)
    sizes: list[int] = []
    while claimed := store.claim([QUEUE], 1000, HOUR):
        sizes.append(len(claimed))
        assert all(len(each.record.input_ref) > 1_000_000 for each in claimed)
    assert sizes == [20, 20]


@pytest.mark.parametrize("size", [499, 500, 501, 1000, 1001])
def test_batches_around_the_size_of_a_chunk(store: RedisDriver, size: int) -> None:
    made = records(size)
    assert [str(each.job_id) for each in store.register(made)] == [each.id for each in made]
    leases = leases_of(store.claim([QUEUE], size, HOUR))
    assert len(leases) == size
    assert [verdict.applied for verdict in store.complete(leases)] == [True] * size


def test_no_script_holds_the_server_for_long(redis_server: RedisServer, store: RedisDriver) -> None:
    """What one chunk costs, by the server's own count: a tenth of a second would stall everybody else."""
    redis_server.ask("CONFIG RESETSTAT")
    store.register(records(MANY))
    statistics = redis_server.information("commandstats")
    calls = statistics["cmdstat_evalsha"]
    assert calls["usec"] / calls["calls"] < 100_000

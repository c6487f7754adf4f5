"""Keys that were deleted, evicted or overwritten behind our back: each heals, and none stops the queue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from jobcontract_redis import RedisDriver

from jobcontract.contract import JobRecord, State
from jobcontract.errors import StoreError
from jobcontract.side_doors import Page
from tests.redis.stores import (
    HOUR,
    NOTHING,
    QUEUE,
    counts,
    failure,
    leases_of,
    records,
    row_of,
    state_of,
    stored,
    until,
)
from tests.servers.redis import RedisServer


class Vandal:
    """Somebody else with write access to the keys of a store."""

    def __init__(self, server: RedisServer, namespace: str) -> None:
        self._server = server
        self._prefix = f"{{{namespace}:{QUEUE}}}:"

    def do(self, command: str, name: str, *arguments: str | int) -> Any:
        """Send `command` for the key `name` of the queue."""
        return self._server.ask(command, self._prefix + name, *arguments)

    def delete_body(self, record: JobRecord) -> None:
        assert self.do("DEL", f"b:{record.id}") == 1


@pytest.fixture
def vandal(redis_server: RedisServer, namespace: str) -> Vandal:
    return Vandal(redis_server, namespace)


def rescue_all(store: RedisDriver) -> tuple[int, int]:
    """Rescue until every job was looked at: how many went back to ready, how many died."""
    ready = dead = 0
    total = len(store.jobs(Page(limit=1000)))
    for _ in range(total // 100 + 2):
        step = store.rescue(100)
        ready, dead = ready + step.ready, dead + step.dead
    return ready, dead


# -- An id without its body ------------------------------------------------------------------------------


def test_a_claim_goes_on_behind_jobs_whose_bodies_are_gone(store: RedisDriver, vandal: Vandal) -> None:
    made = records(50)
    store.register(made)
    for each in made[:30]:
        vandal.delete_body(each)
    claimed = store.claim([QUEUE], 10, HOUR)
    assert [each.record.id for each in claimed] == [each.id for each in made[30:40]]
    assert counts(store) == {"ready": 10, "running": 10, "dead": 30}
    assert store.claim([QUEUE], 100, HOUR) != []


def test_a_job_whose_body_is_gone_is_dead_with_the_reason(store: RedisDriver, vandal: Vandal) -> None:
    (made,) = records(1)
    store.register([made])
    vandal.delete_body(made)
    assert store.claim([QUEUE], 1, HOUR) == []
    found = stored(store, made.id)
    assert found.state is State.DEAD
    assert found.last_error == "the body of the job is missing from Redis: it was deleted or evicted"
    assert store.requeue([made.id]) == [State.DEAD]
    assert store.prune(NOTHING, {State.DEAD}, 10) == 1
    assert store.get(made.id) is None


def test_a_future_job_whose_body_is_gone_is_found_by_rescue(store: RedisDriver, vandal: Vandal) -> None:
    (template,) = records(1)
    store.register([template])
    later = stored(store, template.id).created_at + HOUR
    made = records(3, run_at=later)
    store.register(made)
    vandal.delete_body(made[1])
    assert rescue_all(store) == (0, 1)
    assert counts(store) == {"ready": 1, "scheduled": 2, "dead": 1}


def test_a_running_job_whose_body_is_gone_can_still_be_completed(store: RedisDriver, vandal: Vandal) -> None:
    made = records(4)
    store.register(made)
    leases = leases_of(store.claim([QUEUE], 4, HOUR))
    for each in made:
        vandal.delete_body(each)
    assert rescue_all(store) == (0, 0)
    assert store.complete(leases[:1])[0].applied
    assert store.fail([failure(leases[1])])[0].state is State.DEAD
    assert store.release(leases[2:3], NOTHING)[0].state is State.DEAD
    assert counts(store) == {"running": 1, "done": 1, "dead": 2}


def test_a_running_job_whose_body_is_gone_dies_at_its_expiry(store: RedisDriver, vandal: Vandal) -> None:
    (made,) = records(1)
    store.register([made])
    store.claim([QUEUE], 1, timedelta(milliseconds=1))
    vandal.delete_body(made)
    until(lambda: (row := row_of(store)) and row.expired, "the lease does not run out")
    assert tuple(store.rescue(10)) == (0, 1)
    assert state_of(store, made.id) is State.DEAD


# -- A body without its place ----------------------------------------------------------------------------


def test_a_ready_job_that_is_in_no_set_comes_back(store: RedisDriver, vandal: Vandal) -> None:
    made = records(3)
    store.register(made)
    vandal.do("ZREM", "ready", made[1].id)
    assert len(store.claim([QUEUE], 10, HOUR)) == 2
    assert rescue_all(store) == (1, 0)
    assert [each.record.id for each in store.claim([QUEUE], 10, HOUR)] == [made[1].id]


def test_a_future_job_that_is_in_no_set_keeps_its_time_and_priority(
    store: RedisDriver, vandal: Vandal
) -> None:
    (template,) = records(1)
    store.register([template])
    later = (stored(store, template.id).created_at + HOUR).replace(microsecond=123_000)
    (made,) = records(1, run_at=later, priority=7)
    store.register([made])
    before = vandal.do("ZSCORE", "ready", made.id)
    vandal.do("ZREM", "ready", made.id)
    assert rescue_all(store) == (1, 0)
    assert vandal.do("ZSCORE", "ready", made.id) == before
    assert stored(store, made.id).record.run_at == later


def test_all_ready_jobs_come_back_when_the_whole_set_is_gone(store: RedisDriver, vandal: Vandal) -> None:
    made = records(250, idempotency_key=None)
    store.register(made)
    vandal.do("DEL", "ready")
    assert store.claim([QUEUE], 10, HOUR) == []
    assert rescue_all(store) == (250, 0)
    assert len(store.claim([QUEUE], 1000, HOUR)) == 250


def test_a_running_job_that_lost_its_lease_entry_runs_again(store: RedisDriver, vandal: Vandal) -> None:
    store.register(records(1))
    (lease,) = leases_of(store.claim([QUEUE], 1, HOUR))
    vandal.do("DEL", "lease")
    assert not store.complete([lease])[0].applied, "nobody can tell that the lease is unexpired"
    assert rescue_all(store) == (1, 0)
    assert not store.complete([lease])[0].applied
    (again,) = leases_of(store.claim([QUEUE], 1, HOUR))
    assert again.attempt == 2


@pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.CANCELLED])
def test_a_finished_job_that_is_in_no_set_can_be_pruned_again(
    store: RedisDriver, vandal: Vandal, state: State
) -> None:
    (made,) = records(1)
    store.register([made])
    if state is State.CANCELLED:
        store.cancel([made.id])
    else:
        (lease,) = leases_of(store.claim([QUEUE], 1, HOUR))
        if state is State.DONE:
            store.complete([lease])
        else:
            store.fail([failure(lease, permanent=True)])
    vandal.do("DEL", state.value)
    assert store.prune(NOTHING, {state}, 10) == 0
    assert rescue_all(store) == (0, 0)
    assert state_of(store, made.id) is state
    assert store.prune(NOTHING, {state}, 10) == 1


def test_repair_goes_in_bounded_steps_and_comes_round(store: RedisDriver, vandal: Vandal) -> None:
    made = records(450)
    store.register(made)
    lost = [made[5], made[449]]
    for each in lost:
        vandal.do("ZREM", "ready", each.id)
    steps = [store.rescue(100).ready for _ in range(6)]
    assert sum(steps) == 2
    assert steps[0] == 1
    vandal.do("ZREM", "ready", made[5].id)
    assert sum(store.rescue(100).ready for _ in range(6)) == 1


def test_repair_finds_nothing_to_do_where_nothing_is_broken(store: RedisDriver) -> None:
    store.register(records(20))
    leases = leases_of(store.claim([QUEUE], 8, HOUR))
    store.complete(leases[:2])
    store.fail([failure(leases[2], permanent=True), failure(leases[3], retry_in=HOUR)])
    store.release(leases[4:5], HOUR)
    before = store.jobs(Page(limit=1000))
    assert rescue_all(store) == (0, 0)
    assert store.jobs(Page(limit=1000)) == before


# -- Keys ------------------------------------------------------------------------------------------------


def test_a_key_whose_holder_was_deleted_is_free(store: RedisDriver, vandal: Vandal) -> None:
    (first,) = records(1, idempotency_key="a")
    store.register([first])
    vandal.delete_body(first)
    (second,) = records(1, idempotency_key="a")
    assert store.register([second])[0].created
    assert not store.register(records(1, idempotency_key="a"))[0].created
    assert [each.record.id for each in store.claim([QUEUE], 10, HOUR)] == [second.id]
    store.prune(NOTHING, {State.DEAD}, 10)
    assert not store.register(records(1, idempotency_key="a"))[0].created, "the key of the living was freed"


def test_a_job_whose_body_is_gone_and_that_is_registered_again_is_not_two_jobs(
    store: RedisDriver, vandal: Vandal
) -> None:
    (made,) = records(1)
    store.register([made])
    vandal.delete_body(made)
    assert store.claim([QUEUE], 1, HOUR) == []
    again = store.register([made])[0]
    assert (again.created, again.state) == (False, State.DEAD)
    assert counts(store) == {"dead": 1}


# -- Keys of another kind --------------------------------------------------------------------------------


def test_a_record_of_another_type_stops_nobody(store: RedisDriver, vandal: Vandal) -> None:
    made = records(3)
    store.register(made)
    vandal.do("SET", f"j:{made[0].id}", "not a hash")
    vandal.do("DEL", f"b:{made[1].id}")
    vandal.do("LPUSH", f"b:{made[1].id}", "not a string")
    leases = leases_of(store.claim([QUEUE], 10, HOUR))
    assert [lease.job_id for lease in leases] == [made[0].id, made[2].id]
    assert all(verdict.applied for verdict in store.complete(leases))
    assert counts(store) == {"done": 2, "dead": 1}


def test_a_queue_whose_keys_are_spoilt_stops_no_other_queue(
    store: RedisDriver, redis_server: RedisServer, namespace: str
) -> None:
    store.register([*records(2, queue="a"), *records(2, queue="b"), *records(2, queue="c")])
    for queue in ("a", "c"):
        store.claim([queue], 1, timedelta(milliseconds=1))
    redis_server.ask("SET", f"{{{namespace}:b}}:lease", "not a sorted set")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        store.claim(["b"], 1, HOUR)
    claimed = store.claim(["a", "b", "c"], 10, HOUR)
    assert {each.record.queue for each in claimed} == {"a", "c"}

    def others_are_rescued() -> bool:
        with pytest.raises(StoreError, match="WRONGTYPE"):
            store.rescue(100)
        ready = [store.jobs(Page(queue=queue, state=State.READY)) for queue in ("a", "c")]
        return sum(map(len, ready)) == 2

    until(others_are_rescued, "the other queues are not rescued")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "x",
        "1 2 3",
        "1 2 0 5 kind 0 0",
        "1 2 0 5 kind 99999 0\n{}",
        "1 x 0 5 kind 0 0\n{}",
        "9" * 300 + "\n{}",
    ],
)
def test_a_body_that_is_none_is_handed_over_raw(store: RedisDriver, vandal: Vandal, body: str) -> None:
    made = records(2)
    store.register(made)
    vandal.do("SET", f"b:{made[0].id}", body)
    claimed = store.claim([QUEUE], 10, HOUR)
    assert sorted(each.record.id for each in claimed) == sorted(each.id for each in made)
    verdicts = store.fail([failure(each.lease, permanent=True) for each in claimed])
    assert [verdict.state for verdict in verdicts] == [State.DEAD] * 2
    assert len(store.jobs(Page())) == 2


@pytest.mark.parametrize(
    ("field", "value"), [("attempt", "x"), ("refunded", "x"), ("due", "x"), ("due", "9" * 40)]
)
def test_a_field_that_is_no_number_stops_nobody(
    store: RedisDriver, vandal: Vandal, field: str, value: str
) -> None:
    made = records(2)
    store.register(made)
    store.release(leases_of(store.claim([QUEUE], 2, HOUR)), NOTHING)
    vandal.do("HSET", f"j:{made[0].id}", field, value)
    claimed = store.claim([QUEUE], 10, HOUR)
    assert len(claimed) == 2
    store.fail([failure(each.lease) for each in claimed])
    assert counts(store)["ready"] == 2

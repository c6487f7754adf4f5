"""How long finished jobs and their keys are kept."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobcontract.contract import Failure, State
from tests.sqlite.stores import Advance, Edit, FileStore, record

DAY = timedelta(days=1)
EVERY_STATE = (State.DONE, State.DEAD, State.CANCELLED)


@pytest.fixture
def finished(store: FileStore) -> dict[State, str]:
    """A job for each way to end, with the state as its key."""
    done, dead, cancelled = (store.driver.register([record(idempotency_key=key)])[0] for key in EVERY_STATE)
    for claimed in store.claim(2):
        if claimed.record.idempotency_key == State.DONE:
            store.driver.complete([claimed.lease])
        else:
            store.driver.fail([Failure(claimed.lease, "failed", timedelta(0), permanent=True)])
    store.driver.cancel([str(cancelled.job_id)])
    return {
        State.DONE: str(done.job_id),
        State.DEAD: str(dead.job_id),
        State.CANCELLED: str(cancelled.job_id),
    }


@pytest.mark.parametrize("state", EVERY_STATE)
def test_a_finished_job_holds_its_key_until_it_is_pruned(
    store: FileStore, finished: dict[State, str], advance: Advance, state: State
) -> None:
    assert not store.driver.register([record(idempotency_key=state)])[0].created
    advance(DAY)
    assert store.driver.prune(DAY, [state], 10) == 1
    assert store.driver.get(finished[state]) is None
    assert store.driver.register([record(idempotency_key=state)])[0].created


def test_pruning_spares_what_is_younger_and_what_is_in_another_state(
    store: FileStore, finished: dict[State, str], advance: Advance
) -> None:
    assert store.driver.prune(DAY, EVERY_STATE, 10) == 0
    advance(DAY)
    assert store.driver.prune(2 * DAY, EVERY_STATE, 10) == 0
    assert store.driver.prune(DAY, [State.CANCELLED], 10) == 1
    assert store.driver.get(finished[State.DONE]) is not None
    assert store.driver.get(finished[State.DEAD]) is not None


def test_pruning_is_bounded_across_states(store: FileStore, finished: dict[State, str]) -> None:
    assert [store.driver.prune(timedelta(0), EVERY_STATE, 2) for _ in range(3)] == [2, 1, 0]
    assert len(finished) == 3


def test_pruning_frees_no_key_that_another_job_has_taken(store: FileStore, edit: Edit) -> None:
    (old,) = store.add(idempotency_key="key")
    store.driver.cancel([old])
    edit("DELETE FROM jobcontract_keys")  # by hand
    store.add(idempotency_key="key")
    assert store.driver.prune(timedelta(0), [State.CANCELLED], 10) == 1
    assert not store.driver.register([record(idempotency_key="key")])[0].created


def test_rescue_drops_what_is_past_the_retention_but_no_dead_job(
    store: FileStore, finished: dict[State, str], advance: Advance
) -> None:
    keeper = FileStore(store.path, retention="2d")
    advance(DAY)
    keeper.driver.rescue(10)
    assert all(keeper.driver.get(job_id) is not None for job_id in finished.values())
    advance(2 * DAY)
    keeper.driver.rescue(10)
    kept = {state for state, job_id in finished.items() if keeper.driver.get(job_id) is not None}
    assert kept == {State.DEAD}


def test_a_retention_of_nothing_is_for_ever(
    store: FileStore, finished: dict[State, str], advance: Advance
) -> None:
    keeper = FileStore(store.path, retention="0")
    advance(3650 * DAY)
    keeper.driver.rescue(10)
    assert all(keeper.driver.get(job_id) is not None for job_id in finished.values())

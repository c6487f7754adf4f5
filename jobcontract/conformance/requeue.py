"""`Requeue`: an operator gives a dead job another life."""

from __future__ import annotations

from uuid import uuid4

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import HOUR, Store, failure, ids_of, job, jobs
from jobcontract.contract import State
from jobcontract.errors import Unsupported


class RequeueChapter(Chapter):
    """Feature "requeue"."""

    @needs("requeue")
    def test_a_requeued_job_comes_again_with_all_that_it_had(self, store: Store) -> None:
        made = job(input_ref={"a": [1.0, 1e22, "é"]}, headers={"tenant": "acme"}, max_attempts=1)
        store.register(made)
        first = store.claim_one()
        store.driver.fail([failure(first.lease)])
        assert store.requeueing.requeue([str(made.id)]) == [State.READY]
        again = store.claim_one()
        assert again.record._replace(run_at=None) == first.record._replace(run_at=None)

    @needs("requeue")
    def test_all_its_attempts_can_be_spent_again(self, store: Store) -> None:
        """The attempt number goes on growing, for it is a fencing number."""
        made = job(max_attempts=2)
        store.register(made)
        for life in range(3):
            states: list[State | None] = []
            for spent in (1, 2):
                lease = store.claim_one().lease
                assert (lease.attempt, lease.attempt - lease.refunded) == (2 * life + spent, spent)
                states.append(store.driver.fail([failure(lease)])[0].state)
            assert states == [State.READY, State.DEAD]
            assert store.requeueing.requeue([str(made.id)]) == [State.READY]

    @needs("requeue")
    def test_its_attempts_can_run_out_again(self, store: Store) -> None:
        lease = store.expired(max_attempts=1)[0]
        store.assert_rescued(dead=1)
        store.requeueing.requeue([lease.job_id])
        store.run_out([store.claim_one().lease])
        store.assert_rescued(dead=1)

    @needs("requeue", "cancel")
    def test_a_cancelled_job_can_be_requeued(self, store: Store) -> None:
        made = store.into(State.CANCELLED)
        assert store.requeueing.requeue([str(made.id)]) == [State.READY]
        assert ids_of(store.claim_all(1)) == [str(made.id)]

    @needs("requeue", "scheduling")
    def test_a_future_job_becomes_due(self, store: Store) -> None:
        made = job(run_at=store.now() + HOUR)
        store.register(made)
        assert store.requeueing.requeue([str(made.id)]) == [State.READY]
        assert ids_of(store.claim_all(1)) == [str(made.id)]

    @needs("requeue")
    def test_a_job_that_waits_for_its_next_attempt_becomes_due(self, store: Store) -> None:
        made = store.into(State.READY)
        store.driver.fail([failure(store.claim_one().lease, retry_in=HOUR)])
        assert store.requeueing.requeue([str(made.id)]) == [State.READY]
        assert ids_of(store.claim_all(1)) == [str(made.id)]

    @needs("requeue")
    def test_a_running_job_cant_be_requeued(self, store: Store) -> None:
        made = store.into(State.READY)
        lease = store.claim_one().lease
        before = store.see()
        assert store.requeueing.requeue([str(made.id)]) == [State.RUNNING]
        assert store.see() == before
        assert store.driver.complete([lease])[0].applied

    @needs("requeue")
    def test_a_done_job_cant_be_requeued(self, store: Store) -> None:
        made = store.into(State.DONE)
        before = store.see()
        assert store.requeueing.requeue([str(made.id)]) == [State.DONE]
        assert store.see() == before
        assert store.claim(10) == []

    @needs("requeue")
    def test_requeueing_an_unknown_job_is_answered_with_none(self, store: Store) -> None:
        assert store.requeueing.requeue([str(uuid4())]) == [None]

    @needs("requeue")
    def test_requeues_are_answered_in_the_order_of_the_ids(self, store: Store) -> None:
        done, dead, running = (store.into(state) for state in (State.DONE, State.DEAD, State.RUNNING))
        ready = jobs(1)[0]
        store.register(ready)
        ids = [str(running.id), str(dead.id), str(uuid4()), str(ready.id), str(done.id)]
        states = [State.RUNNING, State.READY, None, State.READY, State.DONE]
        assert store.requeueing.requeue(ids) == states
        assert sorted(ids_of(store.claim_all(2))) == sorted([str(dead.id), str(ready.id)])

    @lacks("requeue")
    def test_without_requeueing_it_is_refused(self, store: Store) -> None:
        made = store.into(State.DEAD)
        with pytest.raises(Unsupported, match="requeue"):
            store.backend.requeue(made.id)
        assert store.claim(10) == []

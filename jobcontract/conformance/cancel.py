"""`Cancellation`: a job that waits is never run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar
from uuid import uuid4

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import HOUR, Store, failure, ids_of, job, jobs
from jobcontract.contract import ClaimedRecord, State
from jobcontract.errors import Unsupported

Found = TypeVar("Found")


class CancelChapter(Chapter):
    """Feature "cancel"."""

    @needs("cancel")
    def test_a_cancelled_job_is_never_claimed(self, store: Store) -> None:
        made = jobs(3)
        store.register(*made)
        assert store.cancellation.cancel([str(made[1].id)]) == [State.CANCELLED]
        assert ids_of(store.claim_all(2)) == [str(made[0].id), str(made[2].id)]
        assert store.claim(10) == []

    @needs("cancel")
    def test_cancelling_twice_is_fine(self, store: Store) -> None:
        made = store.into(State.CANCELLED)
        assert store.cancellation.cancel([str(made.id)]) == [State.CANCELLED]

    @needs("cancel", "scheduling")
    def test_a_future_job_can_be_cancelled(self, store: Store) -> None:
        made = job(run_at=store.now() + HOUR)
        store.register(made)
        assert store.cancellation.cancel([str(made.id)]) == [State.CANCELLED]

    @needs("cancel")
    def test_a_job_that_waits_for_its_next_attempt_can_be_cancelled(self, store: Store) -> None:
        made = store.into(State.READY)
        store.driver.fail([failure(store.claim_one().lease, retry_in=HOUR)])
        assert store.cancellation.cancel([str(made.id)]) == [State.CANCELLED]

    @needs("cancel")
    def test_a_running_job_cant_be_cancelled(self, store: Store) -> None:
        made = store.into(State.READY)
        lease = store.claim_one().lease
        before = store.see()
        assert store.cancellation.cancel([str(made.id)]) == [State.RUNNING]
        assert store.see() == before
        assert store.driver.complete([lease])[0].applied

    @needs("cancel")
    @pytest.mark.parametrize("state", [State.DONE, State.DEAD])
    def test_a_finished_job_cant_be_cancelled(self, store: Store, state: State) -> None:
        made = store.into(state)
        before = store.see()
        assert store.cancellation.cancel([str(made.id)]) == [state]
        assert store.see() == before

    @needs("cancel")
    def test_cancelling_an_unknown_job_is_answered_with_none(self, store: Store) -> None:
        assert store.cancellation.cancel([str(uuid4())]) == [None]

    @needs("cancel")
    def test_cancellations_are_answered_in_the_order_of_the_ids(self, store: Store) -> None:
        done, running = store.into(State.DONE), store.into(State.RUNNING)
        first, second = jobs(2)
        store.register(first, second)
        ids = [str(second.id), str(uuid4()), str(done.id), str(first.id), str(running.id)]
        states = [State.CANCELLED, None, State.DONE, State.CANCELLED, State.RUNNING]
        assert store.cancellation.cancel(ids) == states

    @needs("cancel")
    def test_a_claim_and_a_cancellation_at_once_have_one_winner(self, store: Store) -> None:
        client = store.another_client()
        for made in jobs(10):
            store.register(made)
            cancelled: list[State | None] = []
            claimed: list[ClaimedRecord] = []
            store.at_once(
                partial(_into, cancelled, partial(store.cancellation.cancel, [str(made.id)])),
                partial(_into, claimed, partial(store.claim, 1, client=client)),
            )
            # Neither may win where the claim skipped the row that the cancellation had locked.
            assert not (cancelled == [State.CANCELLED] and claimed), "a cancelled job was claimed"
            store.claim(10)

    @lacks("cancel")
    def test_without_cancellation_it_is_refused(self, store: Store) -> None:
        made = job()
        store.register(made)
        with pytest.raises(Unsupported, match="cancel"):
            store.backend.cancel(made.id)
        assert ids_of(store.claim_all(1)) == [str(made.id)]


def _into(found: list[Found], look: Callable[[], list[Found]]) -> None:
    found += look()

"""`Pruning`: finished jobs are forgotten, others never."""

from __future__ import annotations

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import HOUR, NOTHING, Store, failure, job, jobs, leases_of
from jobcontract.contract import State
from jobcontract.errors import Unsupported

FINISHED = {State.DONE, State.DEAD, State.CANCELLED}


class PruneChapter(Chapter):
    """Feature "prune"."""

    @needs("prune")
    def test_an_empty_store_has_nothing_to_forget(self, store: Store) -> None:
        assert store.pruning.prune(NOTHING, FINISHED, 100) == 0

    @needs("prune")
    @pytest.mark.parametrize("state", [State.DONE, State.DEAD])
    def test_a_forgotten_job_leaves_no_trace(self, store: Store, state: State) -> None:
        made = store.into(state)
        assert store.pruning.prune(NOTHING, {state}, 100) == 1
        store.assert_nothing_left(made)
        assert store.pruning.prune(NOTHING, {state}, 100) == 0

    @needs("prune", "cancel")
    def test_a_cancelled_job_can_be_forgotten(self, store: Store) -> None:
        made = store.into(State.CANCELLED)
        assert store.pruning.prune(NOTHING, {State.CANCELLED}, 100) == 1
        store.assert_nothing_left(made)

    @needs("prune")
    def test_only_jobs_of_the_states_are_forgotten(self, store: Store) -> None:
        store.into(State.DONE)
        store.into(State.DEAD)
        pruning = store.pruning
        assert pruning.prune(NOTHING, {State.CANCELLED}, 100) == 0
        assert pruning.prune(NOTHING, {State.DONE}, 100) == 1
        assert pruning.prune(NOTHING, {State.DONE}, 100) == 0
        assert pruning.prune(NOTHING, {State.DEAD}, 100) == 1

    @needs("prune")
    def test_jobs_that_are_not_finished_are_never_forgotten(self, store: Store) -> None:
        store.register(*jobs(3))
        running, waiting = leases_of(store.claim_all(2))
        store.driver.fail([failure(waiting, retry_in=HOUR)])
        before = store.see()
        assert store.pruning.prune(NOTHING, FINISHED, 100) == 0
        assert store.see() == before
        assert store.driver.complete([running])[0].applied
        assert len(store.claim_all(1)) == 1

    @needs("prune")
    def test_jobs_that_finished_lately_are_kept(self, store: Store) -> None:
        store.into(State.DONE)
        store.into(State.DEAD)
        before = store.see()
        assert store.pruning.prune(HOUR, FINISHED, 100) == 0
        assert store.see() == before

    @needs("prune")
    def test_the_age_counts_from_the_end_and_not_from_the_beginning(self, store: Store) -> None:
        old = job(run_at=store.now() - 2 * HOUR) if store.has("scheduling") else job()
        store.register(old)
        store.driver.complete([store.claim_one().lease])
        assert store.pruning.prune(HOUR, FINISHED, 100) == 0

    @needs("prune")
    def test_at_most_so_many_are_forgotten(self, store: Store) -> None:
        store.register(*jobs(5))
        leases = leases_of(store.claim_all(5))
        store.driver.complete(leases[:3])
        store.driver.fail([failure(lease, permanent=True) for lease in leases[3:]])
        counts = [store.pruning.prune(NOTHING, FINISHED, 2) for _ in range(4)]
        assert counts == [2, 2, 1, 0]

    @needs("prune")
    def test_jobs_that_are_kept_do_not_hide_those_behind(self, store: Store) -> None:
        """A full batch of what must stay is no reason to stop."""
        store.register(*jobs(6))
        leases = leases_of(store.claim_all(6))
        store.driver.complete(leases[:4])
        store.driver.fail([failure(lease, permanent=True) for lease in leases[4:]])
        assert store.pruning.prune(NOTHING, {State.DEAD}, 2) == 2

    @lacks("prune")
    def test_without_pruning_it_is_refused(self, store: Store) -> None:
        store.into(State.DONE)
        with pytest.raises(Unsupported, match="prune"):
            store.backend.prune(NOTHING)

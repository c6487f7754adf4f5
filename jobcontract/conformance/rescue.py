"""`Driver.rescue`: what a killed worker held is claimable again."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import needs
from jobcontract.conformance.store import NOTHING, Store, failure, ids_of, job, jobs, leases_of
from jobcontract.contract import State


class RescueChapter(Chapter):
    """What becomes of a lease that ran out."""

    def test_nothing_to_rescue(self, store: Store) -> None:
        assert tuple(store.driver.rescue(100)) == (0, 0)

    def test_a_job_whose_lease_ran_out_comes_again(self, store: Store) -> None:
        lease = store.expired(max_attempts=2)[0]
        store.assert_rescued(ready=1)
        again = store.claim_one().lease
        assert (again.job_id, again.attempt, again.refunded) == (lease.job_id, 2, 0)
        assert again.token != lease.token
        assert store.driver.complete([again])[0].applied

    def test_it_dies_of_it_when_its_attempts_are_spent(self, store: Store) -> None:
        lease = store.expired(max_attempts=1)[0]
        store.assert_rescued(dead=1)
        assert store.claim(10) == []
        if store.has("lookup"):
            assert store.stored(lease.job_id).state is State.DEAD
            assert store.stored(lease.job_id).last_error

    def test_released_attempts_do_not_count_towards_death(self, store: Store) -> None:
        store.register(job(max_attempts=1))
        store.driver.release([store.claim_one().lease], NOTHING)
        store.run_out([store.claim_one().lease])
        store.assert_rescued(dead=1)

    def test_failures_and_expiries_spend_attempts_alike(self, store: Store) -> None:
        store.register(job(max_attempts=2))
        store.driver.fail([failure(store.claim_one().lease)])
        store.run_out([store.claim_one().lease])
        store.assert_rescued(dead=1)

    def test_a_lease_that_runs_is_left_alone(self, store: Store) -> None:
        store.register(*jobs(3))
        leases = leases_of(store.claim_all(3))
        store.assert_rescued()
        assert store.claim(10) == []
        assert all(verdict.applied for verdict in store.driver.complete(leases))

    def test_jobs_that_were_settled_are_left_alone(self, store: Store) -> None:
        """Rescue goes by the lease, and a settled job has none, however old its last one is."""
        store.register(*jobs(4))
        done, ready, gone, held = leases_of(store.claim_all(4))
        store.driver.complete([done])
        store.driver.fail([failure(ready, retry_in=timedelta(hours=1)), failure(gone, permanent=True)])
        store.run_out([held])
        before = store.see()
        store.assert_rescued(ready=1)
        assert ids_of(store.claim_all(1)) == [held.job_id]
        assert store.claim(10) == []
        after = store.see()
        assert {key: stored for key, stored in before.jobs.items() if key != held.job_id} == {
            key: stored for key, stored in after.jobs.items() if key != held.job_id
        }

    @needs("timed_lease")
    def test_a_rescue_takes_at_most_its_limit(self, store: Store) -> None:
        store.expired(5, max_attempts=2)
        counts = [store.driver.rescue(2) for _ in range(4)]
        assert [sum(count) for count in counts] == [2, 2, 1, 0]
        assert len(store.claim_all(5)) == 5

    @needs("timed_lease")
    def test_the_living_and_the_dying_are_told_apart_in_one_round(self, store: Store) -> None:
        store.register(*jobs(3, max_attempts=1), *jobs(2, max_attempts=2))
        store.run_out(leases_of(store.claim_all(5)))
        rescued = store.driver.rescue(100)
        assert (rescued.ready, rescued.dead) == (2, 3)
        assert len(store.claim_all(2)) == 2

    def test_every_queue_is_rescued(self, store: Store) -> None:
        store.register(job(queue="a"), job(queue="b"))
        store.run_out(leases_of(store.claim_all(2, queues=["a", "b"])))
        store.assert_rescued(ready=2)
        assert len(store.claim_all(2, queues=["a", "b"])) == 2

    def test_many_rescuers_rescue_each_job_once(self, store: Store) -> None:
        leases = store.expired(100, max_attempts=2)
        clients = [store.another_client() for _ in range(4)]
        rounds = store.at_once(*(partial(store.rescue_all, client) for client in clients * 2))
        assert sum(ready for ready, _ in rounds) == (100 if store.has("timed_lease") else 0)
        assert sum(dead for _, dead in rounds) == 0
        claimed = store.claim_all(100)
        assert sorted(ids_of(claimed)) == sorted(lease.job_id for lease in leases)
        assert {each.lease.attempt for each in claimed} == {2}

    @needs("pause")
    def test_a_paused_queue_is_rescued_too(self, store: Store) -> None:
        store.expired()
        store.pausing.pause("default")
        store.assert_rescued(ready=1)
        assert store.claim(10) == []

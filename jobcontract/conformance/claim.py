"""`Driver.claim`: due jobs, each under a token of its own, in their order."""

from __future__ import annotations

from datetime import timedelta

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import needs
from jobcontract.conformance.store import HOUR, NOTHING, Store, failure, ids_of, job, jobs, leases_of


class ClaimChapter(Chapter):
    """What a claim takes and what it leaves."""

    def test_an_empty_store_gives_nothing(self, store: Store) -> None:
        assert store.claim(10) == []
        assert store.claim(10, queues=["never.seen", "nor.this"]) == []

    def test_a_claim_takes_at_most_its_limit(self, store: Store) -> None:
        store.register(*jobs(5))
        first = store.claim(2)
        assert 1 <= len(first) <= 2
        rest = store.claim_all(5 - len(first))
        assert len(set(ids_of(first + rest))) == 5

    def test_a_claim_takes_what_there_is(self, store: Store) -> None:
        made = jobs(3)
        store.register(*made)
        assert sorted(ids_of(store.claim_all(3))) == sorted(str(each.id) for each in made)
        assert store.claim(1000) == []

    def test_a_claim_looks_into_each_of_its_queues_and_no_other(self, store: Store) -> None:
        store.register(job(queue="a"), job(queue="b"), job(queue="c"))
        claimed = store.claim_all(2, queues=["a", "never.seen", "c"])
        assert {each.record.queue for each in claimed} == {"a", "c"}
        assert store.claim(10, queues=["a", "c"]) == []

    def test_one_queue_never_hides_another(self, store: Store) -> None:
        store.register(*jobs(20, queue="busy"), job(queue="quiet"))
        claimed = store.claim_all(21, queues=["busy", "quiet"])
        assert [each.record.queue for each in claimed].count("quiet") == 1

    def test_a_lease_names_its_job(self, store: Store) -> None:
        made = job(queue="a")
        store.register(made)
        lease, record = store.claim_one(queues=["a"])
        assert (lease.job_id, lease.queue) == (str(made.id), "a")
        assert (record.id, record.queue) == (str(made.id), "a")

    def test_the_first_attempt_is_number_one(self, store: Store) -> None:
        store.register(job())
        lease = store.claim_one().lease
        assert (lease.attempt, lease.refunded) == (1, 0)

    def test_the_attempt_grows_by_one_with_each_claim(self, store: Store) -> None:
        store.register(job(max_attempts=10))
        for attempt in range(1, 6):
            lease = store.claim_one().lease
            assert lease.attempt == attempt
            assert store.driver.fail([failure(lease)])[0].applied

    def test_no_two_claims_share_a_token(self, store: Store) -> None:
        store.register(*jobs(100))
        first = leases_of(store.claim_all(100))
        store.driver.release(first, NOTHING)
        second = leases_of(store.claim_all(100))
        tokens = {lease.token for lease in first + second}
        assert len(tokens) == 200
        assert all(tokens)

    @needs("timed_lease")
    def test_a_lease_ends_its_length_after_the_claim_by_the_stores_clock(self, store: Store) -> None:
        length = min(timedelta(minutes=7), store.capabilities.lease.longest)
        store.register(job())
        before = store.now()
        expires_at = store.claim_all(1, lease=length)[0].lease.expires_at
        after = store.now()
        assert expires_at.utcoffset() == NOTHING
        assert before + length - store.resolution <= expires_at <= after + length + store.resolution

    @needs("timed_lease")
    def test_the_longest_lease_can_be_had(self, store: Store) -> None:
        store.register(job())
        longest = store.capabilities.lease.longest
        lease = store.claim_all(1, lease=longest)[0].lease
        assert lease.expires_at > store.now() + longest - HOUR
        assert store.driver.complete([lease])[0].applied

    def test_a_claimed_job_is_nobody_elses(self, store: Store) -> None:
        store.register(*jobs(3))
        store.claim_all(3)
        assert store.claim(10) == []
        assert store.claim(10, client=store.another_client()) == []

    @needs("timed_lease")
    def test_a_claim_outlives_its_client(self, store: Store) -> None:
        """It was committed before it was handed over: whoever has the lease can settle it."""
        if not store.harness.several_clients:
            return
        store.register(job())
        client = store.another_client()
        lease = store.claim_one(client=client).lease
        client.close()
        assert store.claim(10) == []
        assert store.driver.complete([lease])[0].applied

    # Order ------------------------------------------------------------------------------------------------

    def test_jobs_come_in_the_order_of_their_registration(self, store: Store) -> None:
        made = jobs(30)
        for each in made:
            store.register(each)
        assert ids_of(store.claim_all(30)) == [str(each.id) for each in made]

    @needs("scheduling")
    def test_jobs_come_by_run_at_then_id(self, store: Store) -> None:
        hour_ago = (store.now() - HOUR).replace(microsecond=0)
        made = [job(run_at=hour_ago + timedelta(minutes=minutes)) for minutes in (30, 10, 20, 10, 30, 20)]
        store.register(*made)
        ordered = sorted(made, key=lambda each: (each.run_at, each.id))
        assert ids_of(store.claim_all(6)) == [str(each.id) for each in ordered]

    @needs("scheduling", "priorities")
    def test_jobs_come_by_priority_before_run_at(self, store: Store) -> None:
        hour_ago = (store.now() - HOUR).replace(microsecond=0)
        top = store.capabilities.priority_levels - 1
        made = [
            job(priority=priority, run_at=hour_ago + timedelta(minutes=minutes))
            for priority, minutes in ((0, 1), (top, 3), (0, 2), (top, 2), (1, 1))
        ]
        store.register(*made)
        ordered = sorted(made, key=lambda each: (-each.priority, each.run_at, each.id))
        assert ids_of(store.claim_all(5)) == [str(each.id) for each in ordered]

    @needs("scheduling", "priorities")
    def test_the_order_holds_across_queues(self, store: Store) -> None:
        hour_ago = (store.now() - HOUR).replace(microsecond=0)
        made = [
            job(queue=queue, priority=priority, run_at=hour_ago + timedelta(minutes=minutes))
            for queue, priority, minutes in (("a", 0, 2), ("b", 1, 3), ("a", 1, 1), ("b", 0, 1))
        ]
        store.register(*made)
        ordered = sorted(made, key=lambda each: (-each.priority, each.run_at, each.id))
        assert ids_of(store.claim_all(4, queues=["a", "b"])) == [str(each.id) for each in ordered]

"""Whole batches through `Backend`: cut to what the store takes, answered one by one."""

from __future__ import annotations

import random

from jobcontract.backend import Backend
from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import needs
from jobcontract.conformance.store import Store, job, jobs
from jobcontract.contract import Claim, State


class BatchesChapter(Chapter):
    """Many at once, as users do it."""

    def test_a_thousand_jobs_go_all_the_way(self, store: Store) -> None:
        _all_the_way(store, 1000)

    def test_a_large_batch_goes_all_the_way(self, store: Store) -> None:
        _all_the_way(store, store.harness.large_batch)

    def test_no_batch_is_no_work(self, store: Store) -> None:
        assert store.backend.register_many([]) == []
        assert store.backend.complete_many([]) == []
        assert store.backend.fail_many([]) == []
        assert store.backend.extend_many([]) == []
        assert store.backend.release([]) == []

    def test_a_claim_that_is_given_twice_is_used_once(self, store: Store) -> None:
        store.register(*jobs(2))
        a, b = _claim(store.backend, 2)
        applied = [verdict.applied for verdict in store.backend.complete_many([a, b, a])]
        assert applied == [True, True, False]

    def test_a_stale_claim_does_not_stand_in_for_the_current_one(self, store: Store) -> None:
        """A worker that lost a job and claimed it again may settle both claims in one call."""
        store.register(job())
        stale = _claim(store.backend, 1)[0]
        store.backend.release([stale])
        current = _claim(store.backend, 1)[0]
        applied = [verdict.applied for verdict in store.backend.complete_many([stale, current])]
        assert applied == [False, True]

    @needs("deduplication")
    def test_a_job_that_is_given_twice_is_stored_once(self, store: Store) -> None:
        a, b = jobs(2)
        answers = store.backend.register_many([a, b, a])
        assert [answer.created for answer in answers] == [True, True, False]
        assert answers[2].job_id == a.id
        assert len(store.claim_all(2)) == 2

    @needs("deduplication")
    def test_a_duplicate_in_the_middle_of_a_large_batch(self, store: Store) -> None:
        count = min(store.capabilities.max_register_batch, 1000) + 100
        holder = job(idempotency_key="key")
        store.register(holder)
        made = jobs(count)
        made[count // 2] = job(idempotency_key="key")
        answers = store.backend.register_many(made)
        assert [position for position, answer in enumerate(answers) if not answer.created] == [count // 2]
        assert answers[count // 2].job_id == holder.id

    @needs("lookup", "cancel", "requeue")
    def test_doors_take_large_batches_and_repetitions(self, store: Store) -> None:
        made = jobs(1500)
        store.backend.register_many(made)
        identifiers = [each.id for each in made] + [made[0].id]
        assert store.backend.cancel_many(identifiers) == [State.CANCELLED] * 1501
        assert store.backend.requeue_many(identifiers) == [State.READY] * 1501


def _claim(backend: Backend, count: int) -> list[Claim]:
    claims: list[Claim] = []
    for _ in range(1000):
        claims += backend.claim(limit=min(count - len(claims), 1000))
        if len(claims) == count:
            break
    assert len(claims) == count
    return claims


def _all_the_way(store: Store, count: int) -> None:
    made = jobs(count)
    answers = store.backend.register_many(made)
    assert [answer.job_id for answer in answers] == [each.id for each in made]
    assert all(answer.created for answer in answers)
    claims = _claim(store.backend, count)
    assert len({claim.job.id for claim in claims}) == count
    assert len({claim.token for claim in claims}) == count
    shuffled = random.Random(7).sample(claims, count)
    lost = shuffled[count // 3]
    store.backend.complete(lost)
    verdicts = store.backend.complete_many(shuffled)
    assert [position for position, verdict in enumerate(verdicts) if not verdict.applied] == [count // 3]
    assert store.claim(10) == []

"""Retries and releases with a delay: never early, never lost, never behind each other."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from jobcontract import Backend, Job
from jobcontract.contract import Failure
from tests.rabbitmq.stores import SECOND, claim_all, claim_one, jobs, numbers, until


def test_a_short_delay_does_not_wait_behind_a_long_one(store: Backend) -> None:
    store.register_many(jobs(3))
    claims = claim_all(store, 3)
    for claim, seconds in zip(claims, (3600, 4, 1), strict=True):
        store.fail(claim, "no", retry_in=seconds * SECOND)
    assert numbers(claim_all(store, 1)) == [2]
    assert numbers(claim_all(store, 1)) == [1]
    assert store.claim() == []


@pytest.mark.parametrize("delay", [timedelta(milliseconds=1), SECOND, timedelta(seconds=2.3)], ids=str)
def test_a_job_comes_back_when_its_delay_is_over_and_not_before(store: Backend, delay: timedelta) -> None:
    store.register(Job(kind="work"))
    claim = claim_one(store)
    started = time.monotonic()
    verdict = store.fail(claim, "no", retry_in=delay)
    assert store.claim() == []
    assert store.wait(timeout=20 * SECOND)
    again = claim_one(store)
    assert time.monotonic() - started >= delay.total_seconds()
    assert again.job.run_at is not None
    assert verdict.at is not None
    assert abs(again.job.run_at - verdict.at) < timedelta(milliseconds=1)
    assert again.attempt == 2


def test_a_release_may_wait_too_and_spends_nothing(store: Backend) -> None:
    store.register(Job(kind="work", max_attempts=1))
    store.release([claim_one(store)], delay=SECOND)
    assert store.claim() == []
    claim = claim_one(store)
    assert (claim.attempt, claim.spent) == (2, 1)


def test_the_longest_delay_is_taken(store: Backend) -> None:
    store.register(Job(kind="work"))
    assert store.fail(claim_one(store), "no", retry_in=timedelta(days=3650)).applied
    assert store.claim() == []


def test_a_delay_keeps_the_priority(store: Backend) -> None:
    store.register_many([Job(kind="urgent", priority=2), *jobs(2)])
    urgent, *_ = claim_all(store, 1)
    store.fail(urgent, "no", retry_in=SECOND)
    until(lambda: store.wait(timeout=3 * SECOND), "nothing came")
    time_is_over = time.monotonic() + 1.5
    while time.monotonic() < time_is_over:
        store.wait(timeout=SECOND)
    assert [claim.job.kind for claim in claim_all(store, 3)] == ["urgent", "work", "work"]


def test_ten_thousand_retries_that_are_due_at_once_all_come(store: Backend) -> None:
    count = 10_000
    store.register_many(jobs(count, max_attempts=2))
    failures: list[Failure] = []
    claimed = 0
    due = time.monotonic() + 20
    while claimed < count:
        claims = store.claim(limit=1000)
        claimed += len(claims)
        left = max(1.0, due - time.monotonic())
        failures = [store.failure(claim, "no", retry_in=timedelta(seconds=left)) for claim in claims]
        assert all(verdict.state == "ready" for verdict in store.fail_many(failures))
    seen: set[object] = set()
    while len(seen) < count:
        claims = until(lambda: store.claim(limit=1000), f"only {len(seen)} of {count} came back")
        assert {claim.attempt for claim in claims} == {2}
        seen.update(numbers(claims))
        assert all(verdict.applied for verdict in store.complete_many(claims))
    assert store.claim() == []

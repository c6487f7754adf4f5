"""Jobs of the future: never before their time, by the store's clock, and soon after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import HOUR, Store, ids_of, job, jobs
from jobcontract.contract import LATEST_RUN_AT
from jobcontract.errors import Unsupported

DAY = timedelta(days=1)


class ScheduleChapter(Chapter):
    """Feature "scheduling"."""

    @needs("scheduling")
    def test_a_future_job_is_not_claimed(self, store: Store) -> None:
        future = job(run_at=store.now() + HOUR)
        registration = store.register(future)[0]
        assert registration.created
        assert store.claim(10) == []

    @needs("scheduling")
    def test_a_future_job_is_claimed_when_its_time_has_come_and_not_before(self, store: Store) -> None:
        run_at = store.now() + max(2 * store.resolution, timedelta(milliseconds=100))
        store.register(job(run_at=run_at))
        lease = store.claim_one().lease
        claimed_at = lease.expires_at - store.long_lease
        assert claimed_at >= run_at - store.resolution, f"claimed at {claimed_at}, due at {run_at}"

    @needs("scheduling")
    def test_future_jobs_of_better_priority_do_not_hide_a_due_one(self, store: Store) -> None:
        top = store.capabilities.priority_levels - 1
        due = job(priority=0)
        store.register(*jobs(50, priority=top, run_at=store.now() + HOUR), due)
        assert ids_of(store.claim_all(1)) == [str(due.id)]
        assert store.claim(10) == []

    @needs("scheduling")
    def test_a_job_of_the_past_is_due(self, store: Store) -> None:
        made = [job(run_at=store.now() - HOUR), job(run_at=datetime(1970, 1, 1, tzinfo=UTC))]
        store.register(*made)
        assert ids_of(store.claim_all(2)) == [str(made[1].id), str(made[0].id)]

    @needs("scheduling")
    def test_a_job_of_the_far_future_is_kept_or_refused(self, store: Store) -> None:
        scheduling = store.capabilities.scheduling
        assert scheduling is not None
        far = job(run_at=LATEST_RUN_AT - DAY)
        if scheduling.longest is None:
            assert store.backend.register(far).created
            assert store.claim(10) == []
            return
        with pytest.raises(Unsupported):
            store.backend.register(far)
        store.assert_nothing_left(far)

    @needs("scheduling")
    @pytest.mark.parametrize("minutes", [5, -5], ids=["ahead", "behind"])
    def test_a_run_at_does_not_ask_the_clients_clock(self, store: Store, minutes: int) -> None:
        now = store.now()
        in_two_minutes, two_minutes_ago = timedelta(minutes=2), timedelta(minutes=-2)
        future, past = job(run_at=now + in_two_minutes), job(run_at=now + two_minutes_ago)
        with store.client_clock(timedelta(minutes=minutes)):
            present = job()
            store.register(future, past, present)
            assert sorted(ids_of(store.claim_all(2))) == sorted([str(past.id), str(present.id)])
            assert store.claim(10) == []

    @lacks("scheduling")
    def test_without_scheduling_a_run_at_is_refused(self, store: Store) -> None:
        future = job(run_at=datetime(2099, 1, 1, tzinfo=UTC))
        with pytest.raises(Unsupported, match="run_at"):
            store.backend.register(future)
        with pytest.raises(Unsupported, match="run_at"):
            store.backend.register_many([job(), future])
        store.assert_nothing_left(future)

"""`Statistics`: every queue in numbers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import HOUR, Store, failure, job, jobs, leases_of
from jobcontract.errors import Unsupported
from jobcontract.side_doors import QueueStats


class StatsChapter(Chapter):
    """Feature "stats"."""

    @needs("stats")
    def test_an_empty_store_has_no_queues(self, store: Store) -> None:
        assert store.statistics.stats() == []

    @needs("stats")
    def test_queues_come_by_name(self, store: Store) -> None:
        store.register(*(job(queue=queue) for queue in ("b", "default", "a", "a.b")))
        assert [row.queue for row in store.statistics.stats()] == ["a", "a.b", "b", "default"]

    @needs("stats")
    def test_jobs_are_counted_by_what_they_do(self, store: Store) -> None:
        store.register(*jobs(3), job(queue="other"))
        store.register(*jobs(4, queue="a"))
        a, b, c, _ = leases_of(store.claim_all(4, queues=["a"]))
        store.driver.complete([a])
        store.driver.fail([failure(b, permanent=True), failure(c, retry_in=HOUR)])
        row, other = _row(store, "a"), _row(store, "other")
        assert (row.ready, row.scheduled, row.running, row.expired, row.dead) == (0, 1, 1, 0, 1)
        assert row.done in (1, None)
        assert (other.ready, other.scheduled, other.running, other.dead) == (1, 0, 0, 0)
        assert _row(store, "default").ready == 3

    @needs("stats", "scheduling")
    def test_a_future_job_is_scheduled_and_not_ready(self, store: Store) -> None:
        store.register(job(run_at=store.now() + HOUR), job())
        row = _row(store, "default")
        assert (row.ready, row.scheduled) == (1, 1)

    @needs("stats", "timed_lease")
    def test_a_lease_that_ran_out_is_counted_until_it_is_rescued(self, store: Store) -> None:
        store.expired(2)
        row = _row(store, "default")
        assert (row.running, row.expired) == (2, 2)
        store.assert_rescued(ready=2)
        row = _row(store, "default")
        assert (row.ready, row.running, row.expired) == (2, 0, 0)

    @needs("stats", "cancel")
    def test_cancelled_jobs_are_counted(self, store: Store) -> None:
        made = jobs(2)
        store.register(*made)
        store.cancellation.cancel([str(made[0].id)])
        row = _row(store, "default")
        assert row.ready == 1
        assert row.cancelled in (1, None)

    @needs("stats", "scheduling")
    def test_the_oldest_ready_job_is_as_old_as_it_has_been_due(self, store: Store) -> None:
        store.register(job(run_at=store.now() - HOUR), job(), job(run_at=store.now() + 2 * HOUR))
        oldest = _row(store, "default").oldest_ready
        assert oldest is not None
        assert HOUR - store.resolution <= oldest < HOUR + timedelta(minutes=30)

    @needs("stats")
    def test_without_a_ready_job_none_is_the_oldest(self, store: Store) -> None:
        store.register(job())
        store.claim_one()
        assert _row(store, "default").oldest_ready is None

    @needs("stats", "pause")
    def test_a_paused_queue_shows_its_backlog(self, store: Store) -> None:
        store.register(job())
        assert (_row(store, "default").paused, _row(store, "default").ready) == (False, 1)
        store.pausing.pause("default")
        assert (_row(store, "default").paused, _row(store, "default").ready) == (True, 1)
        store.pausing.resume("default")
        assert (_row(store, "default").paused, _row(store, "default").ready) == (False, 1)

    @lacks("stats")
    def test_without_statistics_they_are_refused(self, store: Store) -> None:
        with pytest.raises(Unsupported, match="stats"):
            store.backend.stats()


def _row(store: Store, queue: str) -> QueueStats:
    rows = {row.queue: row for row in store.statistics.stats()}
    assert queue in rows, f"the statistics have no queue {queue!r}, only {sorted(rows)}"
    return rows[queue]

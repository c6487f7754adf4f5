"""`Pausing`: a queue that nobody claims from, until somebody says so."""

from __future__ import annotations

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import NOTHING, Store, failure, ids_of, job, jobs
from jobcontract.errors import Unsupported


class PauseChapter(Chapter):
    """Feature "pause"."""

    @needs("pause")
    def test_claims_skip_a_paused_queue_and_no_other(self, store: Store) -> None:
        store.register(job(queue="a"), job(queue="b"))
        store.pausing.pause("a")
        assert [each.record.queue for each in store.claim_all(1, queues=["a", "b"])] == ["b"]
        assert store.claim(10, queues=["a", "b"]) == []
        assert store.claim(10, queues=["a"]) == []

    @needs("pause")
    def test_a_resumed_queue_is_claimed_from_in_its_order(self, store: Store) -> None:
        made = jobs(3)
        store.register(*made)
        store.pausing.pause("default")
        assert store.claim(10) == []
        store.pausing.resume("default")
        assert ids_of(store.claim_all(3)) == [str(each.id) for each in made]

    @needs("pause")
    def test_a_pause_holds_for_every_client(self, store: Store) -> None:
        store.register(job())
        store.pausing.pause("default")
        assert store.claim(10, client=store.another_client()) == []

    @needs("pause")
    def test_a_paused_queue_takes_jobs(self, store: Store) -> None:
        store.pausing.pause("default")
        assert store.register(job())[0].created
        assert store.claim(10) == []
        store.pausing.resume("default")
        assert len(store.claim_all(1)) == 1

    @needs("pause")
    def test_jobs_that_run_end_as_if_there_were_no_pause(self, store: Store) -> None:
        store.register(*jobs(4, max_attempts=2))
        a, b, c, d = (claimed.lease for claimed in store.claim_all(4))
        store.pausing.pause("default")
        assert store.driver.extend([a], store.long_lease)[0].applied
        assert store.driver.complete([a])[0].applied
        assert store.driver.fail([failure(b), failure(c, permanent=True)])[0].applied
        assert store.driver.release([d], NOTHING)[0].applied
        assert store.claim(10) == []
        store.pausing.resume("default")
        assert len(store.claim_all(2)) == 2

    @needs("pause")
    def test_pausing_and_resuming_twice_is_fine(self, store: Store) -> None:
        pausing = store.pausing
        store.register(job())
        pausing.resume("default")
        pausing.pause("default")
        pausing.pause("default")
        assert store.claim(10) == []
        pausing.resume("default")
        pausing.resume("default")
        assert len(store.claim_all(1)) == 1

    @needs("pause", "stats")
    def test_a_paused_queue_without_jobs_is_known(self, store: Store) -> None:
        store.pausing.pause("empty")
        assert [(row.queue, row.paused) for row in store.statistics.stats()] == [("empty", True)]

    @lacks("pause")
    def test_without_pausing_it_is_refused(self, store: Store) -> None:
        store.register(job())
        with pytest.raises(Unsupported, match="pause"):
            store.backend.pause("default")
        with pytest.raises(Unsupported, match="pause"):
            store.backend.resume("default")
        assert len(store.claim_all(1)) == 1

"""Priorities: larger is sooner, and none is quietly another."""

from __future__ import annotations

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import NOTHING, Store, ids_of, job
from jobcontract.errors import Unsupported


class PriorityChapter(Chapter):
    """Feature "priorities"."""

    @needs("priorities")
    def test_each_level_is_sooner_than_the_one_below(self, store: Store) -> None:
        levels = range(store.capabilities.priority_levels)
        made = [job(priority=level) for level in levels]
        store.register(*made)
        claimed = store.claim_all(len(levels))
        assert [each.record.priority for each in claimed] == list(reversed(levels))
        assert ids_of(claimed) == [str(each.id) for each in reversed(made)]

    @needs("priorities")
    def test_a_late_job_of_better_priority_overtakes(self, store: Store) -> None:
        first, second = job(priority=0), job(priority=1)
        store.register(first)
        store.register(second)
        assert ids_of(store.claim_all(1)) == [str(second.id)]

    @needs("priorities")
    def test_a_job_keeps_its_priority_when_it_comes_again(self, store: Store) -> None:
        low, high = job(priority=0), job(priority=1)
        store.register(low, high)
        first = store.claim_one()
        assert store.driver.release([first.lease], NOTHING)[0].applied
        assert ids_of(store.claim_all(2)) == [str(high.id), str(low.id)]

    def test_a_priority_beyond_the_levels_is_refused(self, store: Store) -> None:
        levels = store.capabilities.priority_levels
        for priority in range(levels, 10):
            beyond = job(priority=priority)
            with pytest.raises(Unsupported, match=f"priority {priority}"):
                store.backend.register(beyond)
            store.assert_nothing_left(beyond)
        highest = job(priority=levels - 1)
        assert store.backend.register(highest).created

    @lacks("priorities")
    def test_without_priorities_jobs_keep_their_order(self, store: Store) -> None:
        assert store.capabilities.priority_levels == 1
        with pytest.raises(Unsupported, match="priority 1"):
            store.backend.register(job(priority=1))
        store.assert_nothing_left()

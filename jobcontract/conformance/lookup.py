"""`Lookup`: one job, and pages of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import HOUR, NOTHING, Store, failure, job, jobs
from jobcontract.contract import State
from jobcontract.errors import Unsupported
from jobcontract.side_doors import Page, StoredJob

FINISHED = (State.DONE, State.DEAD)


class LookupChapter(Chapter):
    """Feature "lookup"."""

    @needs("lookup")
    def test_an_unknown_job_is_not_found(self, store: Store) -> None:
        assert store.lookup.get(str(uuid4())) is None
        assert store.lookup.jobs(Page()) == []

    @needs("lookup")
    @pytest.mark.parametrize("state", [State.READY, State.RUNNING, *FINISHED])
    def test_a_job_is_found_in_each_state(self, store: Store, state: State) -> None:
        before = store.now()
        made = store.into(state, input_ref={"a": [1.0, "é"]}, headers={"tenant": "acme"}, queue="a")
        _assert_found(store, before, state, store.stored(made.id), made.to_record().input_ref)

    @needs("lookup", "cancel")
    def test_a_cancelled_job_is_found(self, store: Store) -> None:
        before = store.now()
        made = store.into(State.CANCELLED)
        _assert_found(store, before, State.CANCELLED, store.stored(made.id), made.input_json)

    @needs("lookup")
    def test_the_record_is_the_one_that_was_registered(self, store: Store) -> None:
        made = job(
            kind="other",
            queue="a",
            priority=store.capabilities.priority_levels - 1,
            max_attempts=7,
            idempotency_key="key é" if store.has("deduplication") else None,
            headers={"tenant": "acme"},
            input_ref={"a": 1e22},
        )
        store.register(made)
        record = store.stored(made.id).record
        assert record._replace(run_at=None, fingerprint=None) == made.to_record()._replace(fingerprint=None)

    @needs("lookup")
    def test_the_attempt_and_the_last_error_follow_the_job(self, store: Store) -> None:
        made = job()
        store.register(made)
        assert (store.stored(made.id).attempt, store.stored(made.id).last_error) == (0, None)
        lease = store.claim_one().lease
        assert (store.stored(made.id).attempt, store.stored(made.id).last_error) == (1, None)
        store.driver.fail([failure(lease, "it failed", retry_in=HOUR)])
        assert (store.stored(made.id).attempt, store.stored(made.id).last_error) == (1, "it failed")

    @needs("lookup")
    def test_what_was_released_shows_as_refunded(self, store: Store) -> None:
        made = job()
        store.register(made)
        store.driver.release([store.claim_one().lease], NOTHING)
        assert (store.stored(made.id).attempt, store.stored(made.id).refunded) == (1, 1)
        store.driver.fail([failure(store.claim_one().lease, permanent=True)])
        assert (store.stored(made.id).attempt, store.stored(made.id).refunded) == (2, 1)
        (page,) = store.lookup.jobs(Page())
        assert (page.attempt, page.refunded) == (2, 1)

    @needs("lookup", "requeue")
    def test_a_requeued_job_has_all_its_attempts_to_spend(self, store: Store) -> None:
        made = store.into(State.DEAD)
        store.requeueing.requeue([str(made.id)])
        assert (store.stored(made.id).attempt, store.stored(made.id).refunded) == (1, 1)

    @needs("lookup", "scheduling")
    def test_run_at_follows_the_job(self, store: Store) -> None:
        run_at = (store.now() + HOUR).replace(microsecond=0)
        made = job(run_at=run_at)
        store.register(made)
        assert store.stored(made.id).record.run_at == run_at
        other = job()
        store.register(other)
        at = store.driver.release([store.claim_one().lease], HOUR)[0].at
        kept = store.stored(other.id).record.run_at
        assert at is not None
        assert kept is not None
        assert abs(kept - at) < store.resolution

    @needs("lookup", "timed_lease")
    def test_the_lease_follows_the_job(self, store: Store) -> None:
        made = job()
        store.register(made)
        lease = store.claim_one().lease
        assert store.stored(made.id).lease_expires_at == lease.expires_at
        extended = store.driver.extend([lease], store.long_lease / 2)[0]
        assert store.stored(made.id).lease_expires_at == extended.at
        store.driver.release([lease], NOTHING)
        assert store.stored(made.id).lease_expires_at is None

    # Pages ------------------------------------------------------------------------------------------------

    @needs("lookup")
    def test_the_newest_come_first(self, store: Store) -> None:
        made = jobs(5)
        store.register(*made)
        assert _ids(store.lookup.jobs(Page())) == [str(each.id) for each in reversed(made)]

    @needs("lookup")
    def test_pages_follow_each_other_without_gap_or_overlap(self, store: Store) -> None:
        made = jobs(25)
        store.register(*made)
        # In every state, for a store may keep each somewhere else.
        leases = [claimed.lease for claimed in store.claim_all(15)]
        store.driver.complete(leases[:5])
        store.driver.fail([failure(lease, permanent=True) for lease in leases[5:10]])
        found: list[str] = []
        page = store.lookup.jobs(Page(limit=10))
        while page:
            assert len(page) <= 10
            found += _ids(page)
            store.register(job())  # newer than the page: it must not shift those behind
            page = store.lookup.jobs(Page(limit=10, cursor=page[-1].cursor))
        assert found == [str(each.id) for each in reversed(made)]

    @needs("lookup")
    @pytest.mark.parametrize("state", [State.READY, State.RUNNING, *FINISHED])
    def test_a_page_of_one_state(self, store: Store, state: State) -> None:
        states = [State.RUNNING, *FINISHED, State.READY]  # `into` wants no other ready job
        made = {each: store.into(each) for each in states}
        assert _ids(store.lookup.jobs(Page(state=state))) == [str(made[state].id)]

    @needs("lookup")
    def test_a_page_of_one_queue_or_kind(self, store: Store) -> None:
        a, b, c = job(queue="a"), job(queue="b"), job(queue="b", kind="other")
        store.register(a, b, c)
        page = store.lookup.jobs
        assert _ids(page(Page(queue="a"))) == [str(a.id)]
        assert _ids(page(Page(queue="b"))) == [str(c.id), str(b.id)]
        assert _ids(page(Page(kind="other"))) == [str(c.id)]
        assert _ids(page(Page(queue="b", kind="conformance.work"))) == [str(b.id)]
        assert _ids(page(Page(queue="a", kind="other"))) == []
        assert _ids(page(Page(queue="b", state=State.DONE))) == []

    @needs("lookup", "deduplication")
    def test_a_job_by_its_key(self, store: Store) -> None:
        a, b = (
            job(queue="a", idempotency_key="key"),
            job(queue="b", idempotency_key="key"),
        )
        store.register(a, b, job(queue="a", idempotency_key="other"))
        page = store.lookup.jobs
        assert _ids(page(Page(queue="a", idempotency_key="key"))) == [str(a.id)]
        assert _ids(page(Page(idempotency_key="key"))) == [str(b.id), str(a.id)]
        assert _ids(page(Page(idempotency_key="no such key"))) == []

    @needs("lookup")
    def test_a_page_has_at_most_its_limit(self, store: Store) -> None:
        store.register(*jobs(3))
        assert len(store.lookup.jobs(Page(limit=1))) == 1
        assert len(store.lookup.jobs(Page(limit=1000))) == 3

    @lacks("lookup")
    def test_without_lookup_it_is_refused(self, store: Store) -> None:
        made = job()
        store.register(made)
        with pytest.raises(Unsupported, match="lookup"):
            store.backend.get(made.id)
        with pytest.raises(Unsupported, match="lookup"):
            store.backend.jobs()


def _ids(page: list[StoredJob]) -> list[str]:
    return [stored.record.id for stored in page]


def _assert_found(store: Store, before: datetime, state: State, stored: StoredJob, input_json: str) -> None:
    assert stored.state is state
    assert stored.record.input_ref == input_json
    assert stored.attempt == (0 if state in (State.READY, State.CANCELLED) else 1)
    assert stored.created_at.utcoffset() == timedelta()
    assert (stored.lease_expires_at is not None) == (state is State.RUNNING) or not store.has("timed_lease")
    assert (stored.finished_at is not None) == (state in (*FINISHED, State.CANCELLED))
    after = store.now()
    for instant in (stored.created_at, stored.finished_at):
        if instant is not None:
            assert before - store.resolution <= instant <= after + store.resolution

"""`Driver.complete`, `fail` and `release`: how a claim ends."""

from __future__ import annotations

from uuid import uuid4

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import needs
from jobcontract.conformance.store import HOUR, NOTHING, Store, failure, ids_of, job, jobs, leases_of
from jobcontract.contract import LOST, MAX_ERROR_BYTES, State

ERRORS: dict[str, str] = {
    "empty": "",
    "several lines": "Traceback (most recent call last):\n  ...\nValueError: no\r\n\ttab",
    "unicode": "Zoë 🎈 \u202e\ufffd\uffff",
    "looks like something else": "null '; -- %s {0} \\u0000 \\x00",
    "longest": "🎈" * (MAX_ERROR_BYTES // 4),
}

HOSTILE_ERRORS: dict[str, tuple[str | BaseException, str]] = {
    # what a handler raised, and what must be found of it
    "NUL": ("before\x00after", "before\ufffdafter"),
    "lone surrogate": (ValueError("before\ud800after"), "after"),
    "50 MB": ("x" * 50_000_000 + "the end", "the end"),
    "50 MB of NUL": ("\x00" * 50_000_000 + "the end", "the end"),
}


class SettleChapter(Chapter):
    """What becomes of a job when its claim ends."""

    # Complete ---------------------------------------------------------------------------------------------

    def test_a_completed_job_is_done_and_never_comes_again(self, store: Store) -> None:
        store.register(job())
        verdict = store.driver.complete([store.claim_one().lease])[0]
        assert (verdict.applied, verdict.state) == (True, State.DONE)
        assert store.claim(10) == []

    def test_a_job_is_completed_once(self, store: Store) -> None:
        store.register(job())
        lease = store.claim_one().lease
        assert store.driver.complete([lease])[0].applied
        assert store.driver.complete([lease]) == [LOST]

    def test_of_many_completions_at_once_one_is_applied(self, store: Store) -> None:
        store.register(job())
        lease = store.claim_one().lease
        verdicts = store.at_once(*[lambda: store.driver.complete([lease])[0]] * 12)
        assert [verdict.applied for verdict in verdicts].count(True) == 1

    # Fail -------------------------------------------------------------------------------------------------

    def test_a_failed_job_comes_again(self, store: Store) -> None:
        store.register(job(max_attempts=2))
        first = store.claim_one()
        verdict = store.driver.fail([failure(first.lease)])[0]
        assert (verdict.applied, verdict.state) == (True, State.READY)
        second = store.claim_one()
        assert second.record.id == first.record.id
        assert second.lease.token != first.lease.token

    def test_a_failed_job_comes_again_no_sooner_than_it_was_told_to(self, store: Store) -> None:
        store.register(job(), job(queue="other"))
        lease = store.claim_one().lease
        before = store.now()
        verdict = store.driver.fail([failure(lease, retry_in=HOUR)])[0]
        after = store.now()
        assert verdict.at is not None
        assert before + HOUR - store.resolution <= verdict.at <= after + HOUR + store.resolution
        assert store.claim(10) == []

    def test_a_failed_job_comes_again_when_its_delay_is_over(self, store: Store) -> None:
        store.register(job())
        lease = store.claim_one().lease
        delay = 2 * store.resolution
        at = store.driver.fail([failure(lease, retry_in=delay)])[0].at
        assert at is not None
        again = store.claim_one().lease
        assert again.expires_at - store.long_lease >= at - store.resolution

    def test_a_job_dies_when_its_attempts_are_spent_and_not_before(self, store: Store) -> None:
        store.register(job(max_attempts=3))
        states: list[State | None] = []
        for _ in range(3):
            lease = store.claim_one().lease
            states.append(store.driver.fail([failure(lease)])[0].state)
        assert states == [State.READY, State.READY, State.DEAD]
        assert store.claim(10) == []

    def test_the_delay_of_the_last_attempt_does_not_matter(self, store: Store) -> None:
        store.register(job(max_attempts=1))
        lease = store.claim_one().lease
        assert store.driver.fail([failure(lease, retry_in=HOUR)])[0].state is State.DEAD

    def test_a_permanent_failure_kills_at_once(self, store: Store) -> None:
        store.register(job(max_attempts=1000))
        lease = store.claim_one().lease
        verdict = store.driver.fail([failure(lease, permanent=True)])[0]
        assert (verdict.applied, verdict.state) == (True, State.DEAD)
        assert store.claim(10) == []

    @needs("lookup")
    @pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
    @pytest.mark.parametrize("permanent", [False, True], ids=["retried", "dead"])
    def test_the_last_error_is_kept(self, store: Store, error: str, permanent: bool) -> None:
        made = store.into(State.RUNNING, queue="a")
        other = job()
        store.register(other)
        lease = store.claim_one().lease
        store.driver.fail([failure(lease, error, permanent=permanent)])
        assert store.stored(other.id).last_error == error
        assert store.stored(made.id).last_error is None

    @needs("lookup")
    def test_the_last_error_is_the_last(self, store: Store) -> None:
        made = job()
        store.register(made)
        for error in ("the first", "the second"):
            store.driver.fail([failure(store.claim_one().lease, error)])
        assert store.stored(made.id).last_error == "the second"

    @needs("lookup")
    def test_a_dead_job_keeps_all_that_it_had(self, store: Store) -> None:
        made = job(input_ref={"a": [1.0, "é", 1e22]}, headers={"tenant": "acme"}, max_attempts=7)
        store.register(made)
        store.driver.fail([failure(store.claim_one().lease, permanent=True)])
        stored = store.stored(made.id)
        kept = stored.record._replace(run_at=None, fingerprint=None)
        assert kept == made.to_record()
        assert (stored.state, stored.attempt) == (State.DEAD, 1)

    @pytest.mark.parametrize(("raised", "found"), HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
    def test_no_error_text_keeps_its_job_running(
        self, store: Store, raised: str | BaseException, found: str
    ) -> None:
        made = job()
        store.register(made)
        claim = store.until(lambda: store.backend.claim(limit=1), "the job can't be claimed")[0]
        assert store.backend.fail(claim, raised, permanent=True).state is State.DEAD
        assert store.claim(10) == []
        if store.has("lookup"):
            kept = store.stored(made.id).last_error
            assert kept is not None
            assert found in kept
            assert len(kept.encode()) <= MAX_ERROR_BYTES

    # Release ----------------------------------------------------------------------------------------------

    def test_a_released_job_comes_again_at_once(self, store: Store) -> None:
        store.register(job())
        first = store.claim_one()
        verdict = store.driver.release([first.lease], NOTHING)[0]
        assert (verdict.applied, verdict.state) == (True, State.READY)
        assert store.claim_one().record.id == first.record.id

    def test_a_release_spends_no_attempt_and_counts_on(self, store: Store) -> None:
        """The attempt is a fencing number and never goes back; what is given back is its cost."""
        store.register(job(max_attempts=1))
        for attempt in range(1, 6):
            lease = store.claim_one().lease
            assert (lease.attempt, lease.refunded) == (attempt, attempt - 1)
            assert store.driver.release([lease], NOTHING)[0].state is State.READY
        lease = store.claim_one().lease
        assert store.driver.fail([failure(lease)])[0].state is State.DEAD

    def test_releases_between_failures_spend_nothing(self, store: Store) -> None:
        store.register(job(max_attempts=2))
        store.driver.release([store.claim_one().lease], NOTHING)
        assert store.driver.fail([failure(store.claim_one().lease)])[0].state is State.READY
        store.driver.release([store.claim_one().lease], NOTHING)
        lease = store.claim_one().lease
        assert (lease.attempt, lease.refunded) == (4, 2)
        assert store.driver.fail([failure(lease)])[0].state is State.DEAD

    def test_a_released_job_can_be_held_back(self, store: Store) -> None:
        store.register(job())
        lease = store.claim_one().lease
        before = store.now()
        at = store.driver.release([lease], HOUR)[0].at
        assert at is not None
        assert before + HOUR - store.resolution <= at <= store.now() + HOUR + store.resolution
        assert store.claim(10) == []

    @needs("lookup")
    def test_a_release_keeps_the_last_error(self, store: Store) -> None:
        made = job()
        store.register(made)
        store.driver.fail([failure(store.claim_one().lease, "it failed once")])
        store.driver.release([store.claim_one().lease], NOTHING)
        assert store.stored(made.id).last_error == "it failed once"

    # Many at once -----------------------------------------------------------------------------------------

    def test_verdicts_come_in_the_order_of_the_items(self, store: Store) -> None:
        """Six jobs with six fates; one item of a stranger in the middle takes no other along."""
        store.register(*jobs(4, max_attempts=5), *jobs(2, max_attempts=1))
        leases = leases_of(store.claim_all(6))
        by_limit = sorted(leases, key=lambda lease: lease.job_id)
        a, b, c, d, e, f = by_limit
        stranger = a._replace(job_id=str(uuid4()))
        store.driver.complete([c])
        verdicts = store.driver.fail(
            [
                failure(f),
                failure(b, permanent=True),
                failure(stranger),
                failure(a, retry_in=HOUR),
                failure(c),
                failure(e),
                failure(d),
            ]
        )
        states = [verdict.state for verdict in verdicts]
        assert states == [State.DEAD, State.DEAD, None, State.READY, None, State.DEAD, State.READY]
        assert [verdict.applied for verdict in verdicts] == [state is not None for state in states]
        assert ids_of(store.claim_all(1)) == [d.job_id]
        assert store.claim(10) == []

    @pytest.mark.parametrize("verb", ["complete", "fail", "extend", "release"])
    def test_one_lost_lease_takes_no_other_along(self, store: Store, verb: str) -> None:
        store.register(*jobs(5))
        leases = leases_of(store.claim_all(5))
        store.driver.complete([leases[1]])
        match verb:
            case "complete":
                verdicts = store.driver.complete(leases)
            case "fail":
                verdicts = store.driver.fail([failure(lease) for lease in leases])
            case "extend":
                verdicts = store.driver.extend(leases, store.long_lease)
            case _:
                verdicts = store.driver.release(leases, NOTHING)
        assert [verdict.applied for verdict in verdicts] == [True, False, True, True, True]
        assert verdicts[1] == LOST

    def test_a_thousand_claims_are_settled_in_one_call(self, store: Store) -> None:
        made = jobs(1000)
        for start in range(0, 1000, store.capabilities.max_register_batch):
            store.register(*made[start : start + store.capabilities.max_register_batch])
        leases = leases_of(store.claim_all(1000))
        assert all(verdict.applied for verdict in store.driver.extend(leases, store.long_lease))
        assert all(verdict.state is State.READY for verdict in store.driver.release(leases, NOTHING))
        again = leases_of(store.claim_all(1000))
        failures = [
            failure(lease, "x" * 1000, permanent=number % 2 == 0) for number, lease in enumerate(again)
        ]
        states = [verdict.state for verdict in store.driver.fail(failures)]
        assert states == [State.DEAD, State.READY] * 500
        last = leases_of(store.claim_all(500))
        assert all(verdict.state is State.DONE for verdict in store.driver.complete(last))
        assert store.claim(10) == []

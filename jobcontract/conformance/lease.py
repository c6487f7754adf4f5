"""The guard: a stale token changes nothing, ever, whatever became of its job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple
from uuid import uuid4

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import needs
from jobcontract.conformance.store import HOUR, NOTHING, Store, failure, ids_of, job, jobs
from jobcontract.contract import LOST, Driver, Lease, State, Verdict
from jobcontract.errors import Unsupported

VERBS: dict[str, Callable[[Driver, Lease], Verdict]] = {
    "complete": lambda driver, lease: driver.complete([lease])[0],
    "fail": lambda driver, lease: driver.fail([failure(lease, "stale")])[0],
    "fail permanently": lambda driver, lease: driver.fail([failure(lease, "stale", permanent=True)])[0],
    "extend": lambda driver, lease: driver.extend([lease], HOUR)[0],
    "release": lambda driver, lease: driver.release([lease], NOTHING)[0],
}


class Stale(NamedTuple):
    """A lease that is not current, and what its job is doing without it."""

    lease: Lease
    state: State
    holder: Lease | None = None
    """Whose job it is now, when it runs."""


def expired(store: Store) -> Stale:
    """Ran out, and nobody has noticed yet."""
    return Stale(store.expired()[0], State.RUNNING)


def rescued(store: Store) -> Stale:
    """Ran out, and the job is ready again."""
    lease = store.expired()[0]
    store.assert_rescued(ready=1)
    return Stale(lease, State.READY)


def rescued_to_death(store: Store) -> Stale:
    """Ran out with the last attempt."""
    lease = store.expired(max_attempts=1)[0]
    store.assert_rescued(dead=1)
    return Stale(lease, State.DEAD)


def claimed_after_rescue(store: Store) -> Stale:
    """Ran out, and the job runs elsewhere."""
    stale = rescued(store)
    return Stale(stale.lease, State.RUNNING, store.claim_one().lease)


def _settled(settle: Callable[[Driver, Lease], Verdict], state: State) -> Callable[[Store], Stale]:
    def situation(store: Store) -> Stale:
        store.register(job())
        lease = store.claim_one().lease
        verdict = settle(store.driver, lease)
        assert (verdict.applied, verdict.state) == (True, state)
        return Stale(lease, state)

    return situation


def _claimed_again(before: Callable[[Store], Stale]) -> Callable[[Store], Stale]:
    def situation(store: Store) -> Stale:
        return Stale(before(store).lease, State.RUNNING, store.claim_one().lease)

    return situation


completed = _settled(VERBS["complete"], State.DONE)
failed = _settled(VERBS["fail"], State.READY)
dead = _settled(VERBS["fail permanently"], State.DEAD)
released = _settled(VERBS["release"], State.READY)


def token_of_another_job(store: Store) -> Stale:
    """A token that is current, but not of this job."""
    store.register(job(), job())
    mine, other = (claimed.lease for claimed in store.claim_all(2))
    return Stale(mine._replace(token=other.token), State.RUNNING, mine)


def token_that_nobody_gave(store: Store) -> Stale:
    """A guess."""
    store.register(job())
    mine = store.claim_one().lease
    return Stale(
        mine._replace(token=mine.token[:-1] + ("1" if mine.token[-1] == "0" else "0")), State.RUNNING, mine
    )


SITUATIONS: dict[str, Callable[[Store], Stale]] = {
    "expired": expired,
    "rescued": rescued,
    "rescued to death": rescued_to_death,
    "claimed again after the rescue": claimed_after_rescue,
    "completed": completed,
    "failed": failed,
    "claimed again after the failure": _claimed_again(failed),
    "dead": dead,
    "released": released,
    "claimed again after the release": _claimed_again(released),
    "another job's token": token_of_another_job,
    "nobody's token": token_that_nobody_gave,
}


class LeaseChapter(Chapter):
    """The fence around a claim."""

    @pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
    @pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
    def test_a_stale_token_changes_nothing(
        self, store: Store, situation: Callable[[Store], Stale], verb: Callable[[Driver, Lease], Verdict]
    ) -> None:
        stale = situation(store)
        before = store.see()
        _assert_lost(verb(store.driver, stale.lease))
        assert store.see() == before
        _assert_state(store, stale)

    @pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
    def test_a_lease_of_an_unknown_job_changes_nothing(
        self, store: Store, verb: Callable[[Driver, Lease], Verdict]
    ) -> None:
        store.register(job())
        mine = store.claim_one().lease
        _assert_lost(verb(store.driver, mine._replace(job_id=str(uuid4()))))
        assert store.driver.complete([mine])[0].applied

    @needs("requeue")
    @pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
    def test_a_token_from_before_a_requeue_changes_nothing(
        self, store: Store, verb: Callable[[Driver, Lease], Verdict]
    ) -> None:
        lease = dead(store).lease
        assert store.requeueing.requeue([lease.job_id]) == [State.READY]
        stale = Stale(lease, State.RUNNING, store.claim_one().lease)
        before = store.see()
        _assert_lost(verb(store.driver, lease))
        assert store.see() == before
        _assert_state(store, stale)

    @needs("prune")
    @pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
    def test_a_token_of_a_forgotten_job_changes_nothing(
        self, store: Store, verb: Callable[[Driver, Lease], Verdict]
    ) -> None:
        lease = completed(store).lease
        assert store.pruning.prune(NOTHING, {State.DONE}, 10) == 1
        _assert_lost(verb(store.driver, lease))
        store.assert_nothing_left()

    @needs("timed_lease")
    def test_a_lease_beyond_the_limits_is_refused(self, store: Store) -> None:
        store.register(job())
        limits = store.capabilities.lease
        for length in (limits.longest + timedelta(microseconds=1), store.shortest_lease / 2):
            with pytest.raises(Unsupported, match="lease"):
                store.backend.claim(lease=length)
        assert store.claim_one().lease.attempt == 1

    # Extending --------------------------------------------------------------------------------------------

    @needs("timed_lease")
    def test_an_extended_lease_ends_its_new_length_from_now(self, store: Store) -> None:
        store.register(job())
        lease = store.claim_one().lease
        length = min(timedelta(minutes=90), store.capabilities.lease.longest)
        before = store.now()
        verdict = store.driver.extend([lease], length)[0]
        after = store.now()
        assert verdict.applied
        assert verdict.state in (State.RUNNING, None)
        assert verdict.at is not None
        assert before + length - store.resolution <= verdict.at <= after + length + store.resolution

    @needs("timed_lease")
    def test_an_extended_lease_holds_beyond_its_first_end(self, store: Store) -> None:
        store.register(job(max_attempts=1000))
        length = max(store.shortest_lease, timedelta(milliseconds=200))

        def extended_in_time() -> list[Lease]:
            # On a machine that stalls between the two calls the lease is lost, and the next one is longer.
            nonlocal length
            lease = store.claim_all(1, lease=length)[0].lease
            length *= 2
            if store.driver.extend([lease], store.long_lease)[0].applied:
                return [lease]
            store.rescue_all()
            return []

        (lease,) = store.until(extended_in_time, "no lease could be extended")
        store.until(lambda: store.now() > lease.expires_at, "the store's clock does not go on")
        store.assert_rescued()
        assert store.claim(10) == []
        assert store.driver.complete([lease])[0].applied

    @needs("timed_lease")
    def test_a_lease_can_be_shortened(self, store: Store) -> None:
        store.register(job())
        lease = store.claim_one().lease
        store.run_out([lease])
        assert store.driver.complete([lease]) == [LOST]
        store.assert_rescued(ready=1)

    @needs("timed_lease")
    @pytest.mark.parametrize("minutes", [5, -5], ids=["ahead", "behind"])
    def test_a_lease_does_not_ask_the_clients_clock(self, store: Store, minutes: int) -> None:
        store.register(*jobs(2))
        length = timedelta(minutes=1)
        before = store.now()
        held, given_up = (claimed.lease for claimed in store.claim_all(2, lease=length))
        with store.client_clock(timedelta(minutes=minutes)):
            store.assert_rescued()
            extended = store.driver.extend([held], length)[0]
            assert extended.at is not None
            assert abs(extended.at - (before + length)) < timedelta(minutes=4)
            store.run_out([given_up])
            assert store.driver.complete([held, given_up]) == [
                extended._replace(state=State.DONE, at=None),
                LOST,
            ]
            store.assert_rescued(ready=1)


def _assert_lost(verdict: Verdict) -> None:
    assert verdict == LOST, f"a token that is not current was honoured: {verdict}"


def _assert_state(store: Store, stale: Stale) -> None:
    """That the job goes on as if the stale token had never been used."""
    if stale.holder is not None:
        assert store.driver.complete([stale.holder])[0].state is State.DONE
    elif stale.state is State.RUNNING:
        store.assert_rescued(ready=1)
        assert ids_of(store.claim_all(1)) == [stale.lease.job_id]
    elif stale.state is State.READY:
        assert ids_of(store.claim_all(1)) == [stale.lease.job_id]
    assert store.claim(10) == []

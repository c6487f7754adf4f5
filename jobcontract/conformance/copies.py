"""`CarriesCopies`: a broker takes jobs with their past, and tells which copy of a job it gave."""

from __future__ import annotations

from datetime import timedelta

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import through
from jobcontract.conformance.store import CREATED, HOUR, NOTHING, Store, failure, job, jobs, moved
from jobcontract.contract import ClaimedRecord, State
from jobcontract.side_doors import CarriesCopies, DeadLetters, Page, TakenCopy

AHEAD = timedelta(seconds=2)
QUEUES = ["default"]


class CopiesChapter(Chapter):
    """What a store offers that knows no job by its id."""

    @through(CarriesCopies)
    def test_a_carried_job_is_as_it_was(self, store: Store) -> None:
        made = job(input_ref={"text": "Straße"}, headers={"trace": "1"}, max_attempts=9)
        come = moved(made, attempt=4, refunded=1, last_error="broken")
        assert _door(store).carry([come], "one") == [None]
        claimed = store.claim_one()
        assert claimed.record._replace(fingerprint=None) == come.record._replace(fingerprint=None)
        assert (claimed.lease.attempt, claimed.lease.refunded) == (5, 1)

    @through(CarriesCopies)
    def test_a_copy_keeps_its_name(self, store: Store) -> None:
        _door(store).carry([moved(job())], "one")
        claimed = store.claim_one()
        assert _names(store, claimed) == ["one"]
        store.driver.fail([failure(claimed.lease)])
        claimed = store.claim_one()
        assert _names(store, claimed) == ["one"]
        store.driver.release([claimed.lease], NOTHING)
        assert _names(store, store.claim_one()) == ["one"]

    @through(CarriesCopies)
    def test_a_job_that_was_registered_here_has_no_name(self, store: Store) -> None:
        store.register(job())
        assert _names(store, store.claim_one()) == [""]

    @through(CarriesCopies)
    def test_a_lost_lease_has_no_copy(self, store: Store) -> None:
        _door(store).carry([moved(each) for each in jobs(2)], "one")
        first, second = store.claim_all(2)
        store.driver.complete([first.lease])
        assert _names(store, first, second) == [None, "one"]

    @through(CarriesCopies)
    def test_what_is_carried_twice_is_there_twice(self, store: Store) -> None:
        made = job()
        _door(store).carry([moved(made)], "one")
        _door(store).carry([moved(made)], "two")
        claimed = store.claim_all(2)
        assert {each.record.id for each in claimed} == {str(made.id)}
        assert sorted(map(str, _names(store, *claimed))) == ["one", "two"]

    @through(CarriesCopies)
    def test_a_queue_that_is_not_there_is_made(self, store: Store) -> None:
        _door(store).carry([moved(job(queue="never.seen"))], "one")
        assert _names(store, store.claim_one(queues=["never.seen"])) == ["one"]

    @through(CarriesCopies)
    def test_a_future_job_waits_for_its_time(self, store: Store) -> None:
        made = job(run_at=store.now() + AHEAD)
        _door(store).carry([moved(made)], "one")
        assert store.claim(10) == []
        claimed = store.claim_one()
        assert claimed.record.run_at == made.run_at
        assert made.run_at is not None
        assert store.now() >= made.run_at

    @through(CarriesCopies)
    def test_dead_jobs_are_dead_and_others_leave_nothing(self, store: Store) -> None:
        dead, done, placeholder = jobs(3)
        _door(store).carry(
            [
                moved(dead, State.DEAD, attempt=3, last_error="spoilt", finished_at=CREATED),
                moved(done, State.DONE, finished_at=CREATED),
                moved(placeholder, State.MOVING),
            ],
            "one",
        )
        assert store.claim(10) == []
        if not isinstance(store.driver, DeadLetters):
            return
        (found,) = store.driver.dead(Page())
        assert (found.record.id, found.last_error, found.attempt) == (str(dead.id), "spoilt", 3)
        assert (found.created_at, found.finished_at) == (CREATED, CREATED)
        assert store.driver.revive([str(dead.id)]) == [True]
        claimed = store.claim_one()
        assert (_names(store, claimed), claimed.lease.attempt) == (["one"], 4)

    @through(CarriesCopies)
    def test_what_was_taken_is_nobody_elses_until_it_is_dropped(self, store: Store) -> None:
        store.register(*jobs(3))
        taken = _take(store, 3)
        assert store.claim(10) == []
        assert _door(store).drop([each.token for each in taken]) == 3
        assert _door(store).drop([each.token for each in taken]) == 0
        assert _door(store).take(QUEUES, 10) == []

    @through(CarriesCopies)
    def test_what_was_taken_comes_back_when_its_holder_is_gone(self, store: Store) -> None:
        made = job()
        store.register(made)
        client = store.another_client()
        assert isinstance(client, CarriesCopies)
        (taken,) = store.until(lambda: client.take(QUEUES, 10), "nothing could be taken")
        assert taken.job.record.id == str(made.id)
        client.close()
        assert store.claim_one().record.id == str(made.id)

    @through(CarriesCopies)
    def test_a_taken_job_has_all_that_it_has_been_through(self, store: Store) -> None:
        ready, waiting, dead = jobs(3, headers={"trace": "1"})
        store.register(dead)
        store.driver.fail([failure(store.claim_one().lease, "spoilt")._replace(permanent=True)])
        store.register(waiting)
        store.driver.fail([failure(store.claim_one().lease, "broken")._replace(retry_in=HOUR)])
        _door(store).carry([moved(ready, attempt=3, refunded=1)], "one")
        taken = {each.job.record.id: each for each in _take(store, 3)}
        found = [taken[str(each.id)].job for each in (ready, waiting, dead)]
        assert [(each.state, each.attempt, each.refunded, each.last_error) for each in found] == [
            (State.READY, 3, 1, None),
            (State.READY, 1, 0, "broken"),
            (State.DEAD, 1, 0, "spoilt"),
        ]
        assert [taken[str(each.id)].name for each in (ready, waiting, dead)] == ["one", "", ""]
        run_at = found[1].record.run_at
        assert run_at is not None
        assert abs(run_at - store.now() - HOUR) < HOUR / 4
        assert found[0].record.headers == ready.to_record().headers

    @through(CarriesCopies)
    def test_what_runs_is_not_taken(self, store: Store) -> None:
        store.register(job())
        lease = store.claim_one().lease
        assert _door(store).take(QUEUES, 10) == []
        assert store.driver.complete([lease])[0].applied


def _take(store: Store, count: int) -> list[TakenCopy]:
    found: list[TakenCopy] = []

    def enough() -> bool:
        found.extend(_door(store).take(QUEUES, count - len(found)))
        return len(found) == count

    store.until(enough, lambda: f"{len(found)} of {count} jobs could be taken")
    return found


def _door(store: Store) -> CarriesCopies:
    assert isinstance(store.driver, CarriesCopies)
    return store.driver


def _names(store: Store, *claimed: ClaimedRecord) -> list[str | None]:
    return _door(store).copies_of([each.lease for each in claimed])

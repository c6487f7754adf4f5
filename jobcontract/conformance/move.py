"""`Movable`: the store can be shut, jobs leave it with all that they have, and come to it the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import pytest

from jobcontract.backend import FINISHED_STATES
from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import needs
from jobcontract.conformance.store import CREATED, HOUR, Store, failure, ids_of, job, jobs, moved
from jobcontract.contract import ClaimedRecord, Registration, State
from jobcontract.errors import StoreClosed, StoreError
from jobcontract.side_doors import Arrival, Gate, JoinsTransactions, Movable, MovedJob

Found = TypeVar("Found")

FIRST = "00000000-0000-0000-0000-000000000000"
LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
OPEN = Gate(1, intake=True, claims=True)


class MoveChapter(Chapter):
    """Feature "move"."""

    # -- The gate ----------------------------------------------------------------------------------------

    @needs("move")
    def test_a_store_is_open_until_it_is_shut(self, store: Store) -> None:
        assert _door(store).gate() == Gate(0, intake=True, claims=True)

    @needs("move")
    def test_the_gate_is_the_same_for_every_client(self, store: Store) -> None:
        shut = Gate(7, intake=False, claims=False)
        assert _door(store).set_gate(shut) == shut
        other = store.another_client()
        assert isinstance(other, Movable)
        assert other.gate() == shut

    @needs("move")
    def test_an_earlier_step_does_not_set_the_gate(self, store: Store) -> None:
        door = _door(store)
        now = door.set_gate(Gate(7, intake=False, claims=True))
        assert door.set_gate(Gate(6, intake=True, claims=True)) == now
        assert door.gate() == now
        again = Gate(7, intake=True, claims=True)
        assert door.set_gate(again) == again

    @needs("move")
    def test_a_shut_intake_stores_nothing(self, store: Store) -> None:
        _door(store).set_gate(Gate(1, intake=False, claims=True))
        keyed = job(idempotency_key="a") if store.has("deduplication") else job()
        for made in (keyed, job()):
            with pytest.raises(StoreClosed, match="try again"):
                store.register(made)
        store.assert_nothing_left(keyed)
        _door(store).set_gate(Gate(2, intake=True, claims=True))
        assert store.register(keyed)[0].created

    @needs("move")
    def test_a_shut_intake_answers_for_jobs_that_are_known(self, store: Store) -> None:
        made = job()
        store.register(made)
        _door(store).set_gate(Gate(1, intake=False, claims=True))
        assert store.register(made)[0] == Registration(made.id, created=False, state=State.READY)

    @needs("move")
    def test_shut_claims_give_nothing(self, store: Store) -> None:
        running, waiting = jobs(2)
        store.register(running)
        lease = store.claim_one().lease
        store.register(waiting)
        _door(store).set_gate(Gate(1, intake=True, claims=False))
        with pytest.raises(StoreClosed, match="try again"):
            store.claim()
        assert store.driver.complete([lease])[0].state is State.DONE
        _door(store).set_gate(Gate(2, intake=True, claims=True))
        assert ids_of(store.claim_all(1)) == [str(waiting.id)]

    @needs("move", "transactions")
    def test_a_transaction_that_was_let_in_may_go_on(self, store: Store) -> None:
        for epoch, (kind, begin) in enumerate(_writers_that_dont_wait(store).items(), start=1):
            first, second = jobs(2, queue="a")
            with begin() as connection:
                store.backend.register(first, connection=connection)
                _door(store).set_gate(Gate(2 * epoch, intake=False, claims=True))
                assert store.backend.register(second, connection=connection).created, kind
            assert sorted(ids_of(store.claim_all(2, queues=["a"]))) == sorted([str(first.id), str(second.id)])
            _door(store).set_gate(Gate(2 * epoch + 1, intake=True, claims=True))

    @needs("move", "transactions")
    def test_a_transaction_that_comes_too_late_is_refused_and_can_commit(self, store: Store) -> None:
        for epoch, (kind, begin) in enumerate(store.transactions().items(), start=1):
            _door(store).set_gate(Gate(2 * epoch, intake=False, claims=True))
            made = job(queue=f"queue.{epoch}")
            with begin() as connection, pytest.raises(StoreClosed):
                store.backend.register(made, connection=connection)
            store.assert_nothing_left(made)
            _door(store).set_gate(Gate(2 * epoch + 1, intake=True, claims=True))
            with begin() as connection:
                assert store.backend.register(made, connection=connection).created, kind

    @needs("move", "transactions")
    def test_a_transaction_that_began_before_sees_that_the_store_is_shut(self, store: Store) -> None:
        for epoch, (kind, begin) in enumerate(_writers_that_dont_wait(store).items(), start=1):
            with begin() as connection:
                _look(connection)
                _door(store).set_gate(Gate(2 * epoch, intake=False, claims=True))
                try:
                    store.backend.register(job(queue="a"), connection=connection)
                except StoreClosed:
                    pass
                else:
                    pytest.fail(f"{kind}: a job was let in by an old snapshot")
            _door(store).set_gate(Gate(2 * epoch + 1, intake=True, claims=True))

    @needs("move", "transactions")
    def test_open_registrations_are_named_until_they_end(self, store: Store) -> None:
        for kind, begin in _writers_that_dont_wait(store).items():
            with begin() as connection:
                store.backend.register(job(), connection=connection)
                named = _door(store).open_registrations()
                assert named, kind
            store.until(
                lambda named=named: not named & _door(store).open_registrations(),  # type: ignore[misc]
                f"{kind}: the transaction has ended, and is still named",
            )

    # -- Leaving -----------------------------------------------------------------------------------------

    @needs("move")
    def test_a_hidden_job_is_nobodys(self, store: Store) -> None:
        made = job()
        store.register(made)
        (hidden,) = _hide_all(store)
        assert hidden.record.id == str(made.id)
        assert store.claim(10) == []
        if store.has("cancel"):
            assert store.cancellation.cancel([str(made.id)]) == [State.MOVING]
        if store.has("requeue"):
            assert store.requeueing.requeue([str(made.id)]) == [State.MOVING]
        if store.has("prune"):
            assert store.pruning.prune(timedelta(), FINISHED_STATES, 10) == 0
        if store.has("lookup"):
            assert store.stored(made.id).state is State.MOVING
        assert _door(store).hidden(10) == [hidden]

    @needs("move")
    def test_a_hidden_job_carries_all_it_has(self, store: Store) -> None:
        made = job(
            input_ref={"text": "Straße", "number": 1},
            queue="a",
            max_attempts=9,
            headers={"trace": "1"},
            idempotency_key="key" if store.has("deduplication") else None,
            priority=1 if store.has("priorities") else 0,
        )
        store.register(made)
        store.driver.release([store.claim_one(queues=["a"]).lease], timedelta())
        store.driver.fail([failure(store.claim_one(queues=["a"]).lease, "broken")])
        (hidden,) = _hide_all(store)
        sent = made.to_record()
        assert hidden.record._replace(run_at=None) == sent._replace(run_at=None)
        assert (hidden.state, hidden.attempt, hidden.refunded) == (State.READY, 2, 1)
        assert (hidden.last_error, hidden.finished_at) == ("broken", None)
        assert abs(hidden.created_at - store.now()) < HOUR

    @needs("move")
    def test_ready_jobs_leave_before_dead_ones(self, store: Store) -> None:
        dead = store.into(State.DEAD)
        cancelled = [store.into(State.CANCELLED)] if store.has("cancel") else []
        ready = jobs(2)
        store.register(*ready)
        _door(store).set_gate(OPEN)
        first = _door(store).hide(1, 2)
        assert {each.record.id for each in first} == {str(each.id) for each in ready}
        rest = {UUID(each.record.id): each for each in _hide_all(store)}
        assert {key: each.state for key, each in rest.items()} == {
            dead.id: State.DEAD,
            **{each.id: State.CANCELLED for each in cancelled},
        }
        assert rest[dead.id].last_error == "spoilt"
        assert all(each.finished_at is not None for each in rest.values())

    @needs("move")
    def test_a_running_job_stays(self, store: Store) -> None:
        store.register(job())
        lease = store.claim_one().lease
        assert _hide_all(store) == []
        assert store.driver.complete([lease])[0].applied

    @needs("move", "scheduling")
    def test_a_future_job_leaves_with_its_time(self, store: Store) -> None:
        run_at = store.now().replace(microsecond=0) + HOUR
        store.register(job(run_at=run_at))
        (hidden,) = _hide_all(store)
        assert hidden.record.run_at is not None
        assert abs(hidden.record.run_at - run_at) <= store.resolution

    @needs("move")
    def test_a_hidden_job_can_come_back(self, store: Store) -> None:
        ready = store.into(State.READY)
        store.driver.fail([failure(store.claim_one().lease, "broken")])
        dead = store.into(State.DEAD, queue="b")
        assert len(_hide_all(store)) == 2
        assert _door(store).reveal(1, 10) == 2
        assert _door(store).hidden(10) == []
        claimed = store.claim_one()
        assert (claimed.record.id, claimed.lease.attempt) == (str(ready.id), 2)
        if store.has("lookup"):
            assert store.stored(dead.id).state is State.DEAD

    @needs("move")
    def test_a_buried_job_is_a_trace(self, store: Store) -> None:
        made = jobs(3)
        store.register(*made)
        hidden = {each.record.id: each for each in _hide_all(store)}
        ids = sorted(hidden)
        assert _door(store).bury(1, ids[:2]) == 2
        assert _door(store).bury(1, ids[:2]) == 0
        assert [each.record.id for each in _door(store).hidden(10)] == ids[2:]
        assert _door(store).buried(LAST, 1) == [hidden[ids[1]]]
        assert _door(store).buried(ids[1], 10) == [hidden[ids[0]]]
        assert _door(store).reveal(1, 10) == 1
        assert ids_of(store.claim_all(1)) == ids[2:]
        if store.has("lookup"):
            assert store.stored(ids[0]).state is State.MOVED

    @needs("move")
    @pytest.mark.parametrize("buried", [False, True], ids=["hidden", "buried"])
    def test_a_job_that_left_is_known(self, store: Store, buried: bool) -> None:
        made = job(idempotency_key="key" if store.has("deduplication") else None)
        store.register(made)
        _hide_all(store)
        if buried:
            _door(store).bury(1, [str(made.id)])
        state = State.MOVED if buried else State.MOVING
        assert store.register(made) == [Registration(made.id, created=False, state=state)]
        if store.has("deduplication"):
            assert store.register(job(idempotency_key="key", input_ref={"other": 1})) == [
                Registration(made.id, created=False, state=state, conflict=True)
            ]
        assert store.claim(10) == []

    @needs("move", "deduplication")
    def test_forgotten_traces_free_their_keys(self, store: Store) -> None:
        made = [job(idempotency_key=f"key {number}") for number in range(3)]
        store.register(*made)
        hidden = [each.record.id for each in _hide_all(store)]
        _door(store).bury(1, hidden[:2])
        assert _door(store).forget_buried(1, 1) == 1
        assert _door(store).forget_buried(1, 10) == 1
        assert _door(store).forget_buried(1, 10) == 0
        again = [job(idempotency_key=each.idempotency_key) for each in made]
        created = {each.job_id: each.created for each in store.register(*again)}
        assert sum(created.values()) == 2
        assert created[UUID(hidden[2])] is False

    @needs("move", "deduplication")
    def test_forgotten_placeholders_free_their_keys(self, store: Store) -> None:
        _admit(store, moved(job(idempotency_key="key"), State.MOVING))
        assert _door(store).forget_buried(1, 10) == 1
        assert store.register(job(idempotency_key="key"))[0].created

    @needs("move")
    def test_a_claim_and_a_mover_at_once_have_one_winner_for_each_job(self, store: Store) -> None:
        client = store.another_client()
        _door(store).set_gate(OPEN)
        for _ in range(5):
            made = jobs(20)
            store.register(*made)
            claimed: list[ClaimedRecord] = []
            hidden: list[MovedJob] = []
            store.at_once(
                partial(_extend, claimed, partial(store.claim, 20, client=client)),
                partial(_extend, hidden, partial(_door(store).hide, 1, 20)),
            )
            claimed += store.claim(20)
            ids = [*ids_of(claimed), *(each.record.id for each in hidden)]
            assert sorted(ids) == sorted(str(each.id) for each in made)
            store.driver.complete([each.lease for each in claimed])
            _door(store).bury(1, [each.record.id for each in hidden])

    # -- Who acts for a step that is over ------------------------------------------------------------------

    @needs("move")
    @pytest.mark.parametrize("verb", ["hide", "reveal", "bury", "forget_buried", "admit"])
    def test_a_mover_of_an_earlier_step_changes_nothing(self, store: Store, verb: str) -> None:
        ready, hidden, buried = jobs(3)
        store.register(hidden)
        _hide_all(store)
        store.register(buried)
        _hide_all(store)
        _door(store).bury(1, [str(buried.id)])
        store.register(ready)
        _door(store).set_gate(Gate(2, intake=True, claims=True))
        before = store.see()
        door = _door(store)
        late: dict[str, Callable[[], object]] = {
            "hide": lambda: door.hide(1, 10),
            "reveal": lambda: door.reveal(1, 10),
            "bury": lambda: door.bury(1, [str(hidden.id)]),
            "forget_buried": lambda: door.forget_buried(1, 10),
            "admit": lambda: door.admit(1, [moved(job())]),
        }
        with pytest.raises(StoreError, match="step 1 of the migration is over"):
            late[verb]()
        assert store.see() == before
        assert [each.record.id for each in door.hidden(10)] == [str(hidden.id)]
        assert [each.record.id for each in door.buried(LAST, 10)] == [str(buried.id)]
        assert ids_of(store.claim_all(1)) == [str(ready.id)]

    # -- Coming ------------------------------------------------------------------------------------------

    @needs("move")
    def test_an_admitted_job_is_as_it_was(self, store: Store) -> None:
        made = job(
            input_ref={"text": "Straße"},
            queue="a",
            headers={"trace": "1"},
            max_attempts=9,
            priority=1 if store.has("priorities") else 0,
        )
        come = moved(made, attempt=4, refunded=1, last_error="broken")
        assert _admit(store, come) == [Arrival(stored=True)]
        if store.has("lookup"):
            stored = store.stored(made.id)
            assert (stored.state, stored.attempt, stored.last_error) == (State.READY, 4, "broken")
            assert abs(stored.created_at - CREATED) <= store.resolution
        claimed = store.claim_one(queues=["a"])
        assert claimed.record._replace(fingerprint=None, run_at=None) == made.to_record()._replace(
            fingerprint=None
        )
        assert claimed.record.run_at is not None
        assert abs(claimed.record.run_at - CREATED) <= store.resolution
        assert (claimed.lease.attempt, claimed.lease.refunded) == (5, 1)

    @needs("move")
    def test_attempts_go_on_where_they_were(self, store: Store) -> None:
        made = job(max_attempts=3)
        _admit(store, moved(made, attempt=3, refunded=1))
        assert store.driver.fail([failure(store.claim_one().lease)])[0].state is State.DEAD

    @needs("move", "scheduling")
    def test_an_admitted_job_waits_for_its_time(self, store: Store) -> None:
        run_at = store.now() + HOUR
        _admit(store, moved(job(run_at=run_at)))
        assert store.claim(10) == []

    @needs("move")
    def test_dead_jobs_come_as_dead_ones(self, store: Store) -> None:
        made = job()
        at = CREATED + HOUR
        _admit(store, moved(made, State.DEAD, attempt=5, last_error="spoilt", finished_at=at))
        assert store.claim(10) == []
        if store.has("lookup"):
            stored = store.stored(made.id)
            assert (stored.state, stored.last_error) == (State.DEAD, "spoilt")
            assert stored.finished_at is not None
            assert abs(stored.finished_at - at) <= store.resolution
        if store.has("requeue"):
            assert store.requeueing.requeue([str(made.id)]) == [State.READY]
            assert store.claim_one().lease.attempt == 6

    @needs("move")
    @pytest.mark.parametrize("state", [State.DONE, State.CANCELLED])
    def test_ended_jobs_come_as_such(self, store: Store, state: State) -> None:
        made = job(idempotency_key="key" if store.has("deduplication") else None)
        _admit(store, moved(made, state, attempt=1, finished_at=CREATED + HOUR))
        assert store.claim(10) == []
        if store.has("lookup"):
            assert store.stored(made.id).state is state
        if store.has("deduplication"):
            assert store.register(job(idempotency_key="key")) == [
                Registration(made.id, created=False, state=state)
            ]

    @needs("move", "deduplication")
    def test_admitting_again_changes_nothing(self, store: Store) -> None:
        ready, done = job(idempotency_key="a"), job()
        come = [moved(ready, attempt=1), moved(done)]
        assert _admit(store, *come) == [Arrival(stored=True)] * 2
        lease = next(each.lease for each in store.claim_all(2) if each.record.id == str(done.id))
        store.driver.complete([lease])
        before = store.see()
        assert _admit(store, *come) == [Arrival(stored=False)] * 2
        assert store.see() == before
        assert store.claim(10) == []

    @needs("move")
    def test_a_shut_store_admits(self, store: Store) -> None:
        _door(store).set_gate(Gate(3, intake=False, claims=False))
        made = job()
        assert _door(store).admit(3, [moved(made)]) == [Arrival(stored=True)]
        _door(store).set_gate(Gate(4, intake=False, claims=True))
        assert ids_of(store.claim_all(1)) == [str(made.id)]

    @needs("move", "deduplication")
    def test_a_placeholder_holds_the_key_and_gives_way_to_the_job(self, store: Store) -> None:
        made = job(idempotency_key="key")
        assert _admit(store, moved(made, State.MOVING)) == [Arrival(stored=True)]
        assert store.claim(10) == []
        assert store.register(job(idempotency_key="key")) == [
            Registration(made.id, created=False, state=State.MOVING)
        ]
        assert _hide_all(store) == []
        assert _admit(store, moved(made, State.MOVING)) == [Arrival(stored=False)]
        assert _admit(store, moved(made)) == [Arrival(stored=True)]
        assert ids_of(store.claim_all(1)) == [str(made.id)]

    @needs("move")
    def test_a_job_can_come_back_to_where_it_left(self, store: Store) -> None:
        made = job(idempotency_key="key" if store.has("deduplication") else None)
        store.register(made)
        (hidden,) = _hide_all(store)
        _door(store).bury(1, [str(made.id)])
        assert _admit(store, hidden._replace(attempt=1)) == [Arrival(stored=True)]
        assert _door(store).buried(LAST, 10) == []
        assert store.claim_one().lease.attempt == 2
        assert _admit(store, hidden) == [Arrival(stored=False)]

    @needs("move", "deduplication")
    def test_a_key_that_another_job_holds_stays_with_it(self, store: Store) -> None:
        holder, come = job(idempotency_key="key"), job(idempotency_key="key", input_ref={"other": 1})
        store.register(holder)
        arrival = Arrival(stored=True, key_holder=str(holder.id))
        assert _admit(store, moved(come)) == [arrival]
        assert _admit(store, moved(come)) == [arrival._replace(stored=False)]
        assert sorted(ids_of(store.claim_all(2))) == sorted([str(holder.id), str(come.id)])
        answer = store.register(job(idempotency_key="key"))[0]
        assert (answer.job_id, answer.created) == (holder.id, False)

    # -- Keys --------------------------------------------------------------------------------------------

    @needs("move", "deduplication")
    def test_keys_are_listed_with_their_jobs(self, store: Store) -> None:
        done = store.into(State.DONE, idempotency_key="done")
        dead = store.into(State.DEAD, idempotency_key="dead")
        running = store.into(State.RUNNING, idempotency_key="running")
        ready = store.into(State.READY, idempotency_key="ready")
        store.register(job(), job(idempotency_key="ready"))
        found: list[MovedJob] = []
        while page := _door(store).keyed(found[-1].record.id if found else FIRST, 3):
            found += page
        assert [each.record.id for each in found] == sorted(each.record.id for each in found)
        moving = State.MOVING
        assert {UUID(each.record.id): each.state for each in found} == {
            done.id: State.DONE,
            dead.id: moving,
            running.id: moving,
            ready.id: moving,
        }
        by_id = {each.record.id: each for each in found}
        for made in (done, dead, running, ready):
            assert by_id[str(made.id)].record._replace(run_at=None) == made.to_record()
        assert by_id[str(done.id)].attempt == 1

    @needs("move", "deduplication")
    def test_traces_are_not_among_the_keys(self, store: Store) -> None:
        made = [job(idempotency_key=f"key {number}") for number in range(5)]
        store.register(*made)
        ids = sorted(each.record.id for each in _hide_all(store))
        _door(store).bury(1, ids[:4])
        assert [each.record.id for each in _door(store).keyed(FIRST, 2)] == ids[4:]

    @needs("move")
    def test_what_is_known_is_recalled(self, store: Store) -> None:
        known, other = job(queue="a"), job()
        store.register(known)
        records = [other.to_record(), known.to_record()]
        recalled = _door(store).recall(records)
        assert recalled == [None, Registration(known.id, created=False, state=State.READY)]
        store.assert_nothing_left(other)

    @needs("move", "deduplication")
    def test_a_held_key_is_recalled(self, store: Store) -> None:
        holder = store.into(State.DONE, idempotency_key="key")
        same, differing = job(idempotency_key="key"), job(idempotency_key="key", input_ref={"other": 1})
        elsewhere = job(idempotency_key="key", queue="b")
        records = [each.to_record() for each in (same, differing, elsewhere)]
        assert _door(store).recall(records) == [
            Registration(holder.id, created=False, state=State.DONE),
            Registration(holder.id, created=False, state=State.DONE, conflict=True),
            None,
        ]


def _door(store: Store) -> Movable:
    assert isinstance(store.driver, Movable), "the driver declares the door and has no such methods"
    return store.driver


def _hide_all(store: Store) -> list[MovedJob]:
    """All that can leave, in step 1."""
    door = _door(store)
    door.set_gate(OPEN)
    found: list[MovedJob] = []
    while batch := door.hide(1, 10):
        found += batch
    return found


def _admit(store: Store, *come: MovedJob) -> list[Arrival]:
    """In step 1."""
    _door(store).set_gate(OPEN)
    return _door(store).admit(1, come)


def _writers_that_dont_wait(store: Store) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    """The kinds of transaction that can be open while another client writes; on SQLite there are none."""
    driver = store.driver
    assert isinstance(driver, JoinsTransactions)
    offered = store.transactions()  # on SQLite too: a harness without connections has not tried the test
    return {} if driver.dialect == "sqlite" else dict(offered)


def _look(connection: Any) -> None:  # Any: a connection of whatever library the harness offers
    """Have an open transaction take its snapshot."""
    if type(connection).__module__.startswith("sqlalchemy"):  # it takes no plain strings
        bound = connection if hasattr(connection, "exec_driver_sql") else connection.connection()
        bound.exec_driver_sql("SELECT 1")
    elif hasattr(connection, "execute"):
        connection.execute("SELECT 1")
    else:  # Django
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")


def _extend(found: list[Found], look: Callable[[], Sequence[Found]]) -> None:
    found += look()

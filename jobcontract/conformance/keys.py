"""Idempotency keys: at most one job per queue and key, and no reused key is swallowed in silence."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import HOUR, NOTHING, Store, ids_of, job
from jobcontract.contract import Job, State
from jobcontract.errors import Unsupported

KEY = "document 7:v3"

DISTINCT_KEYS = [
    "a",
    "A",
    "a\u0301",
    "á",
    "\uff41",
    "a b",
    "a  b",
    "a\u00a0b",
    "a\tb",
    "a%",
    "a_",
    "a\\",
    "a'",
    'a"',
    "a{b}",
    "a:b",
    "null",
    "0",
    "00",
    "🎈",
    "\u200b",
    "\ufffd",
]

HELD = [State.READY, State.RUNNING, State.DONE, State.DEAD]


class KeysChapter(Chapter):
    """Feature "deduplication"."""

    @needs("deduplication")
    @pytest.mark.parametrize("state", HELD)
    @pytest.mark.parametrize(
        ("changed", "conflict"),
        [({}, False), ({"kind": "other"}, True), ({"input_ref": {"other": 1}}, True)],
        ids=["the same", "another kind", "another input"],
    )
    def test_a_taken_key_is_answered_with_its_holder(
        self, store: Store, state: State, changed: dict[str, Any], conflict: bool
    ) -> None:
        holder = store.into(state, idempotency_key=KEY)
        _assert_answered(store, holder, state, changed, conflict)

    @needs("deduplication", "cancel")
    @pytest.mark.parametrize("conflict", [False, True], ids=["the same", "another input"])
    def test_a_cancelled_job_holds_its_key(self, store: Store, conflict: bool) -> None:
        holder = store.into(State.CANCELLED, idempotency_key=KEY)
        changed = {"input_ref": {"other": 1}} if conflict else {}
        _assert_answered(store, holder, State.CANCELLED, changed, conflict)

    @needs("deduplication", "scheduling")
    def test_a_future_job_holds_its_key(self, store: Store) -> None:
        holder = job(idempotency_key=KEY, run_at=store.now() + HOUR)
        store.register(holder)
        _assert_answered(store, holder, State.READY, {}, False)

    @needs("deduplication")
    def test_a_job_that_came_again_holds_its_key(self, store: Store) -> None:
        holder = store.into(State.READY, idempotency_key=KEY)
        store.driver.release([store.claim_one().lease], NOTHING)
        again = job(idempotency_key=KEY)
        assert store.register(again)[0].job_id == holder.id
        assert ids_of(store.claim_all(1)) == [str(holder.id)]
        assert store.claim(10) == []

    @needs("deduplication")
    def test_the_order_of_names_in_an_input_makes_no_conflict(self, store: Store) -> None:
        store.register(job(idempotency_key=KEY, input_ref={"a": 1, "b": {"c": 2, "d": 3}}))
        again = store.register(job(idempotency_key=KEY, input_ref={"b": {"d": 3, "c": 2}, "a": 1}))[0]
        assert (again.created, again.conflict) == (False, False)

    @needs("deduplication")
    def test_numbers_that_are_not_the_same_text_make_a_conflict(self, store: Store) -> None:
        store.register(job(idempotency_key=KEY, input_ref={"a": 1}))
        assert store.register(job(idempotency_key=KEY, input_ref={"a": 1.0}))[0].conflict

    @needs("deduplication")
    def test_what_is_not_kind_or_input_makes_no_conflict(self, store: Store) -> None:
        store.register(job(idempotency_key=KEY, headers={"trace": "1"}, max_attempts=3))
        again = store.register(job(idempotency_key=KEY, headers={"trace": "2"}, max_attempts=4))[0]
        assert (again.created, again.conflict) == (False, False)

    @needs("deduplication")
    def test_the_very_same_job_is_no_conflict(self, store: Store) -> None:
        made = job(idempotency_key=KEY, input_ref={"a": 1})
        store.register(made)
        again = store.register(made)[0]
        assert (again.job_id, again.created, again.conflict) == (made.id, False, False)

    @needs("deduplication")
    def test_a_key_belongs_to_its_queue(self, store: Store) -> None:
        made = [job(queue=queue, idempotency_key=KEY) for queue in ("a", "b", "c")]
        assert all(registration.created for registration in store.register(*made))
        assert len(store.claim_all(3, queues=["a", "b", "c"])) == 3

    @needs("deduplication")
    def test_keys_that_look_alike_are_different(self, store: Store) -> None:
        made = [job(idempotency_key=key) for key in DISTINCT_KEYS]
        assert [registration.created for registration in store.register(*made)] == [True] * len(made)
        again = store.register(*(job(idempotency_key=key) for key in DISTINCT_KEYS))
        assert [registration.job_id for registration in again] == [each.id for each in made]

    @needs("deduplication")
    def test_the_longest_keys_are_told_apart(self, store: Store) -> None:
        keys = ["k" * 511 + end for end in "ab"] + ["é" * 255 + end for end in ("aa", "bb")]
        made = [job(idempotency_key=key) for key in keys]
        assert all(registration.created for registration in store.register(*made))
        assert [registration.created for registration in store.register(job(idempotency_key=keys[1]))] == [
            False
        ]

    @needs("deduplication")
    def test_jobs_without_a_key_are_never_duplicates(self, store: Store) -> None:
        assert all(registration.created for registration in store.register(*(job() for _ in range(5))))
        assert len(store.claim_all(5)) == 5

    @needs("deduplication")
    def test_of_two_with_one_key_in_a_batch_the_first_wins(self, store: Store) -> None:
        first = job(idempotency_key=KEY, input_ref={"a": 1})
        twin = job(idempotency_key=KEY, input_ref={"a": 1})
        other = job(idempotency_key=KEY, input_ref={"a": 2})
        bystander = job()
        answers = store.register(first, bystander, twin, other)
        assert [answer.job_id for answer in answers] == [first.id, bystander.id, first.id, first.id]
        assert [answer.created for answer in answers] == [True, True, False, False]
        assert [answer.conflict for answer in answers] == [False, False, False, True]
        assert sorted(ids_of(store.claim_all(2))) == sorted([str(first.id), str(bystander.id)])
        assert store.claim(10) == []

    @needs("deduplication")
    def test_a_duplicate_takes_no_other_along(self, store: Store) -> None:
        holder = job(idempotency_key=KEY)
        store.register(holder)
        before, duplicate, behind = job(), job(idempotency_key=KEY), job(idempotency_key="another")
        answers = store.register(before, duplicate, behind)
        assert [answer.created for answer in answers] == [True, False, True]
        assert answers[1].job_id == holder.id
        assert len(store.claim_all(3)) == 3

    @needs("deduplication")
    def test_of_many_producers_with_one_key_one_creates_the_job(self, store: Store) -> None:
        clients = [store.another_client() for _ in range(4)]
        for number in range(5):
            key = f"{KEY}:{number}"
            answers = store.at_once(
                *(partial(store.register, job(idempotency_key=key), client=client) for client in clients * 3)
            )
            assert [answer.created for (answer,) in answers].count(True) == 1
            assert len({answer.job_id for (answer,) in answers}) == 1
        assert len(store.claim_all(5)) == 5
        assert store.claim(10) == []

    @needs("deduplication")
    def test_batches_that_share_keys_in_opposite_order_do_not_block_each_other(self, store: Store) -> None:
        keys = [f"{KEY}:{number}" for number in range(40)]

        def register(client_keys: list[str]) -> int:
            client = store.another_client()
            made = [job(idempotency_key=key) for key in client_keys]
            return sum(answer.created for answer in store.register(*made, client=client))

        created = store.at_once(*(partial(register, order) for order in [keys, keys[::-1]] * 3))
        assert sum(created) == 40
        assert len(store.claim_all(40)) == 40

    @needs("deduplication", "requeue")
    def test_a_requeued_job_holds_its_key(self, store: Store) -> None:
        holder = store.into(State.DEAD, idempotency_key=KEY)
        store.requeueing.requeue([str(holder.id)])
        again = store.register(job(idempotency_key=KEY))[0]
        assert (again.job_id, again.created) == (holder.id, False)

    @needs("deduplication", "prune")
    @pytest.mark.parametrize("state", [State.DONE, State.DEAD])
    def test_a_forgotten_job_gives_its_key_back(self, store: Store, state: State) -> None:
        store.into(state, idempotency_key=KEY)
        assert store.pruning.prune(NOTHING, {state}, 10) == 1
        successor = job(idempotency_key=KEY, input_ref={"other": 1})
        answer = store.register(successor)[0]
        assert (answer.job_id, answer.created, answer.conflict) == (successor.id, True, False)
        assert ids_of(store.claim_all(1)) == [str(successor.id)]

    @lacks("deduplication")
    def test_without_deduplication_a_key_is_refused(self, store: Store) -> None:
        keyed = job(idempotency_key=KEY)
        with pytest.raises(Unsupported, match="idempotency_key"):
            store.backend.register(keyed)
        with pytest.raises(Unsupported, match="idempotency_key"):
            store.backend.register_many([job(), keyed])
        store.assert_nothing_left(keyed)


def _assert_answered(
    store: Store, holder: Job, state: State, changed: dict[str, Any], conflict: bool
) -> None:
    before = store.see()
    answer = store.register(job(idempotency_key=KEY, **changed))[0]
    assert (answer.job_id, answer.created) == (holder.id, False)
    assert answer.state in (state, None)
    assert answer.conflict is conflict
    assert store.see() == before
    if state is State.READY and holder.run_at is None:
        assert ids_of(store.claim_all(1)) == [str(holder.id)]
    assert store.claim(10) == []

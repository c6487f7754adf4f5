"""`Driver.register`: stored once, whole, and only once."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import needs
from jobcontract.conformance.store import HOUR, Store, ids_of, job, jobs, leases_of
from jobcontract.contract import JobRecord, State

INPUTS: dict[str, dict[str, Any]] = {
    "empty": {},
    "empty names and values": {"": "", "a": [], "b": {}, "c": None},
    "nested": {"a": [{"b": [[], [{}], [None, True, False]]}]},
    "floats": {"a": 1e22, "b": -0.0, "c": 0.1, "d": 1.0, "e": 5e-324, "f": 1.7976931348623157e308},
    "integers": {"a": 0, "b": -1, "c": 2**53 + 1, "d": 2**64, "e": int("9" * 100), "f": -(10**4299)},
    "unicode": {"ключ": "Zoë 🎈 \u200f\u202e\ufeff\uffff", "nfc": "é", "nfd": "e\u0301"},
    "control characters": {"a": "".join(map(chr, range(1, 32))) + "\x7f\x85\u2028"},
    "looks like something else": {
        "a": "null",
        "b": "\\u0000",
        "c": "'; DROP TABLE jobs; --",
        "d": "%s %(a)s {0} $1 :a ?",
    },
    "order of names": {"z": 1, "a": 2, "m": {"z": 1, "a": 2}},
}


class RegisterChapter(Chapter):
    """What becomes of a registration that returned."""

    def test_a_registration_is_answered_with_its_job(self, store: Store) -> None:
        made = job()
        registration = store.register(made)[0]
        assert registration.job_id == made.id
        assert registration.created
        assert not registration.conflict
        assert registration.state in (State.READY, None)

    def test_a_registered_job_can_be_claimed_by_another_client(self, store: Store) -> None:
        made = job()
        store.register(made)
        assert store.claim_one(client=store.another_client()).record.id == str(made.id)

    def test_answers_come_in_the_order_of_the_jobs(self, store: Store) -> None:
        made = jobs(50)
        made.sort(key=lambda each: each.id.int % 997)
        assert [registration.job_id for registration in store.register(*made)] == [each.id for each in made]

    @pytest.mark.parametrize("input_ref", INPUTS.values(), ids=INPUTS)
    def test_an_input_comes_back_exactly(self, store: Store, input_ref: dict[str, Any]) -> None:
        made = job(input_ref=input_ref)
        store.register(made)
        claimed = store.claim_one().record
        assert claimed.input_ref == made.input_json
        assert json.dumps(json.loads(claimed.input_ref)) == json.dumps(input_ref)

    def test_every_field_comes_back_exactly(self, store: Store) -> None:
        keyed = "tenant 7: é🎈'\"%" if store.has("deduplication") else None
        made = job(
            kind="Az09_.:-" * 16,
            queue="a-b_c.9" + "q" * 57,
            priority=store.capabilities.priority_levels - 1,
            max_attempts=1000,
            idempotency_key=keyed,
            headers={"traceparent": "00-0af7-b7ad-01", "": "", "Zoë": "🎈\n"},
        )
        store.register(made)
        claimed = store.claim_one(queues=[made.queue]).record
        # A driver need not give the fingerprint back, and knows what "now" was.
        assert claimed._replace(fingerprint=None, run_at=None) == made.to_record()._replace(fingerprint=None)

    def test_a_job_without_headers_has_none(self, store: Store) -> None:
        store.register(job())
        assert store.claim_one().record.headers in (None, "{}")

    def test_a_job_for_now_is_due_by_the_stores_clock(self, store: Store) -> None:
        before = store.now()
        store.register(job())
        after = store.now()
        run_at = store.claim_one().record.run_at
        assert run_at is not None
        assert run_at.utcoffset() == timedelta()
        assert before - store.resolution <= run_at <= after + store.resolution

    def test_the_largest_input_comes_back_whole(self, store: Store) -> None:
        most = min(store.capabilities.max_input_ref_bytes, 1024 * 1024)
        made = job(input_ref={"a": "é" * ((most - len('{"a":""}')) // 2)})
        store.register(made)
        assert store.claim_one().record.input_ref == made.input_json

    def test_the_largest_batch_is_stored_whole(self, store: Store) -> None:
        made = jobs(min(store.capabilities.max_register_batch, 10_000))
        registrations = store.register(*made)
        assert [registration.job_id for registration in registrations] == [each.id for each in made]
        assert all(registration.created for registration in registrations)
        claimed = store.claim_all(len(made))
        assert sorted(ids_of(claimed)) == sorted(str(each.id) for each in made)
        assert store.claim(100) == []

    def test_queues_are_kept_apart(self, store: Store) -> None:
        names = ["a", "b", "a.b", "a-b", "a_b", "aa", "default", "0"]
        made = {name: job(queue=name) for name in names}
        store.register(*made.values())
        for name in names:
            assert ids_of(store.claim_all(1, queues=[name])) == [str(made[name].id)]
            assert store.claim(10, queues=[name]) == []

    # Registering again ------------------------------------------------------------------------------------

    @needs("deduplication")
    def test_the_same_job_registered_again_is_not_stored_twice(self, store: Store) -> None:
        """A producer that got no answer repeats itself, with the same id."""
        made = job()
        store.register(made)
        again = store.register(made, client=store.another_client())[0]
        assert (again.job_id, again.created) == (made.id, False)
        assert again.state in (State.READY, None)
        assert not again.conflict
        store.claim_one()
        assert store.claim(10) == []

    @needs("deduplication")
    @pytest.mark.parametrize("state", [State.RUNNING, State.DONE, State.DEAD])
    def test_the_same_job_registered_again_never_runs_again(self, store: Store, state: State) -> None:
        made = store.into(state)
        again = store.register(made)[0]
        assert (again.job_id, again.created) == (made.id, False)
        assert again.state in (state, None)
        assert store.claim(10) == []

    @needs("deduplication", "cancel")
    def test_a_cancelled_job_registered_again_stays_cancelled(self, store: Store) -> None:
        made = store.into(State.CANCELLED)
        again = store.register(made)[0]
        assert (again.job_id, again.created) == (made.id, False)
        assert again.state in (State.CANCELLED, None)
        assert store.claim(10) == []

    @needs("deduplication")
    def test_a_known_job_in_a_batch_does_not_take_the_others_along(self, store: Store) -> None:
        made = jobs(5)
        store.register(made[2])
        created = [registration.created for registration in store.register(*made)]
        assert created == [True, True, False, True, True]
        assert sorted(ids_of(store.claim_all(5))) == sorted(str(each.id) for each in made)
        assert store.claim(10) == []

    @needs("deduplication")
    def test_many_producers_register_the_same_job_once(self, store: Store) -> None:
        made = job()
        clients = [store.another_client() for _ in range(4)]
        answers = store.at_once(*(partial(store.register, made, client=client) for client in clients * 3))
        assert [answer.created for (answer,) in answers].count(True) == 1
        assert {answer.job_id for (answer,) in answers} == {made.id}
        store.claim_one()
        assert store.claim(10) == []

    # Durability -------------------------------------------------------------------------------------------

    @needs("fsync")
    def test_a_registration_outlives_its_client(self, store: Store) -> None:
        client, made = store.another_client(), jobs(3)
        store.register(*made, client=client)
        client.close()
        assert len(store.claim_all(3)) == 3

    def test_a_job_that_failed_keeps_all_that_it_had(self, store: Store) -> None:
        made = job(input_ref={"a": [1.0, "é"]}, headers={"tenant": "acme"}, max_attempts=7)
        store.register(made)
        first = store.claim_one()
        assert store.driver.release(leases_of([first]), timedelta())[0].applied
        again = store.claim_one()
        assert _without_run_at(again.record) == _without_run_at(first.record)

    @needs("scheduling")
    def test_a_run_at_is_kept_to_the_resolution(self, store: Store) -> None:
        run_at = store.now() - HOUR
        run_at = run_at.replace(microsecond=123_457)
        store.register(job(run_at=run_at))
        kept = store.claim_one().record.run_at
        assert kept is not None
        assert abs(kept - run_at) < store.resolution


def _without_run_at(record: JobRecord) -> JobRecord:
    return record._replace(run_at=None, fingerprint=None)

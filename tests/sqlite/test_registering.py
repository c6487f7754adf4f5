"""Registering: what only this store's statements could get wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
from jobcontract_sqlite import registering

from jobcontract.contract import Failure, State
from tests.sqlite.stores import FileStore, record


@pytest.mark.parametrize("largest", [1, 2000, 64 * 1024 * 1024])
def test_a_batch_that_is_cut_by_its_size_is_answered_as_one(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(registering, "_LARGEST_DOCUMENT", largest)
    records = [
        record(idempotency_key=f"key {number % 8}", input_ref={"text": "x" * 900}) for number in range(10)
    ]
    answers = store.driver.register(records)
    assert [answer.created for answer in answers] == [True] * 8 + [False] * 2
    assert [str(answer.job_id) for answer in answers] == [each.id for each in [*records[:8], *records[:2]]]
    assert len(store.claim(100)) == 8


def test_a_thousand_large_inputs_are_one_call(store: FileStore) -> None:
    assert len(store.add(1000, input_ref={"text": "\u20ac" * 30_000})) == 1000


@pytest.mark.parametrize("end", [State.DONE, State.DEAD, State.CANCELLED])
def test_a_job_that_has_ended_is_known_by_its_id_and_by_its_key(store: FileStore, end: State) -> None:
    job = record(idempotency_key="key")
    store.driver.register([job])
    if end is State.CANCELLED:
        store.driver.cancel([job.id])
    else:
        (claimed,) = store.claim()
        if end is State.DONE:
            store.driver.complete([claimed.lease])
        else:
            store.driver.fail([Failure(claimed.lease, "failed", timedelta(0), permanent=True)])
    for again in (job, record(idempotency_key="key")):
        (answer,) = store.driver.register([again])
        assert (str(answer.job_id), answer.created, answer.state) == (job.id, False, end)
    assert store.claim() == []


def test_a_known_job_takes_no_second_key(store: FileStore) -> None:
    job = record()
    store.driver.register([job])
    (answer,) = store.driver.register([job._replace(idempotency_key="key", fingerprint=b"0" * 16)])
    assert (str(answer.job_id), answer.created, answer.conflict) == (job.id, False, False)
    assert store.driver.register([record(idempotency_key="key")])[0].created


def test_a_known_job_is_answered_as_itself_where_another_holds_its_new_key(store: FileStore) -> None:
    job = record()
    store.driver.register([job])
    store.add(idempotency_key="key")
    (answer,) = store.driver.register([job._replace(idempotency_key="key", fingerprint=b"0" * 16)])
    assert (str(answer.job_id), answer.created, answer.conflict) == (job.id, False, False)

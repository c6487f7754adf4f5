"""What a store gives back is untrusted: one spoilt job dies with its reason, and takes no other along."""

from __future__ import annotations

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.store import Store, job, jobs
from jobcontract.contract import JobRecord, State

# JSON that any store takes and no reader can: it was written by another program, or by hand.
POISON: dict[str, str] = {
    "integer of 5,000 digits": '{"a":' + "9" * 5000 + "}",
    "nesting": '{"a":' + "[" * 100 + "]" * 100 + "}",
    "no object": "[1]",
    "null": "null",
    "number beyond a float": '{"a":1e999}',
}


class DecodeChapter(Chapter):
    """Undecodable jobs."""

    @pytest.mark.parametrize("text", POISON.values(), ids=POISON)
    def test_a_spoilt_job_dies_and_the_others_run(self, store: Store, text: str) -> None:
        good = jobs(4)
        spoilt = job().to_record()._replace(input_ref=text)
        store.register(*good[:2])
        store.driver.register([spoilt])
        store.register(*good[2:])
        claimed = [str(claim.job.id) for _ in range(3) for claim in store.backend.claim(limit=10)]
        assert sorted(claimed) == sorted(str(each.id) for each in good)
        _assert_dead(store, spoilt)

    def test_a_driver_hands_it_over_raw(self, store: Store) -> None:
        spoilt = job().to_record()._replace(input_ref=POISON["integer of 5,000 digits"])
        store.driver.register([spoilt])
        assert store.claim_one().record.input_ref == spoilt.input_ref

    def test_a_batch_of_nothing_else_does_not_stop_those_behind(self, store: Store) -> None:
        spoilt = [each.to_record()._replace(input_ref="[1]") for each in jobs(10)]
        store.driver.register(spoilt)
        good = job()
        store.register(good)
        claimed = store.until(lambda: store.backend.claim(limit=5), "the good job is never claimed")
        assert [claim.job.id for claim in claimed] == [good.id]
        for each in spoilt:
            _assert_dead(store, each)

    def test_headers_are_untrusted_too(self, store: Store) -> None:
        spoilt = job().to_record()._replace(headers='{"a":1}')
        store.driver.register([spoilt])
        good = job()
        store.register(good)
        claimed = store.until(lambda: store.backend.claim(limit=5), "the good job is never claimed")
        assert [claim.job.id for claim in claimed] == [good.id]
        _assert_dead(store, spoilt)

    @pytest.mark.parametrize("text", ["", "{", "nonsense", '{"a":NaN}'])
    def test_text_that_is_no_json_kills_its_job_alone(self, store: Store, text: str) -> None:
        good = jobs(4)
        spoilt = job()
        store.register(*good[:2], spoilt, *good[2:])
        store.corrupt(spoilt.id, text)
        claimed = [str(claim.job.id) for _ in range(3) for claim in store.backend.claim(limit=10)]
        assert sorted(claimed) == sorted(str(each.id) for each in good)
        _assert_dead(store, spoilt.to_record())


def _assert_dead(store: Store, spoilt: JobRecord) -> None:
    assert store.rescue_all() == (0, 0)
    assert store.claim(10) == []
    if store.has("lookup"):
        stored = store.stored(spoilt.id)
        assert stored.state is State.DEAD
        assert "stored job" in (stored.last_error or "")
        status = store.backend.get(spoilt.id)
        assert status is not None
        assert (status.job, status.state) == (None, State.DEAD)
        assert status.problem

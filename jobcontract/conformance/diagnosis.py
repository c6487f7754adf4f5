"""`Diagnosis`: what `jobctl doctor` asks. A driver need not have it."""

from __future__ import annotations

import re
from datetime import timedelta

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import through
from jobcontract.conformance.store import Store, job
from jobcontract.contract import State
from jobcontract.side_doors import Diagnosis, Expectations

_APART = timedelta(minutes=1)


class DiagnosisChapter(Chapter):
    """What a driver says of itself is fit to be shown, and costs the jobs nothing."""

    @through(Diagnosis)
    def test_an_ailment_has_a_name_for_programs_and_two_lines_for_people(self, store: Store) -> None:
        for ailment in _door(store).diagnose(Expectations(processes=1_000_000)):
            assert re.fullmatch("[a-z_]+", ailment.name)
            for line in (ailment.finding, ailment.remedy):
                assert line == line.strip(), ailment
                assert line, ailment
                assert "\n" not in line, ailment

    @through(Diagnosis)
    def test_a_diagnosis_changes_nothing(self, store: Store) -> None:
        made = job()
        store.register(made)
        _door(store).diagnose(Expectations())
        (claimed,) = store.claim_all(1)
        assert (claimed.record.id, claimed.lease.attempt) == (str(made.id), 1)
        assert store.driver.complete([claimed.lease])[0].state is State.DONE

    @through(Diagnosis)
    def test_the_clock_is_that_of_the_store(self, store: Store) -> None:
        clock = _door(store).clock()
        if clock is None:
            return
        assert clock.utcoffset() == timedelta()
        assert abs(clock - store.now()) < _APART


def _door(store: Store) -> Diagnosis:
    assert isinstance(store.driver, Diagnosis)
    return store.driver

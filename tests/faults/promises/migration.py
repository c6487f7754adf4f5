"""Promise 9: a move loses nothing, runs nothing twice, changes nothing of a job, and comes to its end.

That no job is lost and no key is two jobs are promises 1 and 4, which are judged over both stores. ``step``
is a command of a coordinator, which may be killed; ``move`` is whoever wants the jobs moved, and gives such
commands; ``set_gate`` is what a store was told to let in; ``final`` lists each store.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.faults.facts import Facts, Leased, Registered
from tests.faults.history import Operation, Outcome
from tests.faults.promises.leases import SETTLING
from tests.faults.promises.violation import Violation

_CREATED_WITHIN = 1.0
"""Seconds by which the clock of a store is known, where only claims tell of it."""


def migrated(facts: Facts) -> Iterator[Violation]:
    """Promise 9."""
    steps = facts.history.of("step")
    if not steps:
        return
    yield from _not_ended(facts, steps)
    yield from _two_homes(facts)
    yield from _ran_in_both(facts)
    yield from _let_in(facts)
    yield from _altered(facts)


def _not_ended(facts: Facts, steps: list[Operation]) -> Iterator[Violation]:
    last = steps[-1]
    if last.outcome is not Outcome.OK:
        yield Violation(9, last.process, f"the migration was not resumed after {last.asked}", (last,))
    elif last.answered and (code := last.answered["code"]):
        yield Violation(9, last.process, f"the last step of the migration ended with {code}", (last,))
    for move in facts.history.of("move"):
        if move.outcome is not Outcome.OK:
            yield Violation(9, "migration", f"did not come to the end of {move.asked}", (move, last))


# -- Where a job is ----------------------------------------------------------------------------------------


def _two_homes(facts: Facts) -> Iterator[Violation]:
    for job_id, finals in facts.finals.items():
        homes = [each for each in finals if each.state not in ("moved", "moving")]
        # What is done goes on being known in both stores, so that its key is known in both.
        if len(homes) > 1 and {each.state for each in homes} != {"done"}:
            says = " and ".join(f"{each.state} in {each.store}" for each in homes)
            yield Violation(9, job_id, f"has two homes: {says}", tuple(each.by for each in homes))


def _ran_in_both(facts: Facts) -> Iterator[Violation]:
    for job_id, leases in facts.leases.items():
        completed = {
            lease.store: each.by
            for lease in leases
            for each in facts.settled.get(lease.token, [])
            if each.by.verb == "complete" and each.applied
        }
        if len(completed) > 1 and not _may_be_there_twice(facts, job_id):
            where = tuple(completed.values())
            yield Violation(9, job_id, f"was completed in {' and in '.join(sorted(completed))}", where)
        for earlier, later in pairwise(sorted(leases, key=lambda lease: lease.by.returned)):
            settled = any(
                each.by.verb in SETTLING and each.may_have_applied
                for each in facts.settled.get(earlier.token, [])
            )
            moved = earlier.store != later.store and not _connection_was_lost(facts, earlier, later)
            if moved and not settled and later.begins < earlier.expires - facts.setting.slack:
                says = f"ran in {later.store} while {earlier.store} had leased it"
                yield Violation(9, job_id, says, (earlier.by, later.by))


def _connection_was_lost(facts: Facts, lease: Leased, later: Leased) -> bool:
    """Whether a broker said so, or the holder was gone by then: its lease is the connection, and may be over
    before its time. Beside a broker this excuses a killed holder of a timed lease, too.
    """
    if not facts.setting.copies:
        return False
    told = any(each.by.verb in SETTLING and each.lost for each in facts.settled.get(lease.token, []))
    gone = (each.by.invoked for each in facts.ended if each.process == lease.by.process)
    return told or any(at < later.by.returned for at in gone)


def _may_be_there_twice(facts: Facts, job_id: str) -> bool:
    """A store that compares no ids was given the job more than once, by who did not know that it had it; or
    may have kept what somebody gave back beside the original.
    """
    if not facts.setting.copies:
        return False
    given_back = facts.settlements(job_id, "fail", "release")
    return len(facts.registered.get(job_id, [])) > 1 or any(not each.applied for each in given_back)


# -- The fence ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shut:
    """While a store certainly let nothing in: from the answer of who shut it to the next who may have opened
    it.
    """

    by: Operation
    begins: float
    ends: float

    def covers(self, operation: Operation) -> bool:
        return self.begins < operation.invoked and operation.returned < self.ends


def _let_in(facts: Facts) -> Iterator[Violation]:
    """What a store let in while it was shut."""
    for shut_by_store, kind in ((_shut(facts, "claims"), "claims"), (_shut(facts, "intake"), "intake")):
        for store, times in shut_by_store.items():
            found = _claimed(facts, store) if kind == "claims" else _registered(facts, store)
            for job_id, says, by in found:
                for shut in (each for each in times if each.covers(by)):
                    fenced = f"{says} {store}, which was shut in epoch {shut.by.asked['epoch']}"
                    yield Violation(9, job_id, fenced, (shut.by, by))


def _shut(facts: Facts, what: str) -> dict[str, list[_Shut]]:
    gates: defaultdict[str, list[Operation]] = defaultdict(list)
    for by in facts.history.of("set_gate"):
        gates[by.store].append(by)
    return {
        store: [
            _Shut(
                by,
                by.returned,
                min(
                    (
                        other.invoked
                        for other in times
                        if other.asked[what] and other.returned > by.invoked and not _refused(other)
                    ),
                    default=math.inf,
                ),
            )
            for by in times
            if not by.asked[what] and by.outcome is Outcome.OK and by.answered == by.asked
        ]
        for store, times in gates.items()
    }


def _refused(gate: Operation) -> bool:
    """The store had seen a later epoch."""
    return gate.answered is not None and gate.answered != gate.asked


def _claimed(facts: Facts, store: str) -> Iterator[tuple[str, str, Operation]]:
    for leases in facts.leases.values():
        for lease in (each for each in leases if each.store == store):
            yield lease.id, "was claimed in", lease.by


def _registered(facts: Facts, store: str) -> Iterator[tuple[str, str, Operation]]:
    for each in _of_store(facts, store):
        if each.answer is not None and each.answer["created"]:
            yield each.id, "was registered in", each.by


def _of_store(facts: Facts, store: str) -> Iterator[Registered]:
    for times in facts.registered.values():
        yield from (each for each in times if each.by.verb == "register" and each.by.store == store)


# -- What a job is -----------------------------------------------------------------------------------------


def _altered(facts: Facts) -> Iterator[Violation]:
    for job_id, times in facts.registered.items():
        first = times[0]
        for lease in facts.leases.get(job_id, []):
            if first.print and lease.print and lease.print != first.print and job_id not in facts.expected:
                says = f"is another in {lease.store} than was registered"
                yield Violation(9, job_id, says, (first.by, lease.by))
        told = next((each for each in times if each.acknowledged), None)
        for final in facts.finals.get(job_id, []):
            if told is None or final.created is None:
                continue
            ahead = max(facts.clock.values(), default=-math.inf)
            late = final.created - ahead - told.by.returned
            if math.isfinite(late) and late > _CREATED_WITHIN:
                says = f"was created in {final.store} {late:.1f} s after it had been registered"
                yield Violation(9, job_id, says, (told.by, final.by))

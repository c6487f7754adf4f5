"""The judge: a history in, the promises that it breaks out, each with its subject and the operations.

Sound before complete: what is accused was broken whatever the unknown operations did. The tests plant a
violation of each promise, and run products that are broken on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.faults.facts import Facts
from tests.faults.history import History
from tests.faults.promises import jobs, leases, loops
from tests.faults.promises.violation import Violation

Check = Callable[[Facts], Iterator[Violation]]


@dataclass(frozen=True)
class Promise:
    """One of the promises of the design, and what looks for its violations."""

    number: int
    text: str
    check: Check


PROMISES = (
    Promise(1, "A registration that returned is neither lost nor forgotten.", jobs.lost),
    Promise(2, "A rolled-back transaction leaves no job, no outbox row, no key.", jobs.rolled_back),
    Promise(3, "No two valid leases of a job overlap; only a current token changes it.", leases.fenced),
    Promise(4, "At most one job per queue and key within retention.", jobs.one_per_key),
    Promise(5, "Attempts never decrease; a job is dead only with a reason.", leases.attempts),
    Promise(6, "No job is claimed before its run_at, and a due one soon.", leases.due),
    Promise(7, "A worker that is killed loses no job.", leases.rescued),
    Promise(8, "A committed outbox row is published; a crash repeats a window at most.", loops.published),
    Promise(9, "A migration that is killed loses nothing, runs nothing twice, resumes.", loops.migrated),
    Promise(10, "A shutdown finishes or gives back what it holds, and burns no attempt.", loops.shut_down),
    Promise(11, "Every loop works again by itself after an outage.", loops.recovered),
    Promise(12, "One poisoned row, bad target or unknown kind stops no other.", jobs.odd_ones),
)


def check(history: History, promises: frozenset[int] | None = None) -> list[Violation]:
    """What `history` violates, promise by promise; all of them, or only of `promises`."""
    facts = Facts(history)
    return [
        violation
        for promise in PROMISES
        if promises is None or promise.number in promises
        for violation in promise.check(facts)
    ]

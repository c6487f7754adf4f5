"""The judge: a history in, the promises that it breaks out, each with its subject and the operations.

Sound before complete: what is accused was broken whatever the unknown operations did. The tests plant a
violation of each promise, and run products that are broken on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.faults.facts import Facts
from tests.faults.history import History
from tests.faults.promises import jobs, leases, loops, migration
from tests.faults.promises.violation import Violation

Check = Callable[[Facts], Iterator[Violation]]


@dataclass(frozen=True)
class Promise:
    """One of the promises of the design, and what looks for its violations."""

    number: int
    text: str
    check: Check
    holds: str = "every store"
    """Where, and at which setting, as far as it does not hold everywhere."""


DURABLE = "every store, at the setting that a run declares"
TRANSACTIONS = "PostgreSQL and SQLite; any store behind an outbox"
IDS = "every store that compares ids: RabbitMQ does not, see below"
KEYS = "every store that compares ids, and any store behind an outbox"
TIMED = "PostgreSQL, SQLite, Redis; at RabbitMQ what a worker held comes back when its connection ends"
OUTBOXES = "an outbox in PostgreSQL, before Redis and RabbitMQ"
BURNS = "every store; attempts are not judged on RabbitMQ, see below"
PAIRS = "the pairs of stores below; all that can be moved between are walked through in `tests/migrate`"
CLOCKS = "every store; SQLite goes by the clock of each process"

PROMISES = (
    Promise(1, "A registration that returned is neither lost nor forgotten.", jobs.lost, DURABLE),
    Promise(
        2, "A rolled-back transaction leaves no job, no outbox row, no key.", jobs.rolled_back, TRANSACTIONS
    ),
    Promise(3, "No two valid leases of a job overlap; only a current token changes it.", leases.fenced, IDS),
    Promise(4, "At most one job per queue and key within retention.", jobs.one_per_key, KEYS),
    Promise(5, "Attempts never decrease; a job is dead only with a reason.", leases.attempts, IDS),
    Promise(6, "No job is claimed before its run_at, and a due one soon.", leases.due, CLOCKS),
    Promise(7, "A worker that is killed loses no job.", leases.rescued, TIMED),
    Promise(
        8, "A committed outbox row is published; a crash repeats a window at most.", loops.published, OUTBOXES
    ),
    Promise(
        9, "A migration that is killed loses nothing, runs nothing twice, resumes.", migration.migrated, PAIRS
    ),
    Promise(
        10, "A shutdown finishes or gives back what it holds, and burns no attempt.", loops.shut_down, BURNS
    ),
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

"""What producers will register: decided by a seed, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from jobcontract import Job

Intent = Literal["alone", "commit", "rollback"]

FIRST_MILLISECOND = 1_750_000_000_000
"""What the ids of all plans begin with: they are the same each time, and in the order of their making."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs that go in one call, or in one transaction."""

    intends: Intent
    drafts: list[dict[str, Any]]
    holds: float = 0.0
    """Seconds for which the transaction stays open: others that began later commit before it."""

    def jobs(self, now: datetime) -> list[Job]:
        """The jobs themselves; those for later count from `now`."""
        return [_job(draft, now) for draft in self.drafts]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one producer does. The flags say what the store can do."""

    seed: str
    """Of the run, and the name of the producer: each has jobs of its own, and keys in common."""
    jobs: int
    keys: bool = True
    future: bool = True
    transactions: bool = True
    hold: float = 0.0
    """Seconds for which some transactions stay open."""
    hold_share: float = 0.1
    """How many of them do."""
    slow: float = 0.0
    """Seconds that the longest handlers take: more than a lease, so that it has to be renewed."""
    slow_share: float = 0.004
    """How many of the jobs have such a handler."""
    endless: bool = False
    """Whether it goes on after `jobs`, until nobody asks for more."""

    def batches(self) -> Iterator[Batch]:
        """All of them, one after the other."""
        chance = random.Random(self.seed)
        made = 0
        while made < self.jobs or self.endless:
            size = chance.choice([1, 1, 2, 5, 20, 50])
            if not self.endless:
                size = min(size, self.jobs - made)
            intends: Intent = "alone"
            holds = 0.0
            if self.transactions and chance.random() < 0.3:
                intends = "rollback" if chance.random() < 0.3 else "commit"
                holds = self.hold if chance.random() < self.hold_share else 0.0
            drafts = [self._draft(chance, made + number) for number in range(size)]
            yield Batch(intends, drafts, holds)
            made += size

    def _draft(self, chance: random.Random, number: int) -> dict[str, Any]:
        draft: dict[str, Any] = {
            "id": _job_id(chance, number),
            "kind": "work",
            "priority": 0,
            "max_attempts": chance.choice([1, 2, 3, 5, 20]),
            "input_ref": {"fate": _fate(chance), "ms": chance.choice([0, 0, 0, 1, 5, 20])},
        }
        if self.slow and chance.random() < self.slow_share:
            draft["input_ref"] = {"fate": "done", "ms": round(self.slow * 1000)}
            draft["max_attempts"] = 20
        if self.keys and chance.random() < 0.15:
            draft["idempotency_key"] = f"key {chance.randrange(max(2, self.jobs // 10))}"
        if self.future and chance.random() < 0.05:
            draft["due_in"] = chance.choice([0.3, 1.0, 2.0])
        return draft


def _fate(chance: random.Random) -> str:
    """What the handler does: see `tests.faults.programs`."""
    return chance.choices(
        ["done", "retry", "raise", "snooze", "die"], weights=[84, 5, 5, 3, 3]
    )[0]  # fmt: skip


def _job_id(chance: random.Random, number: int) -> str:
    made_at = FIRST_MILLISECOND + number
    return str(UUID(int=made_at << 80 | 0x7 << 76 | 0b10 << 62 | chance.getrandbits(61)))


def _job(draft: dict[str, Any], now: datetime) -> Job:
    fields = dict(draft)
    due_in = fields.pop("due_in", None)
    if due_in is not None:
        fields["run_at"] = now + timedelta(seconds=due_in)
    return Job(**fields)


def now() -> datetime:
    """By the clock of this process."""
    return datetime.now(UTC)

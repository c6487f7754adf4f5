"""A batch of rows on their way out: what is taken, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol

from jobcontract.side_doors import Row


class Waiting(NamedTuple):
    """A row of the outbox, as the relay takes it."""

    seq: int
    job_id: str
    queue: str
    ordering_key: str | None
    envelope: str
    attempts: int
    """How often the target has refused it."""
    ready: bool
    """Whether it may go now: due, not parked, nobody else's. Only in a lane can it be otherwise."""

    @classmethod
    def of(cls, row: Row) -> Waiting:
        """From the columns of claim.sql and lane_rows.sql."""
        seq, job_id, queue, ordering_key, envelope, attempts, ready, *_ = row
        return cls(seq, job_id, queue, ordering_key, envelope, attempts, bool(ready))


class Refusal(NamedTuple):
    """A row that its target does not take, and why."""

    row: Waiting
    reason: str
    retry_in: timedelta = timedelta()


class Parked(NamedTuple):
    """A refusal was counted: whether the row is parked by it."""

    job_id: str
    parked: bool


@dataclass
class Batch:
    """Rows that are ours until the block of `Source.take` ends, and what became of them.

    Rows that are in none of the results when the block ends go back untouched.
    """

    rows: list[Waiting]
    """In no particular order to each other."""
    lanes: list[list[Waiting]]
    """The rows of one ordering key each, to be published one after the other."""
    until: float = math.inf
    """By `time.monotonic`: what was not begun by then is not ours any more."""
    published: list[Waiting] = field(default_factory=list[Waiting])
    refused: list[Refusal] = field(default_factory=list[Refusal])
    counted: list[Parked] = field(default_factory=list[Parked])
    """Filled in when the block ends: what became of the refusals."""

    @property
    def size(self) -> int:
        """How many rows it has."""
        return len(self.rows) + sum(map(len, self.lanes))


class Source(Protocol):
    """Where the rows of one target come from. For one thread at a time."""

    def take(self, limit: int) -> AbstractContextManager[Batch]:
        """Due rows, at most `limit` of each kind. At the end of the block what was published is deleted and
        what was refused is counted, in one transaction.

        When the block raises, or the process dies in it, the rows are everybody's again.
        """
        ...

    def beside(self) -> Source:
        """A source of the same rows for a thread that helps with a backlog: it may overlook what is not in
        line, which this one finds.
        """
        ...


def contiguous(lane: Sequence[Waiting], head: int, ours: frozenset[int] | set[int]) -> list[Waiting]:
    """The rows at the beginning of `lane` that may go: from `head` to the first that may not, or that is not
    among `ours`. None when `head` does not come first: then another transaction has put one before it.
    """
    if not lane or lane[0].seq != head:
        return []
    found: list[Waiting] = []
    for row in lane:
        if not row.ready or row.seq not in ours:
            break
        found.append(row)
    return found

"""What a worker holds: claimed jobs, from the claim until the store has taken their outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jobcontract.context import JobContext
from jobcontract.contract import Claim
from jobcontract.handlers import Handler

MOST_IDS = 100
"""How many job ids one log record carries."""


def describe(claim: Claim) -> dict[str, object]:
    """The `extra` of a log record about a claim. Never the input, never the token."""
    return {
        "job_id": str(claim.job.id),
        "kind": claim.job.kind,
        "queue": claim.job.queue,
        "attempt": claim.attempt,
    }


@dataclass(slots=True, eq=False)
class Hold:
    """One claimed job in this worker. All instants are seconds of `time.monotonic`.

    ``buffered -> running -> finished -> settled``; `lost` can come at any time. Several threads write here,
    each its own fields, and whoever acts on one checks it again where it matters: the store's fence decides.
    """

    claim: Claim
    handler: Handler
    context: JobContext
    lease: float
    """What the next renewal asks for, in seconds."""
    deadline: float
    """When the lease may be over: counted from before the call that gave or renewed it."""
    renew_at: float
    """When the next renewal is due: a third of the lease after the call that gave it."""
    claimed_at: float
    """When the claim came back."""
    started_at: float | None = None
    finished_at: float | None = None
    """When its first outcome was known: the handler's return, its timeout, or a release."""
    settled: bool = False
    """An outcome is on its way to the store; later ones are dropped. Written by the settler only."""
    lost: bool = False
    """The store said that the lease is not ours. Written by the renewer only."""
    slot_until: float | None = None
    """When its slots under limits across processes may be over, if it has any."""
    interrupt: Callable[[], None] | None = None
    """Cancels the task of an async handler."""

    def cancel(self, reason: str) -> None:
        """Tell the handler to stop."""
        self.context.cancelled.set(reason)
        if self.interrupt is not None:
            self.interrupt()

    def granted(self, asked_at: float, lease: float) -> None:
        """The store gave the lease for `lease` seconds, in a call that began at `asked_at`."""
        if lease == self.lease and asked_at + lease < self.deadline:
            return  # the answer was long on its way, and a later call's overtook it
        self.lease = lease
        self.deadline = asked_at + lease
        self.renew_at = asked_at + lease / 3


class Holdings:
    """Everything that this worker holds. Changed in batches, so that its lock is no cost per job."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holds: dict[int, Hold] = {}
        self.on_gone: Callable[[Sequence[Hold]], None] | None = None
        """Told of those that are not held any more, by whoever discards them."""

    def add(self, holds: Iterable[Hold]) -> None:
        """These are held now."""
        with self._changed:
            self._holds.update({id(hold.claim): hold for hold in holds})

    def discard(self, holds: Iterable[Hold]) -> None:
        """These are not held any more."""
        gone = list(holds)
        if self.on_gone is not None:
            self.on_gone(gone)
        with self._changed:
            for hold in gone:
                self._holds.pop(id(hold.claim), None)
            if not self._holds:
                self._changed.notify_all()

    def of(self, claim: Claim) -> Hold | None:
        """The hold of `claim`, or None when it is not held any more."""
        with self._changed:
            return self._holds.get(id(claim))

    def all(self) -> list[Hold]:
        """A copy."""
        with self._changed:
            return list(self._holds.values())

    def wait_until_empty(self, timeout: float) -> bool:
        """Block until nothing is held, `timeout` seconds at the longest; whether nothing is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._holds, timeout)

    def __len__(self) -> int:
        return len(self._holds)

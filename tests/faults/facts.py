"""The history of a run, sorted by what the promises ask about: jobs, leases, processes, faults."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from statistics import median
from typing import Any, Literal

from tests.faults.history import History, Operation, Outcome

_CALLS = ("register", "transaction", "claim", "complete", "fail", "extend", "release", "rescue")
_WAITED = 0.4
"""Seconds after which an answer was waited for."""
_WRONG = 60.0
"""Seconds by which a wall clock is wrong on purpose, at least."""
FINISHED = frozenset({"done", "dead", "cancelled"})


@dataclass(frozen=True, slots=True)
class Setting:
    """What the promises depend on: the store, and how the run was set up. Noted by the runner."""

    lease: Literal["timed", "connection"] = "timed"
    lookup: bool = True
    """Whether the listing at the end has every job; False where only the dead can be listed."""
    copies: bool = False
    """Whether the store may hold a job twice, because it compares no ids: "at least once" in full."""
    ledger: bool = True
    """Whether handlers wrote down what they did."""
    outbox: str = ""
    """The name of the store that holds the outbox, where there is one."""
    window: int = 0
    """How many jobs a relay may have sent without knowing that they arrived."""
    rescue: float = 1.0
    """Seconds between two rescues of a worker."""
    margin: float = 30.0
    """Seconds that a busy machine may add to anything."""
    slack: float = 0.05
    """Seconds that two readings of one clock may differ, by rounding."""


@dataclass(frozen=True, slots=True)
class Registered:
    """One job in one registration."""

    by: Operation
    id: str
    queue: str
    key: str | None
    run_at: float | None
    max_attempts: int
    intends: Literal["alone", "commit", "rollback"]
    answer: dict[str, Any] | None
    print: str | None
    """Of all that stays as it was registered; where somebody took it."""

    @property
    def acknowledged(self) -> bool:
        """The producer was told that it is stored."""
        return self.by.outcome is Outcome.OK and self.intends != "rollback"

    @property
    def rolled_back(self) -> bool:
        """Certainly nothing is stored by it."""
        return self.intends == "rollback" or self.by.outcome is Outcome.FAIL


@dataclass(frozen=True, slots=True)
class Leased:
    """One job in one claim. Instants are by the clock of the store."""

    by: Operation
    id: str
    token: str
    attempt: int
    refunded: int
    begins: float
    expires: float
    store: str
    print: str | None
    """Of what was handed over, where somebody took it: see `Registered.print`."""

    @property
    def spent(self) -> int:
        return self.attempt - self.refunded

    def __str__(self) -> str:
        return f"attempt {self.attempt} ({self.by})"


@dataclass(frozen=True, slots=True)
class Settled:
    """One job in a complete, fail, extend or release."""

    by: Operation
    id: str
    token: str
    permanent: bool
    verdict: dict[str, Any] | None
    """None when it is unknown."""

    @property
    def applied(self) -> bool:
        return self.verdict is not None and bool(self.verdict["applied"])

    @property
    def lost(self) -> bool:
        """The holder was told that its lease is over."""
        return self.verdict is not None and not self.verdict["applied"]

    @property
    def may_have_applied(self) -> bool:
        return not self.lost and self.by.outcome is not Outcome.FAIL


@dataclass(frozen=True, slots=True)
class Final:
    """A job as a store has it at the end."""

    by: Operation
    id: str
    store: str
    state: str
    attempt: int
    created: float | None
    """By the clock of the store in which the job was registered; where somebody looked."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that ended: signalled when the operation was invoked, gone when it returned."""

    by: Operation
    process: str
    signal: str
    """The last that it was sent: "KILL", "TERM", or nothing."""
    code: int


@dataclass(frozen=True)
class Facts:
    """Everything that can be asked about a history. Looked up once, when first asked."""

    history: History

    @cached_property
    def setting(self) -> Setting:
        known = {each.name for each in fields(Setting)}
        noted = [each.asked for each in self.history.of("setting")]
        return Setting(**{name: value for asked in noted for name, value in asked.items() if name in known})

    @cached_property
    def registered(self) -> dict[str, list[Registered]]:
        """By id, in the order of the calls. Also what a relay registers at its target."""
        found: defaultdict[str, list[Registered]] = defaultdict(list)
        for by in self.history.of("register", "transaction"):
            for job, answer in zip(by.asked["jobs"], _each(by, by.asked["jobs"]), strict=True):
                found[job["id"]].append(
                    Registered(
                        by,
                        job["id"],
                        job["queue"],
                        job["key"],
                        job["run_at"],
                        job["max_attempts"],
                        by.asked.get("intends", "alone"),
                        answer,
                        job.get("print"),
                    )
                )
        return dict(found)

    @cached_property
    def holders(self) -> dict[str, Operation]:
        """The jobs that some producer was told about, its own or the holder of its key; by whom first."""
        found: dict[str, Operation] = {}
        for each in chain.from_iterable(self.registered.values()):
            if each.acknowledged and each.answer is not None:
                found.setdefault(each.answer["id"], each.by)
        return found

    @cached_property
    def rolled_back(self) -> set[str]:
        """The jobs that must not exist."""
        return {
            job_id for job_id, times in self.registered.items() if all(each.rolled_back for each in times)
        }

    @cached_property
    def leases(self) -> dict[str, list[Leased]]:
        """By id, in the order in which the claims were answered."""
        found: defaultdict[str, list[Leased]] = defaultdict(list)
        for by in sorted(self.history.of("claim"), key=lambda each: each.returned):
            for each in by.items:
                expires = each["expires"]
                begins = expires - by.asked["lease"]
                found[each["id"]].append(
                    Leased(
                        by,
                        each["id"],
                        each["token"],
                        each["attempt"],
                        each["refunded"],
                        begins,
                        expires,
                        each.get("store", by.store),
                        each.get("print"),
                    )
                )
        return dict(found)

    @cached_property
    def settled(self) -> dict[str, list[Settled]]:
        """By token, in the order of the calls."""
        found: defaultdict[str, list[Settled]] = defaultdict(list)
        for by in self.history.of("complete", "fail", "extend", "release"):
            for each, verdict in zip(by.asked["leases"], _each(by, by.asked["leases"]), strict=True):
                found[each["token"]].append(
                    Settled(by, each["id"], each["token"], bool(each.get("permanent")), verdict)
                )
        return dict(found)

    def settlements(self, job_id: str, *verbs: str) -> Iterator[Settled]:
        """Those of one job with one of the verbs, lease after lease."""
        for lease in self.leases.get(job_id, []):
            for each in self.settled.get(lease.token, []):
                if each.by.verb in verbs:
                    yield each

    @cached_property
    def finals(self) -> dict[str, list[Final]]:
        """By id: usually one."""
        found: defaultdict[str, list[Final]] = defaultdict(list)
        for by in self.history.of("final"):
            for each in by.items:
                found[each["id"]].append(
                    Final(by, each["id"], by.store, each["state"], each["attempt"], each.get("created"))
                )
        return dict(found)

    @cached_property
    def business(self) -> set[str] | None:
        """The jobs whose producer's own row is in its database at the end; None when nobody looked."""
        noted = self.history.of("business")
        return {job_id for by in noted for job_id in by.asked["ids"]} if noted else None

    @cached_property
    def expected(self) -> dict[str, str]:
        """What has to become of the odd jobs: "dead", or "stays" ready."""
        return {job_id: fate for by in self.history.of("expect") for job_id, fate in by.asked["jobs"].items()}

    @cached_property
    def ran(self) -> set[str]:
        """The jobs whose handler came to its end, by the ledger."""
        return {by.asked["id"] for by in self.history.of("end")}

    @cached_property
    def shifted(self) -> list[Operation]:
        """Starts of handlers in processes whose wall clock is not that of the others."""
        starts = [by for by in self.history.of("start") if "wall" in by.asked]
        if not starts:
            return []
        usual = median(by.asked["wall"] - by.invoked for by in starts)
        return [by for by in starts if abs(by.asked["wall"] - by.invoked - usual) > _WRONG]

    def at_stake(self, moment: float) -> list[str]:
        """The acknowledged jobs that nobody had settled then, the odd ones aside: a store that forgets them
        is found out.
        """
        return [
            job_id
            for job_id, told in self.holders.items()
            if told.returned < moment
            and job_id not in self.expected
            and not any(
                each.by.invoked < moment and each.may_have_applied
                for each in self.settlements(job_id, "complete", "fail")
            )
        ]

    def felt(self, fault: Operation) -> bool:
        """Whether somebody who was there got no answer meanwhile, or a refusal, or waited for it."""
        return any(
            each.invoked < fault.returned
            and each.returned > fault.invoked
            and (each.outcome is not Outcome.OK or each.returned - each.invoked > _WAITED)
            for each in self.history.of(*_CALLS)
        )

    @cached_property
    def operated(self) -> set[str]:
        """The jobs that an operator cancelled or requeued, or tried to."""
        return {job_id for by in self.history.of("cancel", "requeue") for job_id in by.asked["ids"]}

    @cached_property
    def ended(self) -> list[Ended]:
        """The processes that ended."""
        return [
            Ended(by, by.asked["process"], by.asked["signal"], by.answered["code"])
            for by in self.history.of("exit")
            if by.answered is not None
        ]

    @cached_property
    def faults(self) -> list[Operation]:
        """From the first moment of each to the last; without those that struck nobody."""
        return [each for each in self.history.of("fault") if each.outcome is not Outcome.FAIL]

    def undisturbed(self, begins: float, ends: float) -> float:
        """Seconds between two instants (monotonic) in which no fault was under way."""
        cuts = sorted(
            (max(begins, each.invoked), min(ends, each.returned))
            for each in self.faults
            if each.invoked < ends and each.returned > begins
        )
        left, position = 0.0, begins
        for start, stop in cuts:
            left += max(0.0, start - position)
            position = max(position, stop)
        return left + max(0.0, ends - position)

    @cached_property
    def clock(self) -> dict[str, float]:
        """By store: the least that its clock is ahead of `time.monotonic`, as the claims show.

        A claim took its instant between its call and its answer, so that each gives a bound from either side.
        """
        found: defaultdict[str, float] = defaultdict(lambda: -math.inf)
        for lease in chain.from_iterable(self.leases.values()):
            found[lease.store] = max(found[lease.store], lease.begins - lease.by.returned)
        return dict(found)


def _each(by: Operation, asked: Sequence[object]) -> Sequence[dict[str, Any] | None]:
    return by.items if by.items else [None for _ in asked]

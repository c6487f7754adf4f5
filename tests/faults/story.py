"""Histories made up by hand, for the checker's own tests."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tests.faults.history import History, Operation, Outcome

AHEAD = 1_000_000.0
"""How far the store's clock is ahead of the monotonic one in these stories."""


@dataclass(slots=True)
class Story:
    """Each call is an operation of a tenth of a second, one after the other unless `now` is set."""

    now: float = 100.0
    operations: list[Operation] = field(default_factory=list[Operation])

    def tell(
        self,
        verb: str,
        asked: dict[str, Any],
        answered: Any = None,
        *,
        by: str = "worker-1",
        store: str = "a",
        outcome: Outcome = Outcome.OK,
        lasts: float = 0.1,
    ) -> None:
        """Any operation."""
        ends = math.inf if outcome is Outcome.UNKNOWN else self.now + lasts
        known = answered if outcome is Outcome.OK else None
        number = len(self.operations) + 1
        self.operations.append(Operation(by, number, verb, store, self.now, ends, outcome, asked, known))
        self.now += lasts + 0.001

    def setting(self, **settings: Any) -> None:
        self.tell("setting", settings, by="runner", lasts=0)

    def register(
        self,
        job: str,
        *,
        key: str | None = None,
        holder: str | None = None,
        run_at: float | None = None,
        max_attempts: int = 5,
        print: str | None = None,
        intends: str = "alone",
        by: str = "producer",
        store: str = "a",
        outcome: Outcome = Outcome.OK,
    ) -> None:
        """`run_at` is by the story's `now`; `holder` is the job that has the key."""
        described = {
            "id": job,
            "queue": "default",
            "key": key,
            "run_at": None if run_at is None else run_at + AHEAD,
            "max_attempts": max_attempts,
            "print": print,
        }
        answer = {"id": holder or job, "created": holder is None, "state": "ready", "conflict": False}
        verb = "register" if intends == "alone" else "transaction"
        asked: dict[str, Any] = {"jobs": [described]} | ({} if intends == "alone" else {"intends": intends})
        self.tell(verb, asked, [answer], by=by, store=store, outcome=outcome)

    def claim(
        self,
        job: str,
        attempt: int = 1,
        *,
        token: str | None = None,
        lease: float = 10.0,
        refunded: int = 0,
        print: str | None = None,
        by: str = "worker-1",
        store: str = "a",
    ) -> str:
        """The token."""
        token = token or f"{job}/{attempt}"
        answer = {
            "id": job,
            "token": token,
            "attempt": attempt,
            "refunded": refunded,
            "expires": self.now + 0.05 + AHEAD + lease,
            "print": print,
        }
        self.tell("claim", {"lease": lease}, [answer], by=by, store=store)
        return token

    def settle(
        self,
        verb: str,
        token: str,
        *,
        applied: bool = True,
        state: str | None = None,
        at: float | None = None,
        by: str = "worker-1",
        store: str = "a",
        outcome: Outcome = Outcome.OK,
        **asked: Any,
    ) -> None:
        """`at` is by the story's `now`."""
        job, _, attempt = token.partition("/")
        verdict = {"applied": applied, "state": state, "at": None if at is None else at + AHEAD}
        lease = {"id": job, "token": token, "attempt": int(attempt)} | asked
        self.tell(verb, {"leases": [lease]}, [verdict], by=by, store=store, outcome=outcome)

    def run(self, job: str, *, by: str = "worker-1") -> None:
        """A handler, from its start to its end."""
        self.tell("start", {"id": job}, by=by)
        self.tell("end", {"id": job}, by=by)

    def finish(self, job: str, attempt: int = 1, *, by: str = "worker-1", store: str = "a") -> None:
        """Claimed, run, completed."""
        token = self.claim(job, attempt, by=by, store=store)
        self.run(job, by=by)
        self.settle("complete", token, by=by, store=store, state="done")

    def fault(self, name: str, lasts: float = 1.0) -> None:
        self.tell("fault", {"name": name}, by="nemesis", lasts=lasts)

    def exit(self, process: str, signal: str, code: int = 0) -> None:
        asked = {"process": process, "signal": signal}
        self.tell("exit", asked, {"code": code}, by="runner", lasts=0)

    def step(self) -> None:
        """A command of a coordinator."""
        self.tell("step", {"to": "sealed"}, {"code": 0}, by="coordinator-1")

    def gate(
        self,
        epoch: int,
        *,
        intake: bool = True,
        claims: bool = True,
        holds: int | None = None,
        store: str = "a",
    ) -> None:
        """What a store is told to let in; `holds` is a later epoch that it has seen."""
        asked = {"epoch": epoch, "intake": intake, "claims": claims}
        self.tell("set_gate", asked, asked | {"epoch": holds or epoch}, by="coordinator-1", store=store)

    def final(
        self, *, store: str = "a", attempt: int = 1, created: float | None = None, **states: str
    ) -> None:
        """What the store has at the end: ``job="done"``; `created` is by the story's `now`."""
        at = None if created is None else created + AHEAD
        listed = [
            {"id": job, "state": state, "attempt": attempt, "created": at} for job, state in states.items()
        ]
        self.tell("final", {}, listed, by="runner", store=store)

    @property
    def history(self) -> History:
        return History(sorted(self.operations, key=lambda each: each.invoked))

"""Promises about who may run a job, and when: 3, 5, 6 and 7."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.faults.facts import Ended, Facts, Leased, Settled
from tests.faults.history import Operation
from tests.faults.promises.violation import Violation

SETTLING = ("complete", "fail", "release")


def _in_time(lease: Leased) -> tuple[float, int]:
    return lease.begins, lease.attempt


def fenced(facts: Facts) -> Iterator[Violation]:
    """Promise 3."""
    for job_id, leases in facts.leases.items():
        ordered = sorted(leases, key=_in_time)
        if facts.setting.lease == "timed":
            for earlier, later in pairwise(ordered):
                yield from _overlap(facts, earlier, later)
        for lease in leases:
            yield from _stale(facts, lease)
        yield from _untold(facts, job_id)
    for lease in (
        lease for leases in facts.leases.values() for lease in leases if facts.setting.lease == "timed"
    ):
        yield from _afterexpiry(facts, lease)
    tokens: dict[str, Leased] = {}
    for lease in (lease for leases in facts.leases.values() for lease in leases):
        if lease.token in tokens:
            yield Violation(
                3, lease.id, "has a token that was given before", (tokens[lease.token].by, lease.by)
            )
        tokens[lease.token] = lease


def _overlap(facts: Facts, earlier: Leased, later: Leased) -> Iterator[Violation]:
    """The lease of `earlier` was valid when `later` began, and its holder had not given it up."""
    if later.begins >= expiry(facts, earlier) - facts.setting.slack or earlier.id in facts.operated:
        return
    given_up = any(
        each.by.verb in SETTLING and each.may_have_applied and each.by.invoked <= later.by.returned
        for each in facts.settled.get(earlier.token, [])
    )
    if not given_up:
        says = f"was claimed while the lease of attempt {earlier.attempt} was valid"
        yield Violation(3, earlier.id, says, (earlier.by, later.by))


def expiry(facts: Facts, lease: Leased) -> float:
    """When the lease ended at the earliest, as far as its holder was told."""
    renewed = [
        each
        for each in facts.settled.get(lease.token, [])
        if each.by.verb == "extend" and each.applied and each.verdict is not None and each.verdict["at"]
    ]
    if not renewed:
        return lease.expires
    last = max(renewed, key=lambda each: each.by.returned)
    return float(last.verdict["at"]) if last.verdict else lease.expires


def _stale(facts: Facts, lease: Leased) -> Iterator[Violation]:
    """Something was done with the token of a lease after the job was somebody else's."""
    for each in facts.settled.get(lease.token, []):
        if not each.applied:
            continue
        for other in facts.leases[lease.id]:
            if (
                other.attempt > lease.attempt
                and other.by.returned < each.by.invoked
                and not facts.setting.copies
            ):
                stale = f"{each.by.verb} with the token of attempt {lease.attempt}"
                says = f"{stale} worked during attempt {other.attempt}"
                yield Violation(3, lease.id, says, (lease.by, other.by, each.by))


def _afterexpiry(facts: Facts, lease: Leased) -> Iterator[Violation]:
    settlements = facts.settled.get(lease.token, [])
    for index, each in enumerate(settlements):
        if not each.applied:
            continue
        ahead = facts.clock[lease.store]
        expiry = max([lease.expires, *(_possible_expiry(other) for other in settlements[:index])])
        if each.by.invoked + ahead - facts.setting.slack > expiry:
            late = each.by.invoked + ahead - expiry
            says = f"{each.by.verb} worked {late:.2f} s after the lease of attempt {lease.attempt} ran out"
            yield Violation(3, lease.id, says, (lease.by, each.by))


def _possible_expiry(each: Settled) -> float:
    """The latest to which this may have extended the lease."""
    if each.by.verb != "extend" or each.lost:
        return -math.inf
    return math.inf if each.verdict is None else float(each.verdict["at"])


def _untold(facts: Facts, job_id: str) -> Iterator[Violation]:
    """A store that says "lost" to who held the lease, and takes the completion all the same."""
    finals = [final for final in facts.finals.get(job_id, []) if final.state == "done"]
    if not finals or any(each.may_have_applied for each in facts.settlements(job_id, "complete")):
        return
    refused = [each.by for each in facts.settlements(job_id, "complete") if each.lost]
    says = (
        "is done, and whoever completed it was told that its lease was lost"
        if refused
        else "is done, and nobody completed it"
    )
    yield Violation(3, job_id, says, (*refused, finals[0].by))


def attempts(facts: Facts) -> Iterator[Violation]:
    """Promise 5."""
    for job_id, leases in facts.leases.items():
        if not facts.setting.copies:
            for earlier, later in pairwise(sorted(leases, key=_in_time)):
                if later.attempt <= earlier.attempt:
                    says = f"attempt {later.attempt} came after attempt {earlier.attempt}"
                    yield Violation(5, job_id, says, (earlier.by, later.by))
        yield from _dead_too_soon(facts, job_id)


def _dead_too_soon(facts: Facts, job_id: str) -> Iterator[Violation]:
    finals = [final for final in facts.finals.get(job_id, []) if final.state == "dead"]
    if not finals or job_id in facts.operated or job_id not in facts.registered or facts.setting.copies:
        return
    if any(each.permanent and each.may_have_applied for each in facts.settlements(job_id, "fail")):
        return
    given_back = sum(1 for each in facts.settlements(job_id, "release") if each.applied)
    spent = finals[0].attempt - given_back
    most = facts.registered[job_id][0].max_attempts
    if spent < most:
        says = f"is dead after {spent} of {most} attempts, and nobody failed it for good"
        yield Violation(5, job_id, says, (finals[0].by,))


def due(facts: Facts) -> Iterator[Violation]:
    """Promise 6. `probe` is a job that a runner registered for now while workers had nothing to do."""
    for job_id, leases in facts.leases.items():
        if job_id in facts.operated:
            continue
        times = facts.registered.get(job_id, [])
        run_at = times[0].run_at if times else None
        for lease in leases if facts.setting.lease == "timed" else []:
            if run_at is not None and lease.begins < run_at - facts.setting.slack:
                says = f"was claimed {run_at - lease.begins:.2f} s before its run_at"
                yield Violation(6, job_id, says, (times[0].by, lease.by))
            for each in facts.settled.get(lease.token, []):
                if (
                    each.by.verb in ("fail", "release")
                    and each.applied
                    and each.verdict
                    and each.verdict["at"]
                ):
                    run_at = float(each.verdict["at"])
    yield from late(facts, 6)


def late(facts: Facts, promise: int) -> Iterator[Violation]:
    for probe, lease, waited in probed(facts, promise):
        job_id, within = probe.asked["id"], probe.asked["within"]
        if lease is None:
            yield Violation(promise, job_id, f"was due and not claimed within {within:g} s", (probe,))
        elif waited > within:
            says = f"was due, and claimed {waited:.1f} s later instead of within {within:g} s"
            yield Violation(promise, job_id, says, (probe, lease.by))


def probed(facts: Facts, promise: int) -> Iterator[tuple[Operation, Leased | None, float]]:
    """The probes of a promise, who came for each, and after how many seconds."""
    for probe in facts.history.of("probe"):
        if probe.asked["promise"] == promise:
            leases = facts.leases.get(probe.asked["id"])
            yield probe, leases[0] if leases else None, leases[0].by.returned - probe.invoked if leases else 0


@dataclass(frozen=True, slots=True)
class Orphan:
    """A lease whose holder was killed, and what became of the job."""

    lease: Leased
    end: Ended
    next: Leased | None
    waited: float
    """Seconds from the end of the lease to the next one, without those in which a fault was under way."""


def rescued(facts: Facts) -> Iterator[Violation]:
    """Promise 7."""
    for orphan in orphans(facts):
        holder, by = orphan.lease.by.process, (orphan.lease.by, orphan.end.by)
        if orphan.next is None:
            if {final.state for final in facts.finals.get(orphan.lease.id, [])} & {"running"}:
                says = f"is still running at the end, though {holder} was killed"
                yield Violation(7, orphan.lease.id, says, by)
        elif orphan.waited > facts.setting.rescue + facts.setting.margin:
            says = f"waited for {orphan.waited:.1f} s after the lease of the killed {holder} ran out"
            yield Violation(7, orphan.lease.id, says, (*by, orphan.next.by))


def orphans(facts: Facts) -> Iterator[Orphan]:
    """What killed workers held."""
    killed = {each.process: each for each in facts.ended if each.signal == "KILL"}
    if facts.setting.lease != "timed":
        return
    for leases in facts.leases.values():
        for earlier, later in pairwise([*sorted(leases, key=_in_time), None]):
            if earlier is None or (end := killed.get(earlier.by.process)) is None:
                continue
            settlements = facts.settled.get(earlier.token, [])
            if any(each.may_have_applied and each.by.verb in SETTLING for each in settlements):
                continue
            over = expiry(facts, earlier) - facts.clock[earlier.store]
            yield Orphan(
                earlier, end, later, facts.undisturbed(over, later.by.returned) if later is not None else 0.0
            )

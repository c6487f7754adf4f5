"""Promises about processes: the relay, the migration, the worker's end, and coming back: 8, 9, 10 and 11."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.faults.facts import Facts, Leased
from tests.faults.history import Outcome
from tests.faults.promises.leases import SETTLING, expiry, late
from tests.faults.promises.violation import Violation


def published(facts: Facts) -> Iterator[Violation]:
    """Promise 8."""
    if not facts.setting.outbox:
        return
    repeats = 0
    for job_id, times in facts.registered.items():
        sent = [each.by for each in times if each.by.process.startswith("relay")]
        repeats += max(0, len(sent) - 1)
        stored = [each.by for each in times if each.acknowledged and each.by not in sent]
        if stored and not sent and job_id in facts.holders:
            yield Violation(8, job_id, "was committed to the outbox and never published", (stored[0],))
    crashes = len(facts.faults)
    if repeats > crashes * facts.setting.window:
        allowed = f"{crashes} faults and a window of {facts.setting.window}"
        says = f"{repeats} jobs were published again, with {allowed}"
        yield Violation(8, "relay", says)


def migrated(facts: Facts) -> Iterator[Violation]:
    """Promise 9. `step` is a call of the coordinator, which may be killed; `final` lists every store."""
    steps = facts.history.of("step")
    if not steps:
        return
    if steps[-1].outcome is not Outcome.OK:
        yield Violation(
            9, steps[-1].process, f"the migration was not resumed after {steps[-1].asked}", (steps[-1],)
        )
    for job_id, finals in facts.finals.items():
        homes = [each for each in finals if each.state not in ("moved", "moving")]
        if len(homes) > 1:
            says = " and ".join(f"{each.state} in {each.store}" for each in homes)
            yield Violation(9, job_id, f"has two homes: {says}", tuple(each.by for each in homes))
    for job_id, leases in facts.leases.items():
        completed = {each.by.store: each.by for each in facts.settlements(job_id, "complete") if each.applied}
        if len(completed) > 1:
            where = tuple(completed.values())
            yield Violation(9, job_id, f"was completed in {' and in '.join(sorted(completed))}", where)
        for earlier, later in pairwise(sorted(leases, key=lambda lease: lease.by.returned)):
            settled = any(
                each.by.verb in SETTLING and each.may_have_applied
                for each in facts.settled.get(earlier.token, [])
            )
            moved = earlier.by.store != later.by.store
            if moved and not settled and later.begins < earlier.expires - facts.setting.slack:
                says = f"ran in {later.by.store} while {earlier.by.store} had leased it"
                yield Violation(9, job_id, says, (earlier.by, later.by))


def shut_down(facts: Facts) -> Iterator[Violation]:
    """Promise 10."""
    terminated = {each.process: each for each in facts.ended if each.signal == "TERM"}
    for stopped in terminated.values():
        if stopped.code != 0:
            says = f"was told to stop, and ended with {stopped.code}"
            yield Violation(10, stopped.process, says, (stopped.by,))
    for job_id, leases in facts.leases.items():
        for lease in leases:
            end = terminated.get(lease.by.process)
            if end is None or end.code != 0 or not _held(facts, lease, end.by.invoked):
                continue
            if not any(each.by.verb in SETTLING for each in facts.settled.get(lease.token, [])):
                says = f"was neither finished nor given back when {end.process} stopped"
                yield Violation(10, job_id, says, (lease.by, end.by))
        for earlier, later in pairwise(sorted(leases, key=lambda lease: lease.attempt)):
            given_back = [
                each for each in facts.settlements(job_id, "release") if each.token == earlier.token
            ]
            if (
                any(each.applied for each in given_back)
                and later.attempt == earlier.attempt + 1
                and later.refunded <= earlier.refunded
            ):
                says = f"was given back unrun, and attempt {earlier.attempt} was spent all the same"
                yield Violation(10, job_id, says, (given_back[0].by, later.by))


def _held(facts: Facts, lease: Leased, at: float) -> bool:
    """Whether the holder still had the lease then, and knew nothing else."""
    if any(each.lost for each in facts.settled.get(lease.token, [])):
        return False
    return facts.setting.lease == "connection" or expiry(facts, lease) - facts.clock[lease.by.store] > at


def recovered(facts: Facts) -> Iterator[Violation]:
    """Promise 11: what is registered after a fault is claimed, by workers that nobody started again."""
    yield from late(facts, 11)

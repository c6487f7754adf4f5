"""Promises about processes: the relay, the worker's end, and coming back: 8, 10 and 11."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from tests.faults.facts import Facts, Leased
from tests.faults.history import Operation
from tests.faults.promises.leases import SETTLING, expiry, late
from tests.faults.promises.violation import Violation

_SCHEDULE = "schedule:"
"""What the key of a tick begins with; then the name of the schedule, and the instant."""


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
                not facts.setting.copies  # the original may come beside what was given back
                and any(each.applied for each in given_back)
                and later.attempt == earlier.attempt + 1
                and later.refunded <= earlier.refunded
            ):
                says = f"was given back unrun, and attempt {earlier.attempt} was spent all the same"
                yield Violation(10, job_id, says, (given_back[0].by, later.by))


def _held(facts: Facts, lease: Leased, at: float) -> bool:
    """Whether the holder still had the lease then, and knew nothing else."""
    if any(each.lost for each in facts.settled.get(lease.token, [])):
        return False
    return facts.setting.lease == "connection" or expiry(facts, lease) - facts.clock[lease.store] > at


def recovered(facts: Facts) -> Iterator[Violation]:
    """Promise 11: what is registered after a fault is claimed, by workers that nobody started again."""
    yield from late(facts, 11)
    yield from _left_out(facts)


def _left_out(facts: Facts) -> Iterator[Violation]:
    """A tick of a schedule, between two that were registered, that nobody registered."""
    ticks: defaultdict[str, dict[datetime, Operation]] = defaultdict(dict)
    for each in (one for times in facts.registered.values() for one in times):
        if each.acknowledged and each.key is not None and each.key.startswith(_SCHEDULE):
            name, _, tick = each.key.removeprefix(_SCHEDULE).partition(":")
            ticks[name].setdefault(datetime.fromisoformat(tick), each.by)
    for name, found in sorted(ticks.items()):
        instants = sorted(found)
        step = min((later - earlier for earlier, later in pairwise(instants)), default=timedelta())
        for earlier, later in pairwise(instants):
            if later - earlier > step:
                says = f"has no job between {earlier:%H:%M:%S} and {later:%H:%M:%S}"
                yield Violation(11, f"schedule {name}", says, (found[earlier], found[later]))

"""Promises about what exists: 1, 2, 4 and 12."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.facts import FINISHED, Facts, Registered
from tests.faults.promises.violation import ACKNOWLEDGED, Violation


def lost(facts: Facts) -> Iterator[Violation]:
    """Promise 1."""
    for job_id, told in facts.holders.items():
        if job_id in facts.expected:
            continue  # promise 12
        if (missing := _missing(facts, job_id)) is not None:
            yield Violation(1, job_id, missing, (told,))
    for job_id in facts.leases:
        yield from _undone(facts, job_id)
    if facts.setting.ledger:
        for job_id, finals in facts.finals.items():
            if job_id not in facts.ran and finals[0].state == "done":
                yield Violation(1, job_id, "is done, but no handler came to its end", (finals[0].by,))


def _missing(facts: Facts, job_id: str) -> str | None:
    states = {each.state for each in facts.finals.get(job_id, [])}
    if states & FINISHED:
        return None
    if states and not states <= {"moved"}:
        return f"{ACKNOWLEDGED}forgotten: it is {' and '.join(sorted(states))} at the end"
    if not facts.setting.lookup:
        ends = facts.settlements(job_id, "complete", "fail")
        if any(
            each.may_have_applied and (each.by.verb == "complete" or _may_be_dead(each.verdict))
            for each in ends
        ):
            return None
    return f"{ACKNOWLEDGED}lost: no store knows it at the end"


def _may_be_dead(verdict: dict[str, object] | None) -> bool:
    return verdict is None or verdict["state"] == "dead"


def _undone(facts: Facts, job_id: str) -> Iterator[Violation]:
    """What was completed stays so; where the store keeps one copy of a job, it is completed once."""
    if facts.setting.copies or job_id in facts.operated:
        return
    completed = [each for each in facts.settlements(job_id, "complete") if each.applied]
    if len({each.token for each in completed}) > 1:
        yield Violation(1, job_id, "was completed twice", tuple(each.by for each in completed))
    for each in completed:
        for lease in facts.leases[job_id]:
            if lease.by.invoked > each.by.returned:
                yield Violation(1, job_id, "was claimed after it was completed", (each.by, lease.by))
    if completed and facts.setting.lookup:
        for final in facts.finals.get(job_id, []):
            if final.state not in ("done", "moved"):
                says = f"was completed, and is {final.state} at the end"
                yield Violation(1, job_id, says, (completed[0].by, final.by))


def rolled_back(facts: Facts) -> Iterator[Violation]:
    """Promise 2."""
    for job_id in sorted(facts.rolled_back):
        by = facts.registered[job_id][0].by
        if job_id in facts.leases:
            lease = facts.leases[job_id][0]
            yield Violation(2, job_id, "was rolled back, and was claimed", (by, lease.by))
        if job_id in facts.finals:
            final = facts.finals[job_id][0]
            yield Violation(2, job_id, f"was rolled back, and is {final.state} at the end", (by, final.by))
        if job_id in facts.holders:
            answered = facts.holders[job_id]
            yield Violation(2, job_id, "was rolled back, and holds its key", (by, answered))
    yield from _apart(facts)


def _apart(facts: Facts) -> Iterator[Violation]:
    """A job and the row that its producer wrote in the same transaction: both, or none."""
    if facts.business is None:
        return
    for job_id, times in facts.registered.items():
        joined = [each for each in times if each.by.verb == "transaction" and each.key is None]
        if not joined:
            continue
        exists, has_row = job_id in facts.leases or job_id in facts.finals, job_id in facts.business
        if exists != has_row:
            there, gone = ("the job", "the producer's row") if exists else ("the producer's row", "the job")
            says = f"{there} is there, and {gone} of the same transaction is not"
            yield Violation(2, job_id, says, (joined[0].by,))


def one_per_key(facts: Facts) -> Iterator[Violation]:
    """Promise 4."""
    answers: defaultdict[tuple[str, str], dict[str, Registered]] = defaultdict(dict)
    keys: dict[str, tuple[str, str]] = {}
    for times in facts.registered.values():
        for each in times:
            if each.key is None:
                continue
            keys[each.id] = (each.queue, each.key)
            if each.acknowledged and each.answer is not None and not _by_a_relay(facts, each):
                answers[each.queue, each.key].setdefault(each.answer["id"], each)
    for (queue, key), holders in sorted(answers.items()):
        if len(holders) > 1:
            says = f"was held by {' and then by '.join(holders)}"
            yield Violation(4, f"key {key!r} of {queue}", says, tuple(each.by for each in holders.values()))
    claimed: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for job_id in facts.leases:
        if job_id in keys:
            claimed[keys[job_id]].append(job_id)
    for (queue, key), ids in sorted(claimed.items()):
        if len(ids) > 1:
            where = tuple(facts.leases[job_id][0].by for job_id in ids)
            yield Violation(4, f"key {key!r} of {queue}", f"was claimed as {' and as '.join(ids)}", where)


def _by_a_relay(facts: Facts, registered: Registered) -> bool:
    return (
        bool(facts.setting.outbox)
        and registered.by.verb == "register"
        and registered.by.process.startswith("relay")
    )


def odd_ones(facts: Facts) -> Iterator[Violation]:
    """Promise 12. That the others went on is promise 1."""
    for job_id, fate in facts.expected.items():
        if job_id not in facts.holders:
            continue
        states = {each.state for each in facts.finals.get(job_id, [])}
        if fate == "dead" and states != {"dead"}:
            yield Violation(12, job_id, f"can't be run and should be dead, but is {_or_gone(states)}")
        if fate == "stays" and facts.setting.lookup and states != {"ready"}:
            yield Violation(12, job_id, f"has an unknown kind and should wait, but is {_or_gone(states)}")


def _or_gone(states: set[str]) -> str:
    return " and ".join(sorted(states)) or "gone"

"""`Capabilities` in plain words: a word for each column of a table, a sentence for each line of a sheet."""

from __future__ import annotations

from jobcontract.contract import Capabilities, Deduplication, Durability, Feature, TimedLease, Transactional
from jobcontract.durations import format_duration

_SURVIVES = {
    Durability.FSYNC: ("power loss", "A job that was acknowledged survives the loss of power of each node."),
    Durability.QUORUM: (
        "loss of a minority",
        "A job that was acknowledged is held by a majority of the nodes and survives the loss of the others.",
    ),
    Durability.WINDOW: (
        "kill, not power loss",
        "A job that was acknowledged survives a kill of the server; "
        "a loss of power loses those of the last second or more.",
    ),
    Durability.MEMORY: ("nothing", "Jobs are held in memory, and are gone with the process."),
}
_TRANSACTIONS = {
    Transactional.SAME: (
        "yours",
        "register(job, connection=...) writes the job in your transaction: it commits or vanishes with it.",
    ),
    Transactional.OUTBOX: (
        "by outbox",
        "register(job, connection=...) writes an outbox row in your transaction; the relay publishes it.",
    ),
    Transactional.NONE: ("none", "A job can't be part of your transaction: register it after the commit."),
}
_KEYS = {
    Deduplication.RETENTION: (
        "kept",
        "An idempotency key is held for as long as the record of its job lives.",
    ),
    Deduplication.OUTBOX: (
        "by outbox",
        "Idempotency keys are held by the outbox; a job that is registered past it is not compared.",
    ),
    Deduplication.NONE: ("none", "Idempotency keys are not held: the same key can make several jobs."),
}
_DOORS: dict[Feature, str] = {
    "lookup": "list and show jobs",
    "stats": "count jobs",
    "cancel": "cancel jobs",
    "requeue": "retry dead jobs",
    "prune": "prune",
    "pause": "pause queues",
    "notes": "keep the place of schedules",
    "move": "move jobs without a journal elsewhere",
}


def words(capabilities: Capabilities) -> tuple[str, ...]:
    """Store, what an acknowledged job survives, transactions, keys, delays, priorities, and what it lacks."""
    scheduling = capabilities.scheduling
    if scheduling is None:
        delays = "none"
    elif scheduling.longest is None:
        delays = "any"
    else:
        delays = f"up to {format_duration(scheduling.longest)}"
    return (
        capabilities.store,
        _SURVIVES[capabilities.durability][0],
        _TRANSACTIONS[capabilities.transactional][0],
        _KEYS[capabilities.deduplication][0],
        delays,
        str(capabilities.priority_levels),
        ", ".join(door for door in _DOORS if not capabilities.has(door)) or "-",
    )


def sentences(capabilities: Capabilities) -> list[tuple[str, str]]:
    """Titles and sentences that say all of `capabilities`, its notes excepted."""
    can = [does for door, does in _DOORS.items() if capabilities.has(door)]
    lacks = [does for door, does in _DOORS.items() if not capabilities.has(door)]
    return [
        ("store", capabilities.store),
        ("durability", _SURVIVES[capabilities.durability][1]),
        ("transactions", _TRANSACTIONS[capabilities.transactional][1]),
        ("keys", _KEYS[capabilities.deduplication][1]),
        ("leases", _leases(capabilities)),
        ("delays", _delays(capabilities)),
        ("priorities", _priorities(capabilities)),
        (
            "limits",
            f"{capabilities.max_input_ref_bytes:,} bytes of input_ref; "
            f"{capabilities.max_register_batch:,} jobs in one registration.",
        ),
        ("can", f"{', '.join(can)}." if can else "register and run jobs, nothing else."),
        *([("can't", f"{', '.join(lacks)}.")] if lacks else []),
    ]


def _leases(capabilities: Capabilities) -> str:
    lease = capabilities.lease
    if isinstance(lease, TimedLease):
        return (
            f"A claim holds for {format_duration(lease.shortest)} to {format_duration(lease.longest)}, "
            "as the worker chooses, and can be extended."
        )
    return f"A claim holds while the worker's connection lives, {format_duration(lease.longest)} at most."


def _delays(capabilities: Capabilities) -> str:
    scheduling = capabilities.scheduling
    if scheduling is None:
        return "Jobs can't be scheduled: each is due at once."
    ahead = f", up to {format_duration(scheduling.longest)} ahead" if scheduling.longest else ""
    return f"Jobs can be scheduled, to {format_duration(scheduling.resolution)}{ahead}."


def _priorities(capabilities: Capabilities) -> str:
    if capabilities.priority_levels == 1:
        return "None: every job has priority 0."
    return (
        f"{capabilities.priority_levels} levels, 0 to {capabilities.priority_levels - 1}; larger is sooner."
    )

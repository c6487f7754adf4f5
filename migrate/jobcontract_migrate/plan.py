"""The plan: what a move would bring and cost, and why it can't be begun, in sentences, before anything is
written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from jobcontract.config import Settings
from jobcontract.contract import (
    Capabilities,
    Deduplication,
    Driver,
    Durability,
    Feature,
    TimedLease,
    Transactional,
)
from jobcontract.durations import format_duration
from jobcontract.errors import ConfigError, InstallationError, JobContractError, StoreError
from jobcontract.registry import open_store
from jobcontract.side_doors import CarriesCopies, Movable, QueueStats, Statistics
from jobcontract_migrate.control import Client, Control, Move
from jobcontract_migrate.ends import can_be_source, can_be_target, refusal_as_source, refusal_as_target

_DURABLE = (Durability.FSYNC, Durability.QUORUM, Durability.WINDOW, Durability.MEMORY)
_DOORS: dict[Feature, str] = {
    "lookup": "looking jobs up",
    "stats": "statistics",
    "cancel": "cancelling jobs",
    "requeue": "requeueing dead jobs",
    "prune": "pruning",
    "pause": "pausing queues",
}


@dataclass(slots=True)
class Plan:
    """What is known before a migration begins."""

    source: str
    target: str
    source_store: str = ""
    target_store: str = ""
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    dead: int = 0
    cancelled: int = 0
    at_target: int = 0
    """Jobs of others that the target holds."""
    clients: list[Client] = field(default_factory=list[Client])
    gains: list[str] = field(default_factory=list[str])
    losses: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    refusals: list[str] = field(default_factory=list[str])
    """Why it can't be begun."""


def make_plan(settings: Settings, source: str, target: str, control: Control) -> Plan:
    """Look at both stores and at the control store. Writes nothing, and raises nothing but `ConfigError` for
    names that lead nowhere: what is wrong is a refusal in the plan.
    """
    plan = Plan(source, target)
    stores = {name: settings.store(name) for name in (source, target)}
    for name in stores:
        if "://" in name:
            raise ConfigError(f"{name!r}: clients follow names; add it to the backends of the configuration")
    if source == target or (
        stores[source].url == stores[target].url and (stores[source].options == stores[target].options)
    ):
        plan.refusals.append("source and target are the same store")
        return plan
    drivers = {name: open_store(store, settings) for name, store in stores.items()}
    try:
        for refusal in _refusals(plan, drivers, control, settings):
            plan.refusals.append(refusal)
        if not plan.refusals:
            _fill(plan, drivers[source], drivers[target])
            if not control.is_installed():
                plan.notes.insert(
                    0,
                    f"the control store {control.name!r} has no tables for it yet, so nobody can be seen to "
                    "follow: run `jobctl init`, and look again",
                )
    finally:
        for driver in drivers.values():
            driver.close()
    return plan


def _refusals(plan: Plan, drivers: dict[str, Driver], control: Control, settings: Settings) -> Iterator[str]:
    for name, driver in drivers.items():
        if name == plan.source and not can_be_source(driver):
            yield refusal_as_source(name)
        if name == plan.target and not can_be_target(driver):
            yield refusal_as_target(name)
    if all(isinstance(driver, CarriesCopies) for driver in drivers.values()):
        yield "jobs can't be moved from broker to broker yet; move them to a SQL store, and on from there"
    move: Move | None = None
    try:
        move = control.read() if control.is_installed() else None
        plan.clients = control.clients() if control.is_installed() else []
    except StoreError as error:
        yield f"the control store {control.name!r} can't be asked: {error}"
    if move is not None and not move.is_over:
        yield (
            f"a migration from {move.source!r} to {move.target!r} is under way ({move.state.value}); "
            "`jobctl migrate resume` goes on with it"
        )
    home = move.home if move is not None else settings.store().name
    if plan.source != home and (move is None or move.is_over):
        yield (
            f"jobs live in {home!r}, not in {plan.source!r}: what moves is where `get_backend()` without a "
            "name leads"
        )
    for name, driver in drivers.items():
        refusal = _unreachable(name, driver, is_source=name == plan.source)
        if refusal is not None:
            yield refusal


def _unreachable(name: str, driver: Driver, *, is_source: bool) -> str | None:
    try:
        _ = driver.capabilities
        if is_source and isinstance(driver, Movable):
            driver.gate()
    except InstallationError as error:
        return f"the backend {name!r} can't be used: {error}" if is_source else None  # it will be installed
    except JobContractError as error:
        return f"the backend {name!r} can't be used: {error}"
    return None


def _fill(plan: Plan, source: Driver, target: Driver) -> None:
    rows = _rows(source)
    plan.ready = sum(row.ready for row in rows)
    plan.scheduled = sum(row.scheduled for row in rows)
    plan.running = sum(row.running for row in rows)
    plan.dead = sum(row.dead for row in rows)
    plan.cancelled = sum(row.cancelled or 0 for row in rows)
    plan.at_target = sum(row.ready + row.scheduled + row.running + row.dead for row in _rows(target))
    before = source.capabilities
    try:
        after = target.capabilities
    except InstallationError:
        plan.source_store = before.store
        plan.notes.append("the target is not initialised yet; what it can do is seen when it is")
        return
    plan.source_store, plan.target_store = before.store, after.store
    plan.gains = list(_differences(after, before))
    plan.losses = list(_differences(before, after))
    if plan.at_target:
        plan.notes.append(
            f"the target holds {plan.at_target:,} jobs of its own; a reverse would take them along"
        )
    if isinstance(target, CarriesCopies):
        plan.notes += _to_a_broker(plan, after)
    if isinstance(source, CarriesCopies):
        plan.notes += _from_a_broker(plan)
    if before.transactional is Transactional.SAME and after.transactional is Transactional.SAME:
        plan.notes.append(
            "register(job, connection=...) needs connections to the target's database from the cut-over on"
        )
    plan.notes += [f"{plan.target}: {note}" for note in after.notes]


def _from_a_broker(plan: Plan) -> Iterator[str]:
    """What a source that knows no job by its id means for the jobs that leave."""
    yield (
        f"how many jobs {plan.source} holds is not known, nor which queues it has: those of its settings "
        "move, and those that producers which follow have used"
    )
    yield f"{plan.source} keeps no trace of what left it: jobs are compared by their ids, and not repaired"
    yield f"producers and workers that name {plan.source} can't be refused; stop them"


def _to_a_broker(plan: Plan, after: Capabilities) -> Iterator[str]:
    """What a target that knows no job by its id means for the jobs that come."""
    yield (
        f"jobs at {plan.target} can't be looked at, so they are not compared; each was confirmed before its "
        f"trace at {plan.source} was made"
    )
    yield f"cancelled and done jobs stay at {plan.source}, and are gone from there when it is completed"
    if after.deduplication is Deduplication.NONE:
        yield (
            f"registrations with an idempotency key are refused from the cut-over on, unless {plan.target} "
            "gets an outbox"
        )
    if after.scheduling is None:
        yield (
            f"registrations with a run_at ahead are refused from the cut-over on, unless {plan.target} gets "
            "an outbox"
        )
    if after.transactional is Transactional.OUTBOX:
        yield f"`jobctl relay` has to run: from the cut-over on it brings registrations to {plan.target}"
    yield "scheduled jobs that move wait in the broker, to the second, and can't be cancelled there"


def _rows(driver: Driver) -> list[QueueStats]:
    try:
        return driver.stats() if isinstance(driver, Statistics) else []
    except StoreError:  # a target that is not initialised yet
        return []


def _differences(one: Capabilities, other: Capabilities) -> Iterator[str]:
    """What `one` has and `other` has not, in sentences."""
    if _DURABLE.index(one.durability) < _DURABLE.index(other.durability):
        yield f"durability {one.durability.value}, not {other.durability.value}"
    if one.transactional is not Transactional.NONE and other.transactional is Transactional.NONE:
        yield "jobs can be registered in the application's transaction"
    if one.deduplication is not Deduplication.NONE and other.deduplication is Deduplication.NONE:
        yield "idempotency keys are held"
    if one.scheduling is not None and other.scheduling is None:
        yield "jobs can be scheduled"
    if one.scheduling and other.scheduling and one.scheduling.resolution < other.scheduling.resolution:
        yield (
            f"scheduled jobs are exact to {format_duration(one.scheduling.resolution)}, "
            f"not to {format_duration(other.scheduling.resolution)}"
        )
    if one.priority_levels > other.priority_levels:
        yield f"{one.priority_levels} priorities, not {other.priority_levels}"
    if isinstance(one.lease, TimedLease) and not isinstance(other.lease, TimedLease):
        yield "leases that the worker chooses, and that outlive a connection"
    if one.max_input_ref_bytes > other.max_input_ref_bytes:
        yield f"inputs of up to {one.max_input_ref_bytes:,} bytes, not {other.max_input_ref_bytes:,}"
    lost = [does for door, does in _DOORS.items() if one.has(door) and not other.has(door)]
    if lost:
        yield ", ".join(lost)

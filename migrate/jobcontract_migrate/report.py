"""What people and programs are told: the plan, where a migration is, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from jobcontract.cli.output import instant, instant_json
from jobcontract.durations import format_duration
from jobcontract_migrate.control import Client, Conflict, Control, Move
from jobcontract_migrate.plan import Plan
from jobcontract_migrate.states import BEFORE_THE_FENCE, Phase


def plan_lines(plan: Plan) -> Iterator[str]:
    """The plan for people."""
    yield f"From  {plan.source}  {plan.source_store}".rstrip()
    yield f"To    {plan.target}  {plan.target_store}".rstrip()
    if plan.refusals:
        yield ""
        yield from (f"refused: {each}" for each in plan.refusals)
        return
    yield (
        f"Jobs  {plan.ready:,} ready, {plan.scheduled:,} scheduled, {plan.running:,} running, "
        f"{plan.dead:,} dead, {plan.cancelled:,} cancelled"
    )
    claiming = sum(client.claims for client in plan.clients)
    yield f"Seen  {len(plan.clients)} clients that follow the control store, {claiming} of them claim jobs"
    yield from (f"  +   {each}" for each in plan.gains)
    yield from (f"  -   {each}" for each in plan.losses)
    yield from (f"  !   {each}" for each in plan.notes)


def plan_json(plan: Plan) -> dict[str, object]:
    """The plan for programs."""
    return {
        "source": plan.source,
        "target": plan.target,
        "source_store": plan.source_store,
        "target_store": plan.target_store,
        "jobs": {
            "ready": plan.ready,
            "scheduled": plan.scheduled,
            "running": plan.running,
            "dead": plan.dead,
            "cancelled": plan.cancelled,
        },
        "jobs_at_target": plan.at_target,
        "clients": [_client_json(client) for client in plan.clients],
        "gains": plan.gains,
        "losses": plan.losses,
        "notes": plan.notes,
        "refusals": plan.refusals,
    }


def next_command(move: Move) -> str:
    """What leads on from here."""
    match move.state:
        case Phase.SEALED:
            return "`jobctl migrate complete` ends it for good, `jobctl migrate reverse` goes back"
        case Phase.COMPLETED | Phase.ABORTED:
            return "nothing is under way"
        case state if state in BEFORE_THE_FENCE and move.consulted is None:
            return "`jobctl migrate resume` goes on, `jobctl migrate abort` gives up"
        case _:
            return "`jobctl migrate resume` goes on, `jobctl migrate reverse` goes back"


def status_json(move: Move, clients: list[Client]) -> dict[str, object]:
    """Where it is, for programs."""
    return {
        "migration": move.number,
        "source": move.source,
        "target": move.target,
        "state": move.state.value,
        "epoch": move.epoch,
        "jobs_go_to": move.home,
        "claimed_at": list(move.claimed),
        "paused": move.paused,
        "coordinator": _owner(move),
        "started_at": instant_json(_at(move.started_at)),
        "changed_at": instant_json(_at(move.changed_at)),
        "clients": [_client_json(client) for client in clients],
        "next": next_command(move),
    }


def status_fields(move: Move, clients: list[Client]) -> Iterator[tuple[str, str]]:
    """Where it is, for people."""
    know = sum(client.epoch >= move.epoch for client in clients)
    yield "migration", f"{move.number}: {move.source} to {move.target}"
    yield (
        "state",
        f"{move.state.value}{', paused' if move.paused else ''}, for {_length(move.now - move.changed_at)}",
    )
    yield "jobs go to", move.home
    yield "claimed at", ", ".join(move.claimed)
    yield "clients", f"{know} of {len(clients)} go by step {move.epoch}"
    yield "coordinator", _owner(move) or "none at work"
    yield "next", next_command(move)


def report_json(control: Control, move: Move) -> dict[str, object]:
    """All that is known of a migration, for programs."""
    return {
        "migration": move.number,
        "source": move.source,
        "target": move.target,
        "state": move.state.value,
        "began_with": move.facts.get("jobs"),
        "compared": move.facts.get("compared"),
        "differences": move.facts.get("differences"),
        "not_compared": move.facts.get("not_compared"),
        "key_conflicts": [_conflict_json(conflict) for conflict in control.conflicts(move)],
        "seconds": round(move.changed_at - move.started_at, 3),
        "events": [
            {
                "at": instant_json(_at(event.at)),
                "epoch": event.epoch,
                "state": event.state,
                "said": event.said,
            }
            for event in control.events(move)
        ],
        "next": next_command(move),
    }


def report_lines(control: Control, move: Move) -> Iterator[str]:
    """All that is known of a migration, for people."""
    yield f"Migration {move.number}: {move.source} to {move.target}, {move.state.value}"
    for event in control.events(move):
        yield f"  {instant(_at(event.at))}  {event.state:<10} {event.said}"
    if move.facts.get("not_compared"):
        yield f"The stores were not compared: {move.facts['not_compared']}."
    elif move.facts.get("compared") is not None:
        yield f"Compared {move.facts['compared']:,} moved jobs; {move.facts['differences']} differ."
    conflicts = control.conflicts(move)
    if conflicts:
        yield (
            f"{len(conflicts)} jobs came without their idempotency key, because another job holds it at the "
            "target; both are there:"
        )
        yield from (f"  {each.job_id} (held by {each.holder_id})" for each in conflicts)
    yield f"Next: {next_command(move)}"


def _client_json(client: Client) -> dict[str, object]:
    return {"name": client.name, "epoch": client.epoch, "claims": client.claims}


def _conflict_json(conflict: Conflict) -> dict[str, object]:
    return conflict._asdict()


def _owner(move: Move) -> str | None:
    if move.owner is None or move.owner_until is None or move.owner_until < move.now:
        return None
    return move.owner.rpartition(":")[0]


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _length(seconds: float) -> str:
    return format_duration(timedelta(seconds=max(0.0, seconds)))

"""A driver that writes down what it was asked and what it answered."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar

from jobcontract.contract import (
    ClaimedRecord,
    Driver,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    State,
    Verdict,
)
from jobcontract.errors import InvalidJob, StoreClosed, StoreUnavailable, Unsupported
from jobcontract.side_doors import Arrival, Gate, MovedJob
from tests.faults.history import Answer, Outcome, Recorder

AnyDriver = TypeVar("AnyDriver", bound=Driver)
Verbs: TypeAlias = dict[str, tuple[Callable[..., dict[str, Any]], Callable[[Any], Any]]]

ROUTE = "route"
"""The history's name for the stores of a migration together, as who follows it sees them."""


def record(driver: AnyDriver, recorder: Recorder, store: str) -> AnyDriver:
    """The same driver, from now on recorded under the name `store`. Its side doors stay what they are."""
    return _record(driver, recorder, store, _VERBS)


def record_route(driver: AnyDriver, recorder: Recorder) -> AnyDriver:
    """The same for a driver that follows a migration: a lease is of the store that its token names."""
    return _record(driver, recorder, ROUTE, _VERBS | {"claim": (_claim, _claimed_somewhere)})


def record_below(driver: AnyDriver, recorder: Recorder, store: str) -> AnyDriver:
    """The same for a store of a migration: what it lets in, and the steps of the move."""
    return _record(driver, recorder, store, _BELOW)


def _record(driver: AnyDriver, recorder: Recorder, store: str, verbs: Verbs) -> AnyDriver:
    for verb, (describe, tell) in verbs.items():
        method = getattr(driver, verb, None)
        if method is not None:
            setattr(driver, verb, _recorded(method, verb, describe, tell, recorder, store))
    return driver


def _recorded(
    method: Callable[..., Any],
    verb: str,
    describe: Callable[..., dict[str, Any]],
    tell: Callable[[Any], Any],
    recorder: Recorder,
    store: str,
) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        with recorder.operation(verb, describe(*arguments, **named), store=store) as answer:
            result = _try(answer, lambda: method(*arguments, **named))
            answer.answered = tell(result)
        return result

    return call


def _try(answer: Answer, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (InvalidJob, Unsupported, StoreClosed):
        answer.outcome = Outcome.FAIL
        raise
    except StoreUnavailable:
        answer.outcome = Outcome.UNKNOWN
        raise


def seconds(instant: datetime | None) -> float | None:
    """Since the epoch."""
    return None if instant is None else instant.timestamp()


def describe_job(record: JobRecord) -> dict[str, Any]:
    """A job, as the history knows it."""
    return {
        "id": record.id,
        "queue": record.queue,
        "key": record.idempotency_key,
        "run_at": seconds(record.run_at),
        "max_attempts": record.max_attempts,
        "print": _print(record),
    }


def _print(record: JobRecord) -> str:
    """Of all that stays as it was registered, whatever happens to the job."""
    kept = (record.kind, record.queue, record.priority, record.max_attempts, record.input_ref, record.headers)
    return sha256(repr(kept).encode(errors="replace")).hexdigest()[:12]


def tell_registrations(registrations: Sequence[Registration]) -> list[dict[str, Any]]:
    """The answers to a registration."""
    return [
        {"id": str(each.job_id), "created": each.created, "state": each.state, "conflict": each.conflict}
        for each in registrations
    ]


def _register(records: Sequence[JobRecord]) -> dict[str, Any]:
    return {"jobs": [describe_job(each) for each in records]}


def _claim(queues: Sequence[str], limit: int, lease: timedelta) -> dict[str, Any]:
    return {"queues": list(queues), "limit": limit, "lease": lease.total_seconds()}


def _claimed(claimed: Sequence[ClaimedRecord]) -> list[dict[str, Any]]:
    return [
        {
            "id": lease.job_id,
            "token": lease.token,
            "attempt": lease.attempt,
            "refunded": lease.refunded,
            "expires": seconds(lease.expires_at),
            "print": _print(found),
        }
        for lease, found in claimed
    ]


def _claimed_somewhere(claimed: Sequence[ClaimedRecord]) -> list[dict[str, Any]]:
    return [each | {"store": each["token"].partition("/")[0]} for each in _claimed(claimed)]


def _lease(lease: Lease) -> dict[str, Any]:
    return {"id": lease.job_id, "token": lease.token, "attempt": lease.attempt}


def _complete(leases: Sequence[Lease]) -> dict[str, Any]:
    return {"leases": [_lease(each) for each in leases]}


def _fail(failures: Sequence[Failure]) -> dict[str, Any]:
    return {
        "leases": [
            _lease(each.lease)
            | {
                "retry_in": each.retry_in.total_seconds(),
                "permanent": each.permanent,
                "error": each.error[:80],
            }
            for each in failures
        ]
    }


def _extend(leases: Sequence[Lease], lease: timedelta) -> dict[str, Any]:
    return {"leases": [_lease(each) for each in leases], "lease": lease.total_seconds()}


def _release(leases: Sequence[Lease], delay: timedelta) -> dict[str, Any]:
    return {"leases": [_lease(each) for each in leases], "delay": delay.total_seconds()}


def _verdicts(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    return [{"applied": each.applied, "state": each.state, "at": seconds(each.at)} for each in verdicts]


def _rescue(limit: int) -> dict[str, Any]:
    return {"limit": limit}


def _rescued(rescued: Rescued) -> dict[str, Any]:
    return {"ready": rescued.ready, "dead": rescued.dead}


def _ids(job_ids: Sequence[str]) -> dict[str, Any]:
    return {"ids": list(job_ids)}


def _states(states: Sequence[State | None]) -> list[str | None]:
    return list(states)


def _gate(gate: Gate) -> dict[str, Any]:
    return gate._asdict()


def _limit(epoch: int, limit: int) -> dict[str, Any]:
    return {"epoch": epoch, "limit": limit}


def _moved(jobs: Sequence[MovedJob]) -> list[dict[str, Any]]:
    return [{"id": each.record.id, "state": each.state, "attempt": each.attempt} for each in jobs]


def _admit(epoch: int, jobs: Sequence[MovedJob]) -> dict[str, Any]:
    return {"epoch": epoch, "jobs": _moved(jobs)}


def _arrived(arrivals: Sequence[Arrival]) -> list[dict[str, Any]]:
    return [{"stored": each.stored, "key_holder": each.key_holder} for each in arrivals]


def _bury(epoch: int, job_ids: Sequence[str]) -> dict[str, Any]:
    return {"epoch": epoch, "ids": list(job_ids)}


def _carry(jobs: Sequence[MovedJob], name: str) -> dict[str, Any]:
    return {"name": name, "jobs": _moved(jobs)}


def _as_it_is(answer: Any) -> Any:
    return answer


_VERBS: Verbs = {
    "register": (_register, tell_registrations),
    "claim": (_claim, _claimed),
    "complete": (_complete, _verdicts),
    "fail": (_fail, _verdicts),
    "extend": (_extend, _verdicts),
    "release": (_release, _verdicts),
    "rescue": (_rescue, _rescued),
    "cancel": (_ids, _states),
    "requeue": (_ids, _states),
}

_BELOW: Verbs = {
    "register": (_register, tell_registrations),
    "set_gate": (_gate, _gate),
    "hide": (_limit, _moved),
    "admit": (_admit, _arrived),
    "bury": (_bury, _as_it_is),
    "carry": (_carry, _as_it_is),
}

"""`register` through the outbox, as statements: the same for a connection of our own and for a caller's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from jobcontract.contract import JobRecord, Registration, State
from jobcontract.errors import StoreError, StoreUnavailable
from jobcontract.records import to_envelope
from jobcontract.side_doors import HostsTables, Statement, Steps
from jobcontract_outbox.statements import Statements

ORDERING_KEY = "ordering-key"
"""The header whose value names the jobs that must be published one after the other."""

_ROUNDS = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MISSING_OBJECT = ("42P01", "3F000", "42703")


def topic(target: str) -> str:
    """What the relays of `target` wait for. A queue's name has no blank."""
    return f"relay {target}"


class Registering:
    """Writes jobs for the store called `target` into the outbox of `host`."""

    def __init__(self, host: HostsTables, host_name: str, target: str, statements: Statements) -> None:
        self._host = host
        self._host_name = host_name
        self._target = target
        self._statements = statements
        self._wake = host.wake(topic(target))

    def steps(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        """See `JoinsTransactions.register_steps`."""
        try:
            return (yield from self._register(records))
        except StoreError:
            raise
        except Exception as error:
            client: object = getattr(error, "orig", None) or error  # SQLAlchemy wraps the client's error
            if getattr(client, "sqlstate", None) in _MISSING_OBJECT or "no such table" in str(client):
                raise StoreError(
                    f"the database of this connection holds no outbox (backend {self._host_name!r}); "
                    f"run `jobctl init --backend {self._target}`"
                ) from None
            raise

    def _register(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        found: dict[str, Registration] = {}
        left: list[JobRecord] = list(records)
        due = False
        for _round in range(_ROUNDS):
            created, some_due = yield from self._create(left)
            due = due or some_due
            found.update((job_id, Registration(UUID(job_id), created=True)) for job_id in created)
            left = [record for record in left if record.id not in found]
            if left:
                for position, holder, conflict, state in (yield self._look_up(left)):
                    known = State(_text(state)) if state is not None else None
                    found[left[int(position) - 1].id] = Registration(
                        UUID(_text(holder)), created=False, state=known, conflict=bool(conflict)
                    )
                left = [record for record in left if record.id not in found]
            if not left:
                if due and self._wake is not None:
                    yield self._wake
                return [found[record.id] for record in records]
        raise StoreUnavailable(
            f"the idempotency keys of {len(left)} jobs were forgotten and taken all the while; try again"
        )

    def _create(self, records: Sequence[JobRecord]) -> Steps[tuple[list[str], bool]]:
        """The ids of those that are new, and whether one of them is due now."""
        if self._statements.dialect == "postgresql":
            rows = yield self._statements(
                "register",
                *_key_columns(records),
                [_ordering_key(record) for record in records],
                [record.run_at for record in records],
                [to_envelope(record) for record in records],
                self._target,
                self._target,
            )
            return [job_id for job_id, _ in rows], any(is_due for _, is_due in rows)
        rows = yield self._statements(
            "register_ledger", self._target, _document(_key_fields(record) for record in records)
        )
        created = {_text(job_id) for (job_id,) in rows}
        new = [record for record in records if record.id in created]
        if new:
            yield self._statements(
                "register_rows", self._target, _document(_row_fields(each) for each in new)
            )
        return list(created), bool(new)

    def keep_keys(self, records: Sequence[JobRecord]) -> Steps[dict[str, str]]:
        """Enter jobs that were registered elsewhere, so that their keys are known here. By the id of each
        whose key another job holds: the id of that one.
        """
        if self._statements.dialect == "postgresql":
            rows = yield self._statements("register_ledger", self._target, *_key_columns(records))
        else:
            rows = yield self._statements(
                "register_ledger", self._target, _document(map(_key_fields, records))
            )
        entered = {_text(job_id) for (job_id,) in rows}
        known = [record for record in records if record.id not in entered]
        found = (yield self._look_up(known)) if known else []
        holders = {known[int(position) - 1].id: _text(holder) for position, holder, *_ in found}
        return {job_id: holder for job_id, holder in holders.items() if job_id != holder}

    def recall(self, records: Sequence[JobRecord]) -> Steps[list[Registration | None]]:
        """What a registration would be answered for each job that is known here; stores nothing."""
        found: list[Registration | None] = [None] * len(records)
        for position, holder, conflict, state in (yield self._look_up(records)):
            known = State(_text(state)) if state is not None else None
            found[int(position) - 1] = Registration(
                UUID(_text(holder)), created=False, state=known, conflict=bool(conflict)
            )
        return found

    def _look_up(self, records: Sequence[JobRecord]) -> Statement:
        if self._statements.dialect == "postgresql":
            return self._statements("look_up", *_key_columns(records), self._target)
        return self._statements("look_up", self._target, _document(map(_key_fields, records)))


def _ordering_key(record: JobRecord) -> str | None:
    if record.headers is None or ORDERING_KEY not in record.headers:
        return None
    headers: Mapping[str, str] = json.loads(record.headers)
    return headers.get(ORDERING_KEY) or None


def _key_columns(
    records: Sequence[JobRecord],
) -> tuple[list[str], list[str], list[str | None], list[bytes | None]]:
    return (
        [record.id for record in records],
        [record.queue for record in records],
        [record.idempotency_key for record in records],
        [record.fingerprint for record in records],
    )


def _key_fields(record: JobRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "queue": record.queue,
        "idempotency_key": record.idempotency_key,
        "fingerprint": None if record.fingerprint is None else record.fingerprint.hex(),
    }


def _row_fields(record: JobRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "queue": record.queue,
        "ordering_key": _ordering_key(record),
        "run_at": None if record.run_at is None else (record.run_at - _EPOCH) // _MICROSECOND,
        "envelope": to_envelope(record),
    }


def _document(fields: Iterable[dict[str, object]]) -> str:
    return json.dumps(list(fields), ensure_ascii=False)


def _text(value: object) -> str:
    # A caller's connection may have a text_factory of its own; bytes is the usual one.
    return value.decode() if isinstance(value, bytes) else str(value)

"""Registering jobs, as statements: the same for the driver's own connection and for a caller's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from jobcontract.contract import JobRecord, Registration, State
from jobcontract.errors import StoreClosed, StoreError
from jobcontract.side_doors import Row, Statement, Steps
from jobcontract_sqlite import statements
from jobcontract_sqlite.instants import to_microseconds

_LARGEST_DOCUMENT = 64 * 1024 * 1024  # SQLite takes a value of up to a billion bytes


def register_steps(records: Sequence[JobRecord]) -> Steps[list[Registration]]:
    """Inserts `records` and yields each statement; neither begins nor ends a transaction.

    Each statement takes one parameter, the jobs as one JSON text: no limit on the number of variables, and
    one plan for every size. The first statement writes, so that a transaction that only began to read takes
    the write lock before it looks.
    """
    registrations: list[Registration] = []
    for batch in _batches(records):
        registrations += yield from _register_batch(batch)
    return registrations


def _register_batch(records: Sequence[JobRecord]) -> Steps[list[Registration]]:
    document = _document(records)
    if any(record.idempotency_key is not None for record in records):
        yield Statement(statements.REGISTER_KEYS, (document,))
    inserted = yield Statement(statements.REGISTER, (document,))
    created = {_text(job_id) for (job_id,) in inserted}
    answers = {record.id: Registration(UUID(record.id), created=True) for record in records}
    known = [record for record in records if record.id not in created]
    if known:
        rows = yield Statement(statements.REGISTER_KNOWN, (_document(known),))
        if any(own_state is None and holder is None for _, own_state, holder, *_ in rows):
            raise StoreClosed(  # what is neither stored nor known was not let in
                "the jobs of this store are moving to another one, and it takes no new ones now; try again"
            )
        answers |= {_text(row[0]): _known(*row) for row in rows}
    return list(answers.values())


def known_steps(
    records: Sequence[JobRecord],
) -> tuple[Statement, Callable[[list[Row]], list[Registration | None]]]:
    """What looks for those of `records` that the store knows, and what makes the answers of its rows."""

    def answer(rows: list[Row]) -> list[Registration | None]:
        known = {_text(row[0]): _known(*row) for row in rows if row[1] is not None or row[3] is not None}
        return [known.get(record.id) for record in records]

    return Statement(statements.REGISTER_KNOWN, (_document(records),)), answer


def _batches(records: Sequence[JobRecord]) -> Iterator[Sequence[JobRecord]]:
    start = size = 0
    for position, record in enumerate(records):
        length = len(record.input_ref)
        if size and size + length > _LARGEST_DOCUMENT:
            yield records[start:position]
            start, size = position, 0
        size += length
    yield records[start:]


def _document(records: Sequence[JobRecord]) -> str:
    return json.dumps([_to_json(record) for record in records], ensure_ascii=False)


def _to_json(record: JobRecord) -> dict[str, object]:
    return {
        **record._asdict(),
        "run_at": None if record.run_at is None else to_microseconds(record.run_at),
        "fingerprint": None if record.fingerprint is None else record.fingerprint.hex(),
    }


def _known(
    own: object, own_state: object, holder: object, holder_state: object, differs: int
) -> Registration:
    """A row of register_known.sql: the job that stands in the place of the one that was to be registered."""
    job_id, state = (holder, holder_state) if own_state is None else (own, own_state)
    try:
        known = UUID(_text(job_id))
    except ValueError:
        raise StoreError(
            f"the table jobcontract_keys names a job whose id is not a UUID: {_text(job_id)[:80]!r}"
        ) from None
    return Registration(
        known,
        created=False,
        state=None if state is None else State(_text(state)),
        conflict=job_id == holder and bool(differs),
    )


def _text(value: object) -> str:
    # A caller's connection may have a text_factory of its own; bytes is the usual one.
    return value.decode() if isinstance(value, bytes) else str(value)

"""Finding jobs: which tables a page needs, by which index, and under which conditions.

Each table is read in the order of the ids and the compound of them stops at the limit, so that a page costs
the same whatever the number of finished jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jobcontract.contract import State
from jobcontract.side_doors import Page
from jobcontract_sqlite import statements


class _Table(NamedTuple):
    select: str
    name: str
    states: tuple[State, ...]
    ordered: tuple[str, ...]
    """The columns for which there is an index on (column, id)."""


_TABLES: tuple[_Table, ...] = (
    _Table(statements.JOBS_LIVE, "jobcontract_jobs", (State.READY, State.RUNNING), ()),
    _Table(statements.JOBS_DONE, "jobcontract_done", (State.DONE,), ("queue", "kind")),
    _Table(statements.JOBS_DEAD, "jobcontract_dead", (State.DEAD, State.CANCELLED), ("queue", "kind")),
    _Table(statements.JOBS_MOVING, "jobcontract_moving", (State.MOVING, State.MOVED), ()),
)
_CONDITIONS = {
    "cursor": "id < :cursor",
    "queue": "queue = :queue",
    "kind": "kind = :kind",
    "idempotency_key": (
        "id IN (SELECT job_id FROM jobcontract_keys WHERE idempotency_key = :idempotency_key)"
        " AND idempotency_key = :idempotency_key"
    ),
}


def select_job() -> str:
    """The statement that finds the job :id, whichever table it is in."""
    return _compound(f"{table.select}INDEXED BY {table.name}_id\nWHERE id = :id\n" for table in _TABLES)


def select_page(page: Page) -> tuple[str, dict[str, object]]:
    """The statement for `page`, newest id first, and its parameters."""
    parameters = {name: value for name, value in page._asdict().items() if value is not None}
    conditions = [condition for name, condition in _CONDITIONS.items() if name in parameters]
    tables = _TABLES
    if page.state is not None:
        tables = tuple(table for table in _TABLES if page.state in table.states)
        # Spelled out, for a partial index can't serve a parameter.
        conditions.append(f"state = '{page.state}'")
    where = " AND ".join(conditions) or "true"
    compound = _compound(
        f"{table.select}INDEXED BY {_index(table, page)}\nWHERE {where}\n" for table in tables
    )
    return f"{compound}ORDER BY id DESC\nLIMIT :limit\n", parameters


def _index(table: _Table, page: Page) -> str:
    if page.idempotency_key is None:
        if page.state is State.RUNNING:
            return f"{table.name}_running"  # few, and sorted in no time; by id, a whole backlog would be read
        for column in table.ordered:
            if getattr(page, column) is not None:
                return f"{table.name}_{column}"
    return f"{table.name}_id"


def _compound(selects: Iterable[str]) -> str:
    return "UNION ALL\n".join(selects)

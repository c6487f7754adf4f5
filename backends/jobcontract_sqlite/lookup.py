"""Finding jobs: which tables a page needs, and under which conditions.

Each table is read in the order of the ids, by an index of its own: the id, (queue, id), (kind, id), or the
ledger of keys. The compound merges the three and stops at the limit, so that a page costs the same whatever
the number of finished jobs.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobcontract.contract import Page, State
from jobcontract_sqlite import statements

_TABLES = {
    statements.JOBS_LIVE: (State.READY, State.RUNNING, State.MOVING),
    statements.JOBS_DONE: (State.DONE,),
    statements.JOBS_DEAD: (State.DEAD, State.CANCELLED),
}
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
    return _compound(_TABLES, ["id = :id"])


def select_page(page: Page) -> tuple[str, dict[str, object]]:
    """The statement for `page`, newest id first, and its parameters."""
    parameters = {name: value for name, value in page._asdict().items() if value is not None}
    conditions = [condition for name, condition in _CONDITIONS.items() if name in parameters]
    tables: Iterable[str] = _TABLES
    if page.state is not None:
        tables = [table for table, states in _TABLES.items() if page.state in states]
        # Spelled out, for a partial index is not considered for a parameter.
        conditions.append(f"state = '{page.state}'")
        if page.state is State.RUNNING:
            # The planner would walk all ids of a backlog to save the sort of the few that run.
            tables = [f"{statements.JOBS_LIVE}INDEXED BY jobcontract_jobs_running\n"]
    return f"{_compound(tables, conditions)}ORDER BY id DESC\nLIMIT :limit\n", parameters


def _compound(tables: Iterable[str], conditions: Iterable[str]) -> str:
    where = " AND ".join(conditions) or "true"
    return "UNION ALL\n".join(f"{table}WHERE {where}\n" for table in tables)

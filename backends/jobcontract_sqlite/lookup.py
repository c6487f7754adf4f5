"""One page of jobs: which conditions it needs, beside the statement that all pages share."""

from __future__ import annotations

from jobcontract.contract import Page
from jobcontract_sqlite import statements

GET = statements.JOBS + "    AND id = :id\n"

# Each is served by an index of every table that grows without bound: the id, (queue, id), (kind, id), or the
# ledger of keys.
_CONDITIONS = {
    "cursor": "id < :cursor",
    "queue": "queue = :queue",
    "state": "state = :state",
    "kind": "kind = :kind",
    "idempotency_key": (
        "idempotency_key = :idempotency_key"
        " AND id IN (SELECT job_id FROM jobcontract_keys WHERE idempotency_key = :idempotency_key)"
    ),
}


def select_page(page: Page) -> tuple[str, dict[str, object]]:
    """The statement for `page`, newest id first, and its parameters."""
    parameters = {name: value for name, value in page._asdict().items() if value is not None}
    conditions = "".join(f"    AND {_CONDITIONS[name]}\n" for name in parameters if name in _CONDITIONS)
    return f"{statements.JOBS}{conditions}ORDER BY id DESC\nLIMIT :limit\n", parameters

"""Forgets what was published longer ago than the retention, a little at a time."""

from __future__ import annotations

from datetime import timedelta

from jobcontract.side_doors import HostsTables
from jobcontract_outbox.statements import Statements, single

_BATCH = 500
_FIRST = "00000000-0000-0000-0000-000000000000"


class Pruner:
    """Goes through the ledger in the order of the ids, from the oldest to the first that is young."""

    def __init__(self, host: HostsTables, statements: Statements, retention: timedelta) -> None:
        self._host = host
        self._statements = statements
        self._seconds = retention.total_seconds()
        self._cursor = _FIRST

    def prune(self) -> bool:
        """Look at the next few. Whether more of them may be past the retention."""
        with self._host.transaction() as transaction:
            if self._statements.dialect == "postgresql":
                found = single(
                    transaction,
                    self._statements("prune", self._cursor, _BATCH, self._seconds, self._seconds),
                )
                last, old = found[1:] if found else (None, False)
            else:
                bounds = (self._cursor, _BATCH, self._seconds)
                last, old = single(transaction, self._statements("prune_ahead", *bounds)) or (None, False)
                transaction.run(self._statements("prune", *bounds))
        self._cursor = last if old else _FIRST
        return bool(old)

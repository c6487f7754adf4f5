"""What the history needs now and then: tomorrow's partition, and an end for what is past the retention.

It runs within `rescue`, so that it needs no process of its own, and does a small piece at a time: a bounded
statement, for half a second at most. What can't be done now (a missing privilege, a lock that somebody holds)
is left for the next time.
"""

from __future__ import annotations

import time
from datetime import timedelta

from psycopg import errors

from jobcontract.contract import State
from jobcontract_postgres.connection import Connection
from jobcontract_postgres.schema import Schema
from jobcontract_postgres.statements import Statements, query

_INTERVAL = 600.0
_BUDGET = 0.5
_BATCH = 5000
_FIRST_ID = "00000000-0000-0000-0000-000000000000"
_ENDED = [State.DONE.value, State.CANCELLED.value]


class Housekeeping:
    """The housekeeping of one process. Not safe in threads: the driver lets in one at a time."""

    def __init__(self, statements: Statements, schema: Schema, retention: timedelta) -> None:
        self._statements = statements
        self._schema = schema
        self._retention = retention
        self._due = 0.0
        self._cursors: dict[str, str] = {}

    def run(self, connection: Connection) -> None:
        """Do what is due, for half a second at most. Raises what breaks the connection, and nothing else."""
        if time.monotonic() < self._due:
            return
        stop = time.monotonic() + _BUDGET
        try:
            self._schema.make_partitions(connection)
            finished = not self._retention or self._expire(connection, stop)
        except (errors.InsufficientPrivilege, errors.LockNotAvailable, errors.CheckViolation):
            finished = True
        if finished:
            self._due = time.monotonic() + _INTERVAL

    def _expire(self, connection: Connection, stop: float) -> bool:
        """Let go of what is past the retention; whether all of it is gone."""
        for partition in self._schema.expired_partitions(connection, self._retention):
            free = query(self._statements.free_keys(partition))
            seen = _BATCH
            while seen == _BATCH:
                if time.monotonic() >= stop:
                    return False
                row = connection.execute(free, (self._cursors.get(partition, _FIRST_ID), _BATCH)).fetchone()
                seen, last = row or (0, None)
                self._cursors[partition] = last or self._cursors.get(partition, _FIRST_ID)
            self._schema.drop_partition(connection, partition)
            self._cursors.pop(partition, None)
        prune = query(self._statements.prune_rest())
        while True:
            if time.monotonic() >= stop:
                return False
            bounds = (self._retention, _ENDED, _BATCH)
            row = connection.execute(prune, (*bounds, *bounds)).fetchone()
            if not row or row[0] < _BATCH:
                return True

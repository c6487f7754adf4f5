"""`once`: write a job's result once, however often the job runs.

Delivery is at least once: a worker that is killed, or stopped for longer than its lease, leaves a job that
runs again. The handler writes its result and calls `once` in **one transaction of its own database**::

    with connection.transaction():
        if once(connection, context):
            connection.execute("INSERT INTO results ...")

`once` inserts (queue, idempotency key; for a job without a key its id) into a small table. The first
transaction gets True. Any other gets False after the first has committed, waits while it is open, and gets
True when it rolled back. Commit both or neither: that is why a connection in autocommit mode without a
transaction is refused.

The table is ``effects`` in the schema ``jobcontract`` on PostgreSQL and ``jobcontract_effects`` on SQLite::

    queue        text         not null
    effect_key   text         not null    "key:" and the idempotency key, or "id:" and the job's id
    recorded_at  timestamptz  not null    on SQLite an integer: microseconds since 1970
    primary key (queue, effect_key)

`jobctl init` makes it in the store. An application database that is not a store gets it from
`create_effects_table`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Protocol

from jobcontract.connections import TRY_AGAIN, bind, run_steps
from jobcontract.contract import Job
from jobcontract.errors import ConfigError, InvalidJob, StoreError, StoreUnavailable
from jobcontract.side_doors import Dialect, Statement, Steps

DEFAULT_SCHEMA = "jobcontract"
_SCHEMA = re.compile(r"[^\x00]{1,63}\Z")
_NO_TABLE = frozenset({"42P01", "3F000"})


class HasJob(Protocol):
    """A `Claim`, or the context that a handler is given."""

    @property
    def job(self) -> Job:
        """The job that runs."""
        ...


def once(connection: object, running: HasJob, *, schema: str = DEFAULT_SCHEMA) -> bool:
    """Whether this is the first transaction to write the effect of the job that `running` (a claim or a
    context) runs.

    `connection` is a synchronous one of psycopg, SQLAlchemy (Connection or Session), Django or sqlite3,
    inside a transaction. `schema` is where the table is on PostgreSQL. Blocks while another transaction with
    the same job is open, as long as the connection's own timeouts allow.

    Raises `InvalidJob` (field ``connection``) when there is no transaction to be part of, `StoreUnavailable`
    when the database gave the wait up (the transaction must be rolled back), `StoreError` when the table is
    missing.
    """
    bound = bind(connection)
    return run_steps(bound, once_steps(bound.dialect, running.job, schema))


def once_steps(dialect: Dialect, job: Job, schema: str = DEFAULT_SCHEMA) -> Steps[bool]:
    """`once` as statements, for who drives them on another kind of connection."""
    table = _table(dialect, schema)
    key = f"id:{job.id}" if job.idempotency_key is None else f"key:{job.idempotency_key}"
    if dialect == "postgresql":
        sql = f"INSERT INTO {table} (queue, effect_key) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING 1"
    else:
        sql = f"INSERT INTO {table} (queue, effect_key) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING 1"
    try:
        recorded = yield Statement(sql, (job.queue, key))
    except Exception as error:
        raise _translated(error, table) from error
    return bool(recorded)


def create_effects_table(connection: object, *, schema: str = DEFAULT_SCHEMA) -> None:
    """Create the table where it is missing, in the transaction of `connection` (as for `once`); the caller
    commits.
    """
    bound = bind(connection)
    run_steps(bound, create_effects_table_steps(bound.dialect, schema))


def create_effects_table_steps(dialect: Dialect, schema: str = DEFAULT_SCHEMA) -> Steps[None]:
    """`create_effects_table` as statements."""
    table = _table(dialect, schema)
    try:
        if dialect == "postgresql":
            # Asked for first: CREATE SCHEMA IF NOT EXISTS needs the right to create one even when there is
            # nothing to do.
            if not (yield Statement("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,))):
                yield Statement(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}", ())
            yield Statement(
                f"CREATE TABLE IF NOT EXISTS {table} (queue text NOT NULL, effect_key text NOT NULL, "
                "recorded_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (queue, effect_key))",
                (),
            )
            yield Statement(f"CREATE INDEX IF NOT EXISTS effects_recorded_at ON {table} (recorded_at)", ())
        else:
            yield Statement(
                f"CREATE TABLE IF NOT EXISTS {table} (queue TEXT NOT NULL, effect_key TEXT NOT NULL, "
                f"recorded_at INTEGER NOT NULL DEFAULT ({_SQLITE_NOW}), PRIMARY KEY (queue, effect_key)) "
                "STRICT, WITHOUT ROWID",
                (),
            )
            yield Statement(f"CREATE INDEX IF NOT EXISTS {table}_recorded_at ON {table} (recorded_at)", ())
    except Exception as error:
        raise _translated(error, table) from error


def prune_effects(
    connection: object, older_than: timedelta, limit: int = 1000, *, schema: str = DEFAULT_SCHEMA
) -> int:
    """Forget at most `limit` effects that were recorded longer than `older_than` ago; how many were
    forgotten.

    A job whose effect is forgotten while it can still run writes its result again: let `older_than` be longer
    than the store keeps finished jobs and than any job waits. In the transaction of `connection` (as for
    `once`); the caller commits.
    """
    if older_than < timedelta():
        raise InvalidJob("older_than", f"must not be negative, not {older_than}")
    if limit < 1:
        raise InvalidJob("limit", f"must be at least 1, not {limit}")
    bound = bind(connection)
    return run_steps(bound, prune_effects_steps(bound.dialect, older_than, limit, schema))


def prune_effects_steps(
    dialect: Dialect, older_than: timedelta, limit: int, schema: str = DEFAULT_SCHEMA
) -> Steps[int]:
    """`prune_effects` as statements."""
    table = _table(dialect, schema)
    parameters: tuple[object, ...]
    if dialect == "postgresql":
        sql = (
            f"DELETE FROM {table} WHERE (queue, effect_key) IN (SELECT queue, effect_key FROM {table} "
            "WHERE recorded_at <= now() - %s ORDER BY recorded_at LIMIT %s FOR UPDATE SKIP LOCKED) "
            "RETURNING 1"
        )
        parameters = (older_than, limit)
    else:
        sql = (
            f"DELETE FROM {table} WHERE (queue, effect_key) IN (SELECT queue, effect_key FROM {table} "
            f"WHERE recorded_at <= {_SQLITE_NOW} - ? ORDER BY recorded_at LIMIT ?) RETURNING 1"
        )
        parameters = (older_than // timedelta(microseconds=1), limit)
    try:
        forgotten = yield Statement(sql, parameters)
    except Exception as error:
        raise _translated(error, table) from error
    return len(forgotten)


# Microseconds since 1970 by SQLite's clock, which counts milliseconds; its releases before 3.42 have no
# shorter way.
_SQLITE_NOW = "CAST(julianday('now') * 86400000 - 210866760000000 + 0.5 AS INTEGER) * 1000"


def _table(dialect: Dialect, schema: str) -> str:
    if dialect == "sqlite":
        return "jobcontract_effects"
    if not _SCHEMA.match(schema) or len(schema.encode()) > 63:
        raise ConfigError(f"schema: must have 1 to 63 bytes of UTF-8 and no NUL, not {schema!r}")
    return f"{_quoted(schema)}.effects"


def _quoted(name: str) -> str:
    # A percent sign would be read as a placeholder by psycopg.
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def _translated(error: Exception, table: str) -> StoreError:
    """The client's error, met at `table`, as ours. SQLAlchemy's is a wrapper, whose text repeats the
    parameters.
    """
    client: object = getattr(error, "orig", None) or error
    state = getattr(client, "sqlstate", None)
    if state in _NO_TABLE or f"no such table: {table}" in str(client):
        return StoreError(
            f"there is no table {table} on this connection; run `jobctl init` if it is a store's database, "
            "or create_effects_table(connection) once if it is your own"
        )
    # SQLite's primary result codes for a lock that was not given in time: 5 and 6.
    if state in TRY_AGAIN or getattr(client, "sqlite_errorcode", 0) & 0xFF in (5, 6):
        return StoreUnavailable(
            f"{table} could not be written now: {client}; roll back and run the transaction again"
        )
    return StoreError(f"{table} could not be written: {type(client).__name__}: {client}")

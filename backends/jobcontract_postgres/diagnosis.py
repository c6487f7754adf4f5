"""What hurts a PostgreSQL store: the side door `Diagnosis`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from jobcontract.durations import format_duration
from jobcontract.side_doors import Ailment, Expectations
from jobcontract_postgres.arrays import texts
from jobcontract_postgres.capabilities import PRIORITIES, weaknesses
from jobcontract_postgres.connection import Connection
from jobcontract_postgres.indexes import indexes
from jobcontract_postgres.low_water import LowWater, ranges
from jobcontract_postgres.options import PostgresOptions
from jobcontract_postgres.schema import Schema
from jobcontract_postgres.sessions import Sessions
from jobcontract_postgres.statements import Statements, query, quote

_CLAIM_INDEX = "live_jobs_ready"
_MANY_DEAD_ROWS = 50_000
"""A claim walks over so many in some tens of milliseconds."""


class Diagnosing:
    """Asks the catalogues and the statistics; reads no job."""

    def __init__(
        self, sessions: Sessions, statements: Statements, schema: Schema, options: PostgresOptions
    ) -> None:
        self._sessions = sessions
        self._statements = statements
        self._schema = schema
        self._options = options
        self._quoted = quote(statements.schema)

    def diagnose(self, expected: Expectations) -> list[Ailment]:
        """As `Diagnosis.diagnose`."""
        with self._sessions.session() as connection:
            return [
                *(Ailment("not_durable", *weakness) for weakness in weaknesses(self._sessions.facts)),
                *self._about_indexes(connection),
                *self._about_history(connection),
                *self._about_old_transactions(connection, expected.patience),
                *self._about_vacuum(connection, expected.patience),
                *self._about_pooler(),
                *self._about_connections(connection, expected.processes),
            ]

    def clock(self) -> datetime:
        """As `Diagnosis.clock`."""
        with self._sessions.session(checked=False) as connection:
            row = connection.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        now: datetime = row[0]
        return now

    def _about_indexes(self, connection: Connection) -> Iterator[Ailment]:
        names = texts(index.name for index in indexes())
        broken = connection.execute(query(self._statements.index_state), (names,)).fetchall()
        for name, exists, is_being_built in broken:
            if is_being_built:
                continue
            yield Ailment(
                "index",
                f"the index {name} is {'not valid: its build was interrupted' if exists else 'missing'}",
                "run `jobctl init`, which builds it without a lock that workers would notice",
            )
        if not broken:
            yield from self._about_claim_plan(connection)

    def _about_claim_plan(self, connection: Connection) -> Iterator[Ailment]:
        probes = LowWater().survey(["default"], PRIORITIES)
        explain = query(f"EXPLAIN (FORMAT JSON) {self._statements.claim}")
        parameters = (*ranges(probes), 1, 1, timedelta(minutes=2), True)
        row = connection.execute(explain, parameters, prepare=False).fetchone()
        used = {
            node.get("Index Name", node["Node Type"]) for node in _reads(row[0][0]["Plan"] if row else {})
        }
        if _CLAIM_INDEX not in used:
            yield Ailment(
                "claim_plan",
                f"a claim does not use the index {_CLAIM_INDEX}, but {', '.join(sorted(used))}",
                f"run ANALYZE {self._quoted}.live_jobs; and let no enable_* setting of the role or the "
                f"database "
                "forbid index scans",
            )

    def _about_history(self, connection: Connection) -> Iterator[Ailment]:
        missing = self._schema.missing_days(connection)[:2]
        in_net = connection.execute(query(f"SELECT FROM {self._quoted}.done_jobs_rest LIMIT 1")).fetchone()
        if (missing and missing[0] <= self._schema.tomorrow(connection)) or in_net is not None:
            yield Ailment(
                "history_partitions",
                "the history has no partition for jobs that end "
                + (f"on {missing[0]}" if missing else "now: some are in done_jobs_rest"),
                "run `jobctl init` now and daily, or one worker with a role that may create tables",
            )

    def _about_old_transactions(self, connection: Connection, patience: timedelta) -> Iterator[Ailment]:
        found = connection.execute(query(self._statements.old_transactions), (patience,)).fetchall()
        for kind, what, seconds in found:
            length = format_duration(timedelta(seconds=round(seconds))) if seconds is not None else ""
            match kind:
                case "idle":
                    yield Ailment(
                        "idle_in_transaction",
                        f"session {what} has been idle in its transaction for {length}: it keeps its locks, "
                        f"and "
                        "dead rows from being removed",
                        f"SELECT pg_terminate_backend({what.split()[0]}); and set "
                        "idle_in_transaction_session_timeout",
                    )
                case "busy":
                    yield Ailment(
                        "pinned_horizon",
                        f"session {what} has held a snapshot for {length}: no dead row is removed meanwhile",
                        f"wait for it, or SELECT pg_cancel_backend({what.split()[0]}); run long reports on "
                        f"a standby",
                    )
                case "prepared":
                    yield Ailment(
                        "pinned_horizon",
                        f"the prepared transaction {what} has been open for {length}: no dead row is removed "
                        "meanwhile",
                        f"COMMIT PREPARED {what} or ROLLBACK PREPARED {what}",
                    )
                case _:
                    yield Ailment(
                        "pinned_horizon",
                        f"nobody reads the replication slot {what}, and it keeps dead rows from being "
                        f"removed",
                        f"start its reader, or SELECT pg_drop_replication_slot({what})",
                    )
        row = connection.execute(
            "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), quote_ident(current_user)"
        ).fetchone()
        if row is not None and not row[0]:
            yield Ailment(
                "unseen",
                "this user does not see what other users' sessions do, so that an old transaction stays "
                "unnoticed",
                f"GRANT pg_read_all_stats TO {row[1]}",
            )

    def _about_vacuum(self, connection: Connection, patience: timedelta) -> Iterator[Ailment]:
        rows = connection.execute(query(self._statements.vacuum_state), ()).fetchall()
        if any(off for _, off, *_ in rows):
            yield Ailment(
                "vacuum",
                "autovacuum is off: dead rows pile up, and every claim walks over them",
                "set autovacuum = on and track_counts = on",
            )
            return
        for name, _, off, dead, live, seconds in rows:
            table = f"{self._quoted}.{name}"
            if off:
                yield Ailment(
                    "vacuum",
                    f"autovacuum is off for {table}: dead rows pile up, and every claim walks over them",
                    f"ALTER TABLE {table} RESET (autovacuum_enabled)",
                )
            elif dead > max(_MANY_DEAD_ROWS, live) and (
                seconds is None or seconds > patience.total_seconds()
            ):
                yield Ailment(
                    "dead_rows",
                    f"{table} has {dead:,} dead rows beside {live:,} that live, and vacuum was "
                    + (
                        "never there"
                        if seconds is None
                        else f"there {format_duration(timedelta(seconds=round(seconds)))} ago"
                    ),
                    f"end what pins the horizon, if that is named here too; then VACUUM {table}",
                )

    def _about_pooler(self) -> Iterator[Ailment]:
        if not self._sessions.facts.pooled:
            return
        options = self._options
        if options.listen == "on" and options.prepared_statements == "on":
            return  # whoever set both says that its sessions can be relied on
        yield Ailment(
            "pooler",
            "a pooler stands in between, and in transaction mode LISTEN and prepared statements are lost: "
            "waiting "
            "workers poll every two seconds, and each statement is planned anew",
            "give workers a URL without the pooler; or set listen and prepared_statements to on for one in "
            "session "
            "mode",
        )

    def _about_connections(self, connection: Connection, processes: int) -> Iterator[Ailment]:
        if self._sessions.facts.pooled:
            return
        row = connection.execute(query(self._statements.connections_left), ()).fetchone()
        each = self._options.pool_size + 1
        if row is not None and row[3] < each * processes:
            name, value, used, left = row
            many = f"{processes} more processes" if processes > 1 else "one more process"
            yield Ailment(
                "connections",
                f"{name} leaves {max(0, left)} of {value} connections ({used} are in use), and {many} may "
                f"open "
                f"{each * processes} (pool_size {self._options.pool_size}, and one to listen)",
                f"raise it to {used + each * processes} at least, lower pool_size, or run fewer processes",
            )


def _reads(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a plan that read the live jobs to find one to claim, not to lock or update one by its
    id.
    """
    if plan.get("Relation Name") == "live_jobs" and plan.get("Node Type") != "ModifyTable":
        yield plan
    for below in plan.get("Plans", ()):
        yield from _reads(below)

"""The indexes of an installation: which there have to be, and how one that is missing or broken is built.

They are read from the migrations, so that each is written once. On a table that is in use an index is built
CONCURRENTLY, which takes no lock that a worker would notice, can't be part of a transaction, and leaves an
unusable index behind when it is interrupted::

              build                      done
    missing --------> invalid, being built --------> valid
       ^                    |
       | drop               | the builder went away
       +---- invalid, nobody builds it

`repair` goes along these arrows until every index is valid. Several may do so at once: whoever comes second
finds the name taken, looks again, and waits for the first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from psycopg import errors

from jobcontract.side_doors import Step
from jobcontract_postgres.arrays import texts
from jobcontract_postgres.connection import Connection
from jobcontract_postgres.statements import Statements, query, quote

_CREATE = re.compile(r"^CREATE INDEX (?:IF NOT EXISTS )?(\w+) ON \{schema\}\.(\w+) ([^;]+);", re.MULTILINE)
_DROP = re.compile(r"^DROP INDEX (?:IF EXISTS )?\{schema\}\.(\w+);", re.MULTILINE)
_PARTITIONED = "done_jobs"
_LONGEST_BUILD = 6 * 3600.0
_LONGEST_WAIT = 60.0
"""Seconds to wait for somebody else's build, or for a lock that others hold, before the next run has to."""
_PAUSE = 0.1
SOMEBODY_ELSE = (errors.DuplicateTable, errors.UniqueViolation, errors.DeadlockDetected)
"""What is raised when another one makes the same index at the same time."""


class Index(NamedTuple):
    """One index, as its migration makes it."""

    migration: str
    """The name of the file."""
    name: str
    table: str
    definition: str
    """What follows the table's name."""


@cache
def indexes() -> tuple[Index, ...]:
    """Every index that is no constraint, in the order of the migrations."""
    found: dict[str, Index] = {}
    directory = files("jobcontract_postgres").joinpath("schema")
    for entry in sorted(directory.iterdir(), key=lambda each: each.name):
        text = entry.read_text(encoding="utf-8") if entry.name.endswith(".sql") else ""
        found |= {
            match[1]: Index(entry.name, match[1], match[2], match[3]) for match in _CREATE.finditer(text)
        }
        for match in _DROP.finditer(text):
            found.pop(match[1], None)
    return tuple(found.values())


def without(text: str, those: Sequence[Index]) -> str:
    """The migration `text` without the statements that create `those`."""
    names = {index.name for index in those}
    return _CREATE.sub(lambda match: "" if match[1] in names else match[0], text)


class Builder:
    """Builds indexes of one installation on tables that are in use."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._schema = quote(statements.schema)

    def on_existing_tables(self, connection: Connection, migration: str) -> list[Index]:
        """Those of `migration` whose tables were made by an earlier one, and may be in use."""
        mine = [index for index in indexes() if index.migration == migration]
        rows = connection.execute(
            "SELECT name FROM unnest(%s::text[]) AS wanted (name) WHERE to_regclass(%s || name) IS NOT NULL",
            (texts(index.table for index in mine), f"{self._schema}."),
        )
        tables = {name for (name,) in rows}
        return [index for index in mine if index.table in tables]

    def broken(self, connection: Connection) -> list[Index]:
        """Those that are missing or not valid."""
        wanted = {index.name: index for index in indexes()}
        rows = connection.execute(query(self._statements.index_state), (texts(wanted),))
        return [wanted[name] for name, _, _ in rows]

    def steps(self, index: Index) -> list[Step]:
        """What builds `index`, for people to read."""
        where = f"{self._schema}.{index.table}"
        return [
            Step(
                f"index {index.name}",
                f"CREATE INDEX CONCURRENTLY {index.name} ON {where} {index.definition};\n"
                if index.table != _PARTITIONED
                else f"CREATE INDEX {index.name} ON ONLY {where} {index.definition};\n"
                "-- and for each partition: CREATE INDEX CONCURRENTLY, ALTER INDEX ... ATTACH PARTITION\n",
            )
        ]

    def repair(self, connection: Connection, only: Sequence[Index] | None = None) -> Iterator[Step]:
        """Build what is missing or broken (among `only`); yields each that it mended.

        Blocks for as long as the builds take. Raises `LockNotAvailable` when somebody else is in the way for
        a minute: the next run goes on where this one stopped.
        """
        for index in self.broken(connection):
            if only is None or index in only:
                connection.expire_in(_LONGEST_BUILD)
                if index.table == _PARTITIONED:
                    self._build_on_partitions(connection, index)
                else:
                    self._build(connection, index.name, index.table, index.definition)
                yield from self.steps(index)

    def _build(self, connection: Connection, name: str, table: str, definition: str) -> None:
        deadline = time.monotonic() + _LONGEST_WAIT
        while True:
            row = connection.execute(query(self._statements.index_state), (texts([name]),)).fetchone()
            if row is None:
                return
            _, exists, is_being_built = row
            if is_being_built:
                self._wait(deadline, name)
                continue
            if exists:
                connection.execute(query(f"DROP INDEX CONCURRENTLY IF EXISTS {self._schema}.{quote(name)}"))
            try:
                connection.execute(
                    query(
                        f"CREATE INDEX CONCURRENTLY {quote(name)} ON {self._schema}.{quote(table)} "
                        f"{definition}"
                    )
                )
            except SOMEBODY_ELSE:
                self._wait(deadline, name)

    def _build_on_partitions(self, connection: Connection, index: Index) -> None:
        """An index of a partitioned table can't be built concurrently; those of its partitions can, and the
        table's own is valid once it has one of each.
        """
        parent = f"{self._schema}.{quote(index.table)}"
        self._impatiently(
            connection,
            f"CREATE INDEX IF NOT EXISTS {quote(index.name)} ON ONLY {parent} {index.definition}",
            index.name,
        )
        rows = connection.execute(query(self._statements.partitions_without), (index.name,)).fetchall()
        for (partition,) in rows:
            name = f"{partition}_{index.name.removeprefix('done_jobs_')}"
            self._build(connection, name, partition, index.definition)
            self._impatiently(
                connection,
                f"ALTER INDEX {self._schema}.{quote(index.name)} ATTACH PARTITION "
                f"{self._schema}.{quote(name)}",
                index.name,
            )

    def _impatiently(self, connection: Connection, statement: str, name: str) -> None:
        """Run what needs a lock that keeps writers out for an instant: whoever waits for it keeps out all who
        come later, so it is asked for briefly, and again.
        """
        deadline = time.monotonic() + _LONGEST_WAIT
        while True:
            try:
                with connection.transaction():
                    connection.execute("SELECT set_config('lock_timeout', '50ms', true)")
                    connection.execute(query(statement))
                return
            except (errors.LockNotAvailable, *SOMEBODY_ELSE):
                self._wait(deadline, name)

    def _wait(self, deadline: float, name: str) -> None:
        if time.monotonic() > deadline:
            raise errors.LockNotAvailable(f"somebody else is in the way of the index {name}; run it again")
        time.sleep(_PAUSE)

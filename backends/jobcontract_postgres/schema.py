"""The installation: numbered migrations, the partitions of the history, and the check that code and schema
fit.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import NamedTuple

from psycopg import errors

from jobcontract.errors import InstallationError
from jobcontract.side_doors import Step
from jobcontract_postgres.connection import Connection
from jobcontract_postgres.indexes import SOMEBODY_ELSE, Builder, Index, without
from jobcontract_postgres.statements import Statements, query, quote

DAYS_AHEAD = 2
_PARTITION = re.compile(r"^done_jobs_\d{8}$")
_FILE = re.compile(r"^(\d{3})_(\w+)\.sql$")


class Migration(NamedTuple):
    """One file of ``schema/``."""

    number: int
    title: str
    file_name: str


def migrations() -> list[Migration]:
    """All migrations that this code knows, in order."""
    found = [
        match
        for entry in files("jobcontract_postgres").joinpath("schema").iterdir()
        if (match := _FILE.match(entry.name))
    ]
    return sorted(Migration(int(match[1]), match[2].replace("_", " "), match[0]) for match in found)


VERSION = migrations()[-1].number
"""The schema that this code brings."""
OLDEST_SCHEMA = 1
"""The oldest one that this code works with: an older one needs `jobctl init` first. Raise it with a migration
that statements of this code rely on."""
_OLDEST_CODE = re.compile(r"^-- Oldest code that works with this: (\d+)$", re.MULTILINE)


class Installed(NamedTuple):
    """What stands in the table of versions."""

    version: int
    oldest_code: int
    """The lowest `VERSION` of code that may work with it."""


_CREATE_VERSIONS = """\
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.schema_version (
    version     integer     NOT NULL PRIMARY KEY,
    title       text        NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
"""


class Schema:
    """The objects of one installation."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._name = statements.schema
        self._quoted = quote(statements.schema)
        self._builder = Builder(statements)

    def check(self, installed: Installed | None, where: str) -> int:
        """The version that is `installed` (None: nothing is). Raises `InstallationError` unless this code can
        work with it.

        Code and schema of two neighbouring versions may work together, so that either can be upgraded first,
        under load: a migration says what it still puts up with, and the code what it needs.
        """
        name = f"the schema {self._name!r} of {where}"
        if installed is None:
            raise InstallationError(f"{name} does not hold a jobcontract installation; run `jobctl init`")
        if installed.version < OLDEST_SCHEMA:
            raise InstallationError(
                f"{name} has version {installed.version} and this jobcontract needs {OLDEST_SCHEMA}; "
                "run `jobctl init`"
            )
        if installed.oldest_code > VERSION:
            raise InstallationError(
                f"{name} has version {installed.version}, and this jobcontract knows {VERSION}; "
                "upgrade the package jobcontract"
            )
        return installed.version

    def read_installed(self, connection: Connection) -> Installed | None:
        """What is installed; None when nothing is."""
        # Not by to_regclass, which may remember, within a transaction, that the table was not there before.
        found = connection.execute(
            "SELECT FROM pg_class JOIN pg_namespace AS schema ON schema.oid = relnamespace"
            " WHERE nspname = %s AND relname = 'schema_version'",
            (self._name,),
        ).fetchone()
        if found is None:
            return None
        # By way of JSON, for the first version of the table has no such column. Where nothing is said, only
        # code
        # that knows the migration works with it.
        row = connection.execute(
            query(
                "SELECT max(version), max(coalesce((to_json(each) ->> 'oldest_code')::integer, version))"
                f" FROM {self._quoted}.schema_version AS each"
            )
        ).fetchone()
        return Installed(row[0], row[1]) if row and row[0] is not None else None

    def read_version(self, connection: Connection) -> int | None:
        """The version of the installed schema; None when there is none."""
        installed = self.read_installed(connection)
        return None if installed is None else installed.version

    def install(self, connection: Connection, where: str, *, dry_run: bool) -> list[Step]:
        """Bring the schema to `VERSION` and make the partitions of the next days: what was done, or would."""
        if not dry_run:
            steps = [*self._migrate(connection, where), *self._builder.repair(connection)]
            # If it can't be now, the safety net takes what ends meanwhile, and housekeeping tries again.
            with suppress(errors.LockNotAvailable):
                steps += self.make_partitions(connection)
            return steps
        installed = self.read_installed(connection)
        version = None if installed is None else installed.version
        if installed is not None and installed.version > VERSION:
            self.check(installed, where)
            return []
        steps = self._pending(connection, version, fresh=version is None)
        if version is not None:
            broken = [
                step
                for index in self._builder.broken(connection)
                if index in self._builder.on_existing_tables(connection, index.migration)
                for step in self._builder.steps(index)
            ]
            steps = broken + steps
        days = _days_from(self._today(connection)) if version is None else self.missing_days(connection)
        return steps + [self._partition(day) for day in days]

    def make_partitions(self, connection: Connection) -> list[Step]:
        """Make the partitions of the next days where they are missing. Raises `LockNotAvailable` when
        somebody reads the history all the while: attaching one locks the safety net against everybody.
        """
        if not self.missing_days(connection):
            return []
        with self._locked(connection):
            _be_impatient(connection)
            steps = [self._partition(day) for day in self.missing_days(connection)]
            for step in steps:
                connection.execute(query(step.statements))
        return steps

    def expired_partitions(self, connection: Connection, retention: timedelta) -> list[str]:
        """The partitions that hold nothing younger than `retention`, the oldest first."""
        last = self._today(connection) - retention - timedelta(days=1)
        return sorted(each for each in self._partitions(connection) if each <= _partition_name(last))

    def tomorrow(self, connection: Connection) -> date:
        """By the server's clock, in UTC."""
        return self._today(connection) + timedelta(days=1)

    def drop_partition(self, connection: Connection, name: str) -> None:
        """Drop a partition of the history. Raises `LockNotAvailable` when somebody reads the history all the
        while.
        """
        with self._locked(connection):
            _be_impatient(connection)
            connection.execute(query(f"DROP TABLE IF EXISTS {self._quoted}.{quote(name)}"))

    def _migrate(self, connection: Connection, where: str) -> Iterator[Step]:
        fresh = self.read_version(connection) is None  # then no table can be in use
        while True:
            # One transaction each, so that a failing migration leaves those before it. The version is read
            # again under the lock: another process may have been faster.
            installed = self.read_installed(connection)
            if installed is not None and installed.version > VERSION:
                self.check(installed, where)
                return
            if installed is not None and not fresh and (ahead := self._unapplied(installed.version)):
                # Before the transaction, in which an index could only be built behind a lock.
                on_old_tables = self._builder.on_existing_tables(connection, ahead[0].file_name)
                yield from self._builder.repair(connection, on_old_tables)
            try:
                with self._locked(connection):
                    pending = self._pending(connection, self.read_version(connection), fresh=fresh)
                    if not pending:
                        return
                    step = pending[0]
                    connection.execute(query(step.statements))
            except SOMEBODY_ELSE:
                if not fresh:
                    raise
                fresh = False  # another process came between two migrations, and builds the indexes apart
                continue
            yield step

    def _unapplied(self, version: int | None) -> list[Migration]:
        return [each for each in migrations() if each.number > (version or 0)]

    def _pending(self, connection: Connection, version: int | None, *, fresh: bool) -> list[Step]:
        steps: list[Step] = []
        for each in self._unapplied(version):
            apart = [] if fresh else self._builder.on_existing_tables(connection, each.file_name)
            steps.append(Step(f"{each.number:03} {each.title}", self._statements_of(each, apart)))
        if version is None and steps:
            steps[0] = Step(
                steps[0].title, _CREATE_VERSIONS.replace("{schema}", self._quoted) + steps[0].statements
            )
        return steps

    def _statements_of(self, migration: Migration, built_apart: Sequence[Index]) -> str:
        # With its mark, so that what `init --dry-run` prints is all there is to run.
        text = self._statements.fill(without(self._statements.migration(migration.file_name), built_apart))
        mark = f"{migration.number}, '{migration.title}'"
        columns = "version, title"
        if match := _OLDEST_CODE.search(text):
            mark, columns = f"{mark}, {match[1]}", f"{columns}, oldest_code"
        return f"{text.rstrip()}\n\nINSERT INTO {self._quoted}.schema_version ({columns}) VALUES ({mark});\n"

    @contextmanager
    def _locked(self, connection: Connection) -> Generator[None]:
        with connection.transaction():
            connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 1))",
                (f"jobcontract install {self._name}",),
            )
            yield

    def _today(self, connection: Connection) -> date:
        row = connection.execute("SELECT clock_timestamp() AT TIME ZONE 'UTC'").fetchone()
        found: datetime = row[0] if row else datetime.now(UTC)
        return found.date()

    def _partitions(self, connection: Connection) -> set[str]:
        rows = connection.execute(
            "SELECT child.relname::text FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid"
            " WHERE inhparent = to_regclass(%s)",
            (f"{self._quoted}.done_jobs",),
        )
        return {name for (name,) in rows if _PARTITION.match(name)}

    def missing_days(self, connection: Connection) -> list[date]:
        """The next days without a partition, save those whose jobs are in the safety net already: there they
        stay.
        """
        present = self._partitions(connection)
        days = [day for day in _days_from(self._today(connection)) if _partition_name(day) not in present]
        if not days:
            return []
        row = connection.execute(
            query(f"SELECT max(finished_at) FROM {self._quoted}.done_jobs_rest")
        ).fetchone()
        last: datetime | None = row[0] if row else None
        return [day for day in days if last is None or last.astimezone(UTC).date() < day]

    def _partition(self, day: date) -> Step:
        parent = f"{self._quoted}.done_jobs"
        name = f"{self._quoted}.{_partition_name(day)}"
        # Made apart and then attached: that takes a weaker lock on the parent, which is written all the time.
        return Step(
            f"history of {day}",
            f"CREATE TABLE {name} (LIKE {parent} INCLUDING ALL);\n"
            f"ALTER TABLE {parent} ATTACH PARTITION {name}"
            f" FOR VALUES FROM ('{day} 00:00:00+00') TO ('{day + timedelta(days=1)} 00:00:00+00');\n",
        )


def _be_impatient(connection: Connection) -> None:
    """For the rest of the transaction. A lock that keeps everybody out keeps out all who come later, even
    while it is waited for: behind a backup that reads the history, each registration would stand in line too.
    """
    connection.execute("SELECT set_config('lock_timeout', '100ms', true)")


def _days_from(today: date) -> list[date]:
    return [today + timedelta(days=ahead) for ahead in range(DAYS_AHEAD + 1)]


def _partition_name(day: date) -> str:
    return f"done_jobs_{day:%Y%m%d}"

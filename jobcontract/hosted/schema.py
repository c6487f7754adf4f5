"""Numbered forward migrations of hosted tables, and the check that code and tables fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from jobcontract.errors import InstallationError, StoreError, StoreUnavailable
from jobcontract.hosted.statements import HostedStatements, single
from jobcontract.side_doors import HostsTables, Installation, Statement, Step, Transaction

_FILE = re.compile(r"^(\d{3})_(\w+)\.sql$")
_QUOTED = re.compile(r'"[^"]*"')  # a schema's name may hold semicolons and dashes


class Migration(NamedTuple):
    """One file of ``schema/<dialect>/``."""

    number: int
    title: str
    file_name: str


class HostedSchema:
    """The hosted tables in one SQL store, called `host_name` in the configuration."""

    def __init__(
        self, host: HostsTables, host_name: str, statements: HostedStatements, *, what: str, remedy: str
    ) -> None:
        """`what` they are, without an article, and the `remedy` when they are missing or old."""
        self._host = host
        self._name = host_name
        self._statements = statements
        self._what = what
        self._remedy = remedy
        self._migrations = _migrations(statements)

    @property
    def version(self) -> int:
        """What this code works with."""
        return self._migrations[-1].number

    def check(self, transaction: Transaction) -> None:
        """Raise `InstallationError` unless this code can work with what is installed."""
        found = self.read_version(transaction)
        if found == self.version:
            return
        where = f"the backend {self._name!r}"
        if found == 0:
            raise InstallationError(f"{where} holds no {self._what} yet; {self._remedy}")
        if found < self.version:
            raise InstallationError(
                f"{where} has version {found} of the {self._what}, and this jobcontract needs "
                f"{self.version}; {self._remedy}"
            )
        raise self._too_new(found)

    def read_version(self, transaction: Transaction) -> int:
        """The version of the installed tables; 0 when there are none."""
        name = self._statements.table("versions")
        row = single(transaction, self._statements("has_versions", name))
        if row is None or not row[0]:
            return 0
        row = single(transaction, self._statements("read_version"))
        return int(row[0]) if row else 0

    def install(self, *, dry_run: bool) -> list[Step]:
        """Bring the host and the tables to the version of this code: what was done, or would be."""
        steps = self._host.install(dry_run=dry_run) if isinstance(self._host, Installation) else []
        if dry_run:
            return [*steps, *self._pending_without_host(bool(steps))]
        with self._host.transaction() as transaction:
            transaction.run(self._statements("lock_schema", f"jobcontract {self._statements.label}"))
            for migration, step in self._pending(self.read_version(transaction)):
                for statement in _split(step.statements):
                    transaction.run(Statement(statement, ()))
                transaction.run(self._statements("add_version", migration.number, migration.title))
                steps.append(step)
        return steps

    def _pending_without_host(self, host_is_new: bool) -> list[Step]:
        try:
            with self._host.transaction() as transaction:
                version = self.read_version(transaction)
        except StoreUnavailable:
            raise
        except StoreError:
            if not host_is_new:
                raise
            version = 0
        return [step for _, step in self._pending(version)]

    def _pending(self, version: int) -> list[tuple[Migration, Step]]:
        if version > self.version:
            raise self._too_new(version)
        pending = [each for each in self._migrations if each.number > version]
        steps = [
            Step(
                f"{self._statements.label} {each.number:03} {each.title}",
                (self._create_versions() if each.number == 1 else "")
                + self._statements.migration(each.file_name),
            )
            for each in pending
        ]
        return list(zip(pending, steps, strict=True))

    def _create_versions(self) -> str:
        return self._statements("create_versions").sql + "\n"

    def _too_new(self, version: int) -> InstallationError:
        return InstallationError(
            f"the backend {self._name!r} has version {version} of the {self._what}, and this jobcontract "
            f"knows {self.version}; upgrade jobcontract"
        )


def _migrations(statements: HostedStatements) -> list[Migration]:
    found = [
        match
        for entry in files(statements.package).joinpath(statements.schema_folder).iterdir()
        if (match := _FILE.match(entry.name))
    ]
    return sorted(Migration(int(match[1]), match[2].replace("_", " "), match[0]) for match in found)


def _split(script: str) -> Iterator[str]:
    """The statements of a script in which each ends with a semicolon at the end of a line."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        code = _QUOTED.sub("", line).partition("--")[0].rstrip()
        if code.endswith(";"):
            yield pending
            pending = ""

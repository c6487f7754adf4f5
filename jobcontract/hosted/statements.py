"""The SQL, one statement per file, with the tables' names set in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jobcontract.side_doors import Dialect, HostsTables, Row, Statement, Transaction

_OWN = frozenset({"create_versions", "add_version", "has_versions", "read_version", "lock_schema"})
"""The statements about versions, which are the same for all."""
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class HostedStatements:
    """The statements for the tables `tables` of `package` that `host` holds. Contacts nothing."""

    def __init__(self, host: HostsTables, package: str, label: str, tables: Sequence[str]) -> None:
        """`label` names them to those who look at what a server runs."""
        self.dialect: Dialect = host.dialect
        self.package = package
        self.label = label
        self._places = {name: host.table(name) for name in tables} | {
            "versions": host.table(f"{label}_schema")
        }
        self._place = re.compile(r"\{(" + "|".join(map(re.escape, self._places)) + r")\}")
        self._filled: dict[str, str] = {}
        self.schema_folder = f"schema/{self.dialect}"
        """Where in the package the migrations are."""

    def __call__(self, verb: str, *parameters: object) -> Statement:
        """The statement of ``sql/<dialect>/<verb>.sql`` with `parameters`."""
        sql = self._filled.get(verb)
        if sql is None:
            # Without the comments: a client's cache takes short statements only. The name stays, for those
            # who look at what the server runs.
            text = _COMMENT.sub("", self._text(verb))
            sql = self._filled[verb] = f"/* jobcontract {self.label} {verb} */ {self.fill(text)}"
        return Statement(sql, parameters)

    def migration(self, file_name: str) -> str:
        """The DDL of ``<schema_folder>/<file_name>``, comments kept: it is shown to people."""
        return self.fill(read(self.package, f"{self.schema_folder}/{file_name}"))

    def table(self, name: str) -> str:
        """The SQL name of a table, as a value: without what it is escaped by in a statement."""
        return self._places[name].replace("%%", "%")

    def fill(self, text: str) -> str:
        """`text` with the names of the tables."""
        return self._place.sub(lambda place: self._places[place[1]], text)

    def _text(self, verb: str) -> str:
        package = "jobcontract.hosted" if verb in _OWN else self.package
        return read(package, f"sql/{self.dialect}/{verb}.sql")


@cache
def read(package: str, path: str) -> str:
    """A file of `package`."""
    return files(package).joinpath(path).read_text(encoding="utf-8")


def single(transaction: Transaction, statement: Statement) -> Row | None:
    """The first row of `statement`, if it has one."""
    rows = transaction.run(statement)
    return rows[0] if rows else None

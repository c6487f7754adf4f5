"""The SQL, from ``sql/<dialect>/<verb>.sql``: one statement per file, the tables' names set in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from jobcontract.contract import Dialect, HostsTables, Row, Statement, Transaction

TABLES = ("outbox_jobs", "outbox_targets", "outbox_schema", "outbox")
_PLACE = re.compile(r"\{(" + "|".join(TABLES) + r")\}")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Statements:
    """The statements for the outbox that `host` holds."""

    def __init__(self, host: HostsTables) -> None:
        self.dialect: Dialect = host.dialect
        self._tables = {name: host.table(name) for name in TABLES}
        self._filled: dict[str, str] = {}

    def __call__(self, verb: str, *parameters: object) -> Statement:
        """The statement of ``sql/<dialect>/<verb>.sql`` with `parameters`."""
        sql = self._filled.get(verb)
        if sql is None:
            # Without the comments: a client's cache takes short statements only. The name stays, for those
            # who look at what the server runs.
            text = _COMMENT.sub("", _read(f"sql/{self.dialect}/{verb}.sql"))
            sql = self._filled[verb] = f"/* jobcontract outbox {verb} */ {fill(text, self._tables)}"
        return Statement(sql, parameters)

    def migration(self, file_name: str) -> str:
        """The DDL of ``schema/<dialect>/<file_name>``, comments kept: it is shown to people."""
        return fill(_read(f"schema/{self.dialect}/{file_name}"), self._tables)

    def table(self, name: str) -> str:
        """The SQL name of one of `TABLES`, as a value: without what it is escaped by in a statement."""
        return self._tables[name].replace("%%", "%")


def fill(text: str, tables: Mapping[str, str]) -> str:
    """`text` with the names of the tables."""
    return _PLACE.sub(lambda place: tables[place[1]], text)


@cache
def _read(path: str) -> str:
    return files("jobcontract_outbox").joinpath(path).read_text(encoding="utf-8")


def single(transaction: Transaction, statement: Statement) -> Row | None:
    """The first row of `statement`, if it has one."""
    rows = transaction.run(statement)
    return rows[0] if rows else None

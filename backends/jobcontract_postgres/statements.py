"""The SQL of each verb, from ``sql/<verb>.sql``, made ready for one installation."""

from __future__ import annotations

import re
from hashlib import blake2b
from importlib.resources import files
from typing import LiteralString, cast

from psycopg import sql

_PLACE = re.compile(r"\{(schema|channel|wake)\}")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_MAX_IDENTIFIER_BYTES = 63


def channel_name(schema: str) -> str:
    """The NOTIFY channel of the installation in `schema`. Channels are names, and long names would be cut into one."""
    readable = f"jobcontract.{schema}"
    if len(readable.encode()) <= _MAX_IDENTIFIER_BYTES:
        return readable
    return f"jobcontract#{blake2b(schema.encode(), digest_size=16).hexdigest()}"


def quote(identifier: str) -> str:
    """`identifier` as a quoted SQL name."""
    return sql.Identifier(identifier).as_string()


class Statements:
    """The statements of one installation: the schema's name and the channel are set in here, and nothing else is."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.channel = channel_name(schema)
        self.register = self._verb("register")
        self.register_lookup = self._verb("register_lookup")
        self.claim = self._verb("claim")
        self.complete = self._verb("complete")
        self.fail = self._verb("fail")
        self.extend = self._verb("extend")
        self.release = self._verb("release")
        self.rescue = self._verb("rescue")

    def migration(self, file_name: str) -> str:
        """The DDL of ``schema/<file_name>``, comments kept: it is shown to people. Run without parameters."""
        return _text("schema", file_name).replace("{schema}", quote(self.schema))

    def _verb(self, name: str) -> str:
        # Comments go, because psycopg caches its translation of a statement only below 4096 characters. The name
        # stays, for those who read pg_stat_activity.
        return f"/* jobcontract {name} */ {self._fill(name)}"

    def _fill(self, name: str) -> str:
        # Statements take parameters, so a percent sign in a name must be doubled.
        values = {
            "schema": quote(self.schema).replace("%", "%%"),
            "channel": sql.Literal(self.channel).as_string().replace("%", "%%"),
        }
        text = _COMMENT.sub("", _text("sql", f"{name}.sql"))
        wake = self._fill("wake").strip() if "{wake}" in text else ""
        return _PLACE.sub(lambda place: wake if place[1] == "wake" else values[place[1]], text)


def literal(statement: str) -> LiteralString:
    """psycopg takes only literal strings, to keep values out of statements. Ours come from files, values are parameters."""
    return cast("LiteralString", statement)


def _text(directory: str, file_name: str) -> str:
    return files("jobcontract_postgres").joinpath(directory, file_name).read_text(encoding="utf-8")

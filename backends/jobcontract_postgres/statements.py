"""The SQL of each verb, from ``sql/<verb>.sql``, made ready for one installation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files

from psycopg import sql

_PLACE = re.compile(r"\{(schema|name|channel|history|wake|moved|gate|live|pass|ended|unchanged)\}")
_PARAMETER = re.compile(r"(?<!%)%s")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_MAX_IDENTIFIER_BYTES = 63


def channel_name(schema: str) -> str:
    """The NOTIFY channel of the installation in `schema`. Channels are names, and long names would be cut
    into one.
    """
    readable = f"jobcontract.{schema}"
    if len(readable.encode()) <= _MAX_IDENTIFIER_BYTES:
        return readable
    return f"jobcontract#{_digest(schema)}"


def _digest(schema: str) -> str:
    return blake2b(schema.encode(), digest_size=16).hexdigest()


def quote(identifier: str) -> str:
    """`identifier` as a quoted SQL name."""
    return sql.Identifier(identifier).as_string()


class Statements:
    """The statements of one installation: the schema's name and the channel are set in here, and nothing else
    is.
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.channel = channel_name(schema)
        self.register = self._verb("register")
        self.register_on_old_schema = self._verb("register", unchanged="false")
        self.register_one = self._verb("register_one")
        self.register_lookup = self._verb("register_lookup")
        self.claim = self._verb("claim")
        self.complete = self._verb("complete")
        self.fail = self._verb("fail")
        self.extend = self._verb("extend")
        self.release = self._verb("release")
        self.rescue = self._verb("rescue")
        self.next_due = self._verb("next_due")
        self.wake_topic = self._verb("wake_topic")
        self.watch = self._verb("watch")
        self.unwatch = self._verb("unwatch")
        self.get = self._verb("get")
        self.get_by_key = self._verb("get_by_key")
        self.page = self._verb("page")
        self.states = self._verb("states")
        self.stats = self._verb("stats")
        self.history_end = self._verb("history_end")
        self.done_rate = self._verb("done_rate")
        self.cancel = self._verb("cancel")
        self.requeue = self._verb("requeue")
        self.prune = self._verb("prune")
        self.pause = self._verb("pause")
        self.resume = self._verb("resume")
        self.old_transactions = self._verb("old_transactions")
        self.vacuum_state = self._verb("vacuum_state")
        self.connections_left = self._verb("connections_left")
        self.index_state = self._verb("index_state")
        self.partitions_without = self._verb("partitions_without")
        self.identity = self._verb("identity")
        self.read_notes = self._verb("read_notes")
        self.write_note = self._verb("write_note")
        self.gate = self._verb("gate")
        self.gate_lock = self._verb("gate_lock")
        self.gate_set = self._verb("gate_set")
        self.open_registrations = self._verb("open_registrations")
        self.hide = self._verb("hide")
        self.hide_dead = self._verb("hide_dead")
        self.hidden = self._verb("hidden")
        self.reveal = self._verb("reveal")
        self.bury = self._verb("bury")
        self.buried = self._verb("buried")
        self.keyed = self._verb("keyed")
        self.recall = self._verb("recall")
        self.forget_buried = self._verb("forget_buried")
        self.admit = self._verb("admit")
        self.key_holders = self._verb("key_holders")

    def migration(self, file_name: str) -> str:
        """The DDL of ``schema/<file_name>`` as it is written, for `fill`."""
        return _text("schema", file_name)

    def fill(self, migration: str) -> str:
        """`migration` for this installation, comments kept: it is shown to people. Run without parameters."""
        return migration.replace("{schema}", quote(self.schema))

    def prune_rest(self) -> str:
        """`prune`, of the history's safety net instead of all of it."""
        return self._verb("prune", history=quote("done_jobs_rest"))

    def free_keys(self, partition: str) -> str:
        """See ``sql/free_keys.sql``."""
        return self._verb("free_keys", history=quote(partition))

    def register_by_itself(self, parameters: Sequence[object]) -> str:
        """See ``sql/register_by_itself.sql``, with the parameters in it."""
        text = self._fill("register_by_itself", {})
        first, *rest = (part.replace("%%", "%") for part in _PARAMETER.split(text))
        literals = (sql.Literal(parameter).as_string() for parameter in parameters)
        return first + "".join(literal + text for literal, text in zip(literals, rest, strict=True))

    def _verb(self, name: str, **places: str) -> str:
        # Comments go, because psycopg caches its translation of a statement only below 4096 characters. The
        # name stays, for those who read pg_stat_activity.
        return f"/* jobcontract {name} */ {self._fill(name, places)}"

    def _literal(self, text: str) -> str:
        return sql.Literal(text).as_string().replace("%", "%%")

    def _fill(self, name: str, places: Mapping[str, str]) -> str:
        # Statements take parameters, so a percent sign in a name must be doubled.
        values = {
            "schema": quote(self.schema).replace("%", "%%"),
            "name": self._literal(self.schema),
            "channel": self._literal(self.channel),
            "history": quote("done_jobs"),
            "gate": self._literal(f"{quote(self.schema)}.gate"),
            "live": self._literal(f"{quote(self.schema)}.live_jobs"),
            # Of an installation: in one transaction, jobs may be registered in two of them.
            "pass": self._literal(f"jobcontract.pass_{_digest(self.schema)}"),
            **places,
        }
        text = _COMMENT.sub("", _text("sql", f"{name}.sql"))
        for part in ("wake", "moved", "ended", "unchanged"):
            if part not in values and f"{{{part}}}" in text:
                values[part] = self._fill(part, places).strip()
        return _PLACE.sub(lambda place: values[place[1]], text)


@lru_cache(maxsize=256)
def query(statement: str) -> bytes:
    """`statement` as psycopg takes it: of strings only literal ones, to keep values out. Ours come from
    files, and values are parameters.

    The same object each time, for psycopg looks it up by its hash, and an object keeps its own.
    """
    return statement.encode()


def _text(directory: str, file_name: str) -> str:
    return files("jobcontract_postgres").joinpath(directory, file_name).read_text(encoding="utf-8")

"""One installation of jobcontract in a Redis: its keys, its marker, its queues.

=========================  ====  =======================================================
``{namespace:queue}:NAME``        what belongs to one queue: one slot of a cluster (see lua/)
``{namespace:}:schema``    HASH  "version": the layout of the keys; made by `jobctl init`
``{namespace:}:queues``    SET   the queues that ever had a job or were paused
``{namespace:}:notes``     HASH  texts by name: how far each schedule has come
``{namespace:}:gate``      HASH  what is let in while jobs move to another store; see moving.py
=========================  ====  =======================================================
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from typing import cast

from jobcontract.errors import InstallationError, StoreClosed, StoreUnavailable
from jobcontract.side_doors import Gate, Step
from jobcontract_redis.link import Call, Link
from jobcontract_redis.options import RedisOptions
from jobcontract_redis.scripts import Script
from jobcontract_redis.server import Facts, check_facts, read_facts

SCHEMA_VERSION = 1
SHUT_INTAKE = "the jobs of this store are moving to another one, and it takes no new ones now; try again"
SHUT_CLAIMS = "the jobs of this store are moving to another one, and can't be claimed here now; try again"
_KNOWN_FOR = 30.0
"""Seconds for which a queue that was written down is taken to be so: a failover can lose it."""


class Namespace:
    """The keys of one namespace, on servers that were checked at first contact. Safe in threads."""

    def __init__(self, link: Link, options: RedisOptions) -> None:
        self.link = link
        self.options = options
        self._lock = threading.Lock()
        self._facts: list[Facts] | None = None
        self._installed = False
        self._written_down: dict[str, float] = {}

    @property
    def location(self) -> str:
        """Server, database and namespace. Contacts nothing."""
        where = self.link.location
        return f"{where.where}, database {where.database}, namespace {self.options.namespace!r}"

    # -- Keys ----------------------------------------------------------------------------------------------

    def prefix(self, queue: str) -> str:
        """How every key of `queue` begins. No queue has an empty name: that is the namespace's own."""
        return f"{{{self.options.namespace}:{queue}}}:"

    def key(self, queue: str, name: str) -> str:
        return self.prefix(queue) + name

    def call(self, queue: str, script: Script, *arguments: object, finished: str = "") -> Call:
        """A run of `script` on `queue`; `finished` says which set where the script leaves it open."""
        prefix = self.prefix(queue)
        keys = [prefix + (finished if name == "finished" else name) for name in script.keys]
        return Call(script, keys, arguments)

    # -- First contact -------------------------------------------------------------------------------------

    def facts(self) -> list[Facts]:
        """What the servers are. Asks at first contact; raises `ConfigError` when they are refused."""
        facts = self._facts
        if facts is None:
            facts = read_facts(self.link)
            check_facts(facts, self.options, self.link.location)
            self._warn_of_plain_text()
            self._facts = facts
        return facts

    def contact(self) -> Link:
        """The link, when this code can work with what is behind it. Raises `ConfigError` and `StoreError`."""
        if not self._installed:
            self.facts()
            version = self._version()
            if version is None:
                raise InstallationError(
                    f"{self.link.where} has no namespace {self.options.namespace!r} yet; run `jobctl init`"
                )
            if version != SCHEMA_VERSION:
                remedy = "run `jobctl init`" if version < SCHEMA_VERSION else "upgrade jobcontract"
                raise InstallationError(
                    f"namespace {self.options.namespace!r} of {self.link.where} has schema {version}, "
                    f"and this jobcontract needs {SCHEMA_VERSION}; {remedy}"
                )
            self._installed = True
        return self.link

    def install(self, *, dry_run: bool) -> list[Step]:
        """Write the marker, unless it is there. Raises `ConfigError` and `StoreError`."""
        self.facts()
        if self._version() is not None:
            return []
        words = ("HSETNX", self.key("", "schema"), "version", str(SCHEMA_VERSION))
        if not dry_run and not self.link.command(words[1], *words):
            return []  # somebody else did, just now
        return [Step(f"namespace {self.options.namespace}, schema {SCHEMA_VERSION}", " ".join(words))]

    def _warn_of_plain_text(self) -> None:
        if self.link.location.exposed:
            warnings.warn(
                f"the connection to {self.link.where} is not encrypted, and leaves this machine; "
                "write rediss instead of redis",
                stacklevel=2,
            )

    def _version(self) -> int | None:
        key = self.key("", "schema")
        found = self.link.command(key, "HGET", key, "version")
        if found is None:
            return None
        text = cast(bytes, found)
        if not text.isdigit():
            raise InstallationError(
                f"{key} of {self.link.where} holds no schema version; it is not a namespace of jobcontract"
            )
        return int(text)

    # -- The gate ------------------------------------------------------------------------------------------

    def gate(self) -> Gate:
        """What is let in."""
        key = self.key("", "gate")
        found = self.contact().command(key, "HMGET", key, "epoch", "intake", "claims")
        epoch, intake, claims = cast("list[bytes | None]", found)
        return Gate(int(epoch or 0), intake=intake != b"0", claims=claims != b"0")

    def write_down_for_a_move(self, queues: Iterable[str]) -> list[str]:
        """As `write_down`, whatever the gate says. Those that are new, and have no gate of their own yet."""
        key = self.key("", "queues")
        names = list(queues)
        known = cast("list[int]", self.contact().command(key, "SMISMEMBER", key, *names))
        unknown = [queue for queue, is_known in zip(names, known, strict=True) if not is_known]
        if unknown:
            self.link.command(key, "SADD", key, *unknown)
        return unknown

    # -- Queues --------------------------------------------------------------------------------------------

    def queues(self) -> list[str]:
        """Every queue that was written down, by name."""
        key = self.key("", "queues")
        found = cast("Sequence[bytes]", self.contact().command(key, "SMEMBERS", key))
        return sorted(name.decode() for name in found)

    def write_down(self, queues: Iterable[str]) -> None:
        """Make sure that `queues` can be found again. Must come before their first job.

        That a queue is still written down is looked at now and then, for a failover can lose it; when that
        can't be done just now, a job for it is taken all the same.
        """
        now = time.monotonic()
        due = [queue for queue in queues if self._written_down.get(queue, 0.0) <= now]
        if due:
            try:
                self._write_down(due)
            except StoreUnavailable:
                if not self._written_down.keys() >= set(due):
                    raise
            with self._lock:
                self._written_down.update(dict.fromkeys(due, now + _KNOWN_FOR))

    def _write_down(self, queues: Sequence[str]) -> None:
        key = self.key("", "queues")
        known = cast("list[int]", self.link.command(key, "SMISMEMBER", key, *queues))
        unknown = [queue for queue, is_known in zip(queues, known, strict=True) if not is_known]
        if unknown and not self.gate().intake:
            raise StoreClosed(SHUT_INTAKE)
        if unknown:  # a full server refuses to add, also what it has
            self.link.command(key, "SADD", key, *unknown)

"""What the live server can do, read from its own settings."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from jobcontract.contract import (
    Capabilities,
    Deduplication,
    Durability,
    Scheduling,
    TimedLease,
    Transactional,
)
from jobcontract.side_doors import side_doors_of
from jobcontract_postgres.connection import Connection
from jobcontract_postgres.options import Switch

PRIORITIES = range(9, -1, -1)
"""The most urgent first."""
MAX_REGISTER_BATCH = 1000
MAX_INPUT_REF_BYTES = 16 * 1024 * 1024
OLDEST_SERVER = 130000

_FACTS = """\
SELECT current_setting('server_version'), current_setting('server_version_num')::integer,
       current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_standby_names'), current_setting('server_encoding'),
       current_setting('default_transaction_isolation'), current_setting('max_connections')::integer,
       pg_is_in_recovery(), pg_backend_pid()
"""


class Facts(NamedTuple):
    """The settings of a server, as a session of ours sees them."""

    version: str
    version_number: int
    synchronous_commit: str
    fsync: str
    full_page_writes: str
    standbys: str
    encoding: str
    isolation: str
    max_connections: int
    in_recovery: bool
    pooled: bool
    """Whether a pooler stands in between: the server's process is another one than the connection was
    promised.
    """


def read_facts(connection: Connection) -> Facts:
    """Ask the server. One round trip."""
    row = connection.execute(_FACTS).fetchone()
    assert row is not None
    *settings, server_process = row
    return Facts._make((*settings, server_process != connection.info.backend_pid))


def capabilities_from(facts: Facts, driver: object, *, listen: Switch) -> Capabilities:
    """`facts` as the contract's values."""
    return Capabilities(
        store=f"PostgreSQL {facts.version.split()[0]}",
        deduplication=Deduplication.RETENTION,
        lease=TimedLease(shortest=timedelta(milliseconds=1), longest=timedelta(days=365)),
        scheduling=Scheduling(resolution=timedelta(microseconds=1)),
        priority_levels=len(PRIORITIES),
        durability=_durability(facts),
        transactional=Transactional.SAME,
        max_register_batch=MAX_REGISTER_BATCH,
        max_input_ref_bytes=MAX_INPUT_REF_BYTES,
        side_doors=side_doors_of(driver),
        notes=tuple(_notes(facts, listen)),
    )


def _durability(facts: Facts) -> Durability:
    if facts.fsync == "off" or facts.full_page_writes == "off" or facts.synchronous_commit == "off":
        # A killed process loses nothing that was acknowledged, for the kernel has it; a lost power does.
        return Durability.WINDOW
    return Durability.FSYNC


def weaknesses(facts: Facts) -> list[tuple[str, str]]:
    """The settings of the server that weaken what an acknowledgement is worth: what it means, and the
    remedy.
    """
    found: list[tuple[str, str]] = []
    if facts.fsync == "off":
        found.append(("fsync is off: a power cut can corrupt the whole cluster", "set fsync = on"))
    if facts.full_page_writes == "off":
        found.append(("full_page_writes is off: a power cut can tear a page", "set full_page_writes = on"))
    if facts.synchronous_commit == "off":
        found.append(
            (
                "synchronous_commit is off: a crash of the server loses up to a second",
                "set synchronous_commit = on",
            )
        )
    return found


def _notes(facts: Facts, listen: Switch) -> list[str]:
    notes = [f"{meaning}; {remedy}" for meaning, remedy in weaknesses(facts)]
    if facts.version_number < OLDEST_SERVER:
        notes.append("this server is older than PostgreSQL 13, with which this driver is not tested")
    if facts.encoding != "UTF8":
        notes.append(
            f"the database's encoding is {facts.encoding}: text outside of it is refused; create it with UTF8"
        )
    if facts.in_recovery:
        notes.append("this server is a standby: it refuses every write; set target_session_attrs=read-write")
    if facts.pooled:
        notes.append(
            "a pooler stands in between: statements are not prepared, unless prepared_statements = on"
        )
    if facts.pooled and listen == "auto":
        notes.append(
            "waiting workers poll, for LISTEN is lost behind a pooler in transaction mode; "
            "set listen = on for one in session mode"
        )
    return notes

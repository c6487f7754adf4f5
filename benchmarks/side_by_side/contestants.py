"""Who takes part, on which store, and in which configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Store(StrEnum):
    """Which server."""

    POSTGRES = "postgres"
    REDIS = "redis"
    RABBITMQ = "rabbitmq"


class Role(StrEnum):
    """What a contestant is in the comparison."""

    OURS = "ours"
    BARE = "bare"
    """The physical limit: the store's own statements, and nothing of what makes a queue."""
    PEER = "peer"


@dataclass(frozen=True)
class Contestant:
    """One program on one store."""

    name: str
    store: Store
    role: Role
    program: str
    """For a peer a file in programs/peers, for us a module in programs."""
    configuration: str
    """In words, for the table."""
    requirements: tuple[str, ...] = ()
    """What is installed for a peer. The first one is the peer itself; versions are pinned."""
    unsettled: str = ""
    """How many jobs the store still holds that are not finished: SQL for PostgreSQL, Lua for Redis.

    RabbitMQ is asked for the length of each queue instead, once the worker has ended.
    """
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scenarios that it can't do, and why."""

    @property
    def key(self) -> str:
        """Unique: the name and the store."""
        return f"{self.name}@{self.store}"


CONTESTANTS: tuple[Contestant, ...] = (
    Contestant(
        name="jobcontract",
        store=Store.POSTGRES,
        role=Role.OURS,
        program="jobcontract_any",
        configuration="the worker's defaults: 16 threads, claims of up to 100, leases of 2 minutes, history",
        unsettled="SELECT count(*) FROM jobcontract.live_jobs",
    ),
    Contestant(
        name="bare loop",
        store=Store.POSTGRES,
        role=Role.BARE,
        program="bare_postgres",
        configuration="claim 100, complete 100 by jobcontract's statements, one connection, no worker",
        unsettled="SELECT count(*) FROM jobcontract.live_jobs",
    ),
    Contestant(
        name="pgqueuer",
        store=Store.POSTGRES,
        role=Role.PEER,
        program="pgqueuer_postgres",
        configuration="asyncpg on uvloop, batch_size 100, async entrypoint",
        requirements=("pgqueuer[asyncpg]==1.6.0", "uvloop==0.23.0"),
        unsettled="SELECT count(*) FROM pgqueuer WHERE status IN ('queued', 'picked')",
    ),
    Contestant(
        name="procrastinate",
        store=Store.POSTGRES,
        role=Role.PEER,
        program="procrastinate_postgres",
        configuration="psycopg pool, concurrency 100, async task, LISTEN/NOTIFY on",
        requirements=("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"),
        unsettled="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    ),
)

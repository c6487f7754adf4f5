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
    share: int = 1
    """It gets one of so many jobs: a slow one needs no 20,000 to show its rate, and would take hours."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scenarios that it can't do, and why."""

    @property
    def key(self) -> str:
        """Unique: the name and the store."""
        return f"{self.name}@{self.store}"


def _ours(*sets: str) -> str:
    """How many members jobcontract's sorted sets hold."""
    return "return " + " + ".join(f"redis.call('ZCARD', '{{jobcontract:default}}:{name}')" for name in sets)


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
        share=10,
        configuration="psycopg pool, concurrency 100, async task, LISTEN/NOTIFY on",
        requirements=("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"),
        unsettled="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    ),
    Contestant(
        name="saq",
        store=Store.POSTGRES,
        role=Role.PEER,
        program="saq_postgres",
        share=10,
        configuration="psycopg pool, concurrency 100, async function",
        requirements=("saq[postgres]==0.26.4", "typing_extensions==4.15.0", "psycopg[binary,pool]==3.3.9"),
        unsettled="SELECT count(*) FROM saq_jobs WHERE status NOT IN ('complete', 'failed', 'aborted')",
        lacks={"drain-future": "it registers one job at a time, and a million take an hour"},
    ),
    Contestant(
        name="jobcontract",
        store=Store.REDIS,
        role=Role.OURS,
        program="jobcontract_any",
        configuration="the worker's defaults: 16 threads, claims of up to 100, leases of 2 minutes, history",
        unsettled=_ours("ready", "lease"),
    ),
    Contestant(
        name="bare loop",
        store=Store.REDIS,
        role=Role.BARE,
        program="bare_redis",
        configuration="claim 100, complete 100 by jobcontract's scripts, one connection, no worker",
        unsettled=_ours("ready", "lease"),
    ),
    Contestant(
        name="dramatiq",
        store=Store.REDIS,
        role=Role.PEER,
        program="dramatiq_redis",
        configuration="8 threads, its usual middleware",
        requirements=("dramatiq[redis]==2.2.1", "redis==8.1.0"),
        unsettled="return redis.call('HLEN', 'dramatiq:default.msgs')",
        lacks={"drain-future": "delayed jobs wait in the memory of a worker"},
    ),
    Contestant(
        name="taskiq",
        store=Store.REDIS,
        role=Role.PEER,
        program="taskiq_redis_stream",
        configuration="RedisStreamBroker (the one that acknowledges), 100 async tasks at a time",
        requirements=("taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0"),
        unsettled=(
            "local group = redis.call('XINFO', 'GROUPS', 'taskiq')[1]; local of = {};"
            " for at = 1, #group, 2 do of[group[at]] = group[at + 1] end;"
            " return of['pending'] + (of['lag'] or 0)"
        ),
        lacks={"drain-future": "delayed jobs wait in a scheduler's own store"},
    ),
    Contestant(
        name="celery",
        store=Store.REDIS,
        role=Role.PEER,
        program="celery_redis",
        share=10,
        configuration="solo pool, acks_late, prefetch 128, no results, no gossip, mingle and heartbeat",
        requirements=("celery[redis]==5.7.0",),
        unsettled="return redis.call('LLEN', 'celery') + redis.call('HLEN', 'unacked')",
        lacks={"drain-future": "delayed jobs wait in the memory of a worker"},
    ),
    Contestant(
        name="saq",
        store=Store.REDIS,
        role=Role.PEER,
        program="saq_redis",
        share=10,
        configuration="concurrency 100, async function, hiredis",
        requirements=("saq[redis,hiredis]==0.26.4", "typing_extensions==4.15.0"),
        unsettled="return redis.call('ZCARD', 'saq:default:incomplete')",
        lacks={"drain-future": "it has no priorities"},
    ),
    Contestant(
        name="arq",
        store=Store.REDIS,
        role=Role.PEER,
        program="arq_redis",
        share=10,
        configuration="max_jobs 100, poll_delay 10 ms, results not kept",
        requirements=("arq==0.28.0",),
        unsettled="return redis.call('ZCARD', 'arq:queue')",
        lacks={"drain-future": "it has no priorities"},
    ),
    Contestant(
        name="rq",
        store=Store.REDIS,
        role=Role.PEER,
        program="rq_redis",
        share=10,
        configuration="SimpleWorker (no fork per job), results not kept",
        requirements=("rq==3.0.0", "redis==8.1.0"),
        unsettled="return redis.call('LLEN', 'rq:queue:default') + redis.call('ZCARD', 'rq:wip:default')",
        lacks={"drain-future": "it has no priorities within a queue"},
    ),
    Contestant(
        name="jobcontract",
        store=Store.RABBITMQ,
        role=Role.OURS,
        program="jobcontract_any",
        configuration="the worker's defaults: 16 threads, prefetch follows the claims, quorum queues",
    ),
    Contestant(
        name="bare loop",
        store=Store.RABBITMQ,
        role=Role.BARE,
        program="bare_rabbitmq",
        configuration="pika SelectConnection, a quorum queue, 1,000 unconfirmed, prefetch 500",
    ),
    Contestant(
        name="dramatiq",
        store=Store.RABBITMQ,
        role=Role.PEER,
        program="dramatiq_rabbitmq",
        configuration="8 threads, confirm_delivery, its usual middleware; classic queues",
        requirements=("dramatiq[rabbitmq,redis]==2.2.1",),
    ),
    Contestant(
        name="celery",
        store=Store.RABBITMQ,
        role=Role.PEER,
        program="celery_rabbitmq",
        configuration="solo pool, acks_late, prefetch 128, confirm_publish, no results; classic queues",
        requirements=("celery==5.7.0",),
    ),
    Contestant(
        name="taskiq",
        store=Store.RABBITMQ,
        role=Role.PEER,
        program="taskiq_rabbitmq",
        configuration="aio-pika, a quorum queue, prefetch 100, 100 async tasks at a time",
        requirements=("taskiq==0.13.0", "taskiq-redis==1.2.4", "taskiq-aio-pika==0.6.1"),
    ),
)

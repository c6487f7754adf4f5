"""What the live servers are and how they are set: the facts behind the capabilities, and the refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, cast

import redis

from jobcontract.contract import (
    Capabilities,
    Deduplication,
    Durability,
    Scheduling,
    TimedLease,
    Transactional,
)
from jobcontract.durations import format_duration
from jobcontract.errors import ConfigError, StoreError
from jobcontract.side_doors import side_doors_of
from jobcontract_redis.access import Location, Topology
from jobcontract_redis.link import Link
from jobcontract_redis.options import RedisOptions
from jobcontract_redis.pool import Reply

MAX_REGISTER_BATCH = 10_000
MAX_INPUT_REF_BYTES = 16 * 1024 * 1024
OLDEST_SERVER = (6, 2)

_QUESTIONS = (
    ("INFO", "server"),
    ("INFO", "memory"),
    ("INFO", "persistence"),
    ("INFO", "replication"),
    ("INFO", "cluster"),
    ("CONFIG", "GET", "appendfsync"),
)


class Facts(NamedTuple):
    """What one primary tells of itself; None where this user may not ask."""

    product: str | None
    """Product and version, as people say it."""
    version: tuple[int, ...] | None
    """The version of Redis whose commands it has."""
    policy: str | None
    """maxmemory-policy."""
    append_only: bool | None
    fsync: str | None
    """appendfsync."""
    replicas: int | None
    clustered: bool


def read_facts(link: Link) -> list[Facts]:
    """Ask every primary. Raises `StoreError`."""
    return [_facts(answers) for answers in link.ask_each(*_QUESTIONS)]


def check_facts(facts: Sequence[Facts], options: RedisOptions, location: Location) -> None:
    """Raise `ConfigError` when the settings of a server lose acknowledged jobs, unless that was accepted, and
    when the URL is not one for it.
    """
    where = location.where
    for each in facts:
        if each.clustered and location.topology is not Topology.CLUSTER:
            raise ConfigError(f"{where} is a node of a cluster; write redis+cluster:// or rediss+cluster://")
        if each.version is not None and each.version < OLDEST_SERVER:
            raise StoreError(f"{where} is {each.product}; this driver needs Redis 6.2 or newer, or Valkey")
        if options.accept_loss:
            continue
        if each.policy is not None and each.policy.startswith("allkeys"):
            raise ConfigError(
                f"{where} evicts any key when its memory is full (maxmemory-policy {each.policy}), jobs too; "
                "set maxmemory-policy to noeviction, or accept_loss = true for this backend"
            )
        if each.append_only is False:
            raise ConfigError(
                f"{where} has no append-only file, so that a killed server loses acknowledged jobs; "
                "set appendonly to yes, or accept_loss = true for this backend"
            )


def capabilities_from(facts: Sequence[Facts], options: RedisOptions, driver: object) -> Capabilities:
    """`facts` as the contract's values: those of the weakest server."""
    return Capabilities(
        store=facts[0].product or "Redis of an unknown version",
        deduplication=Deduplication.RETENTION,
        lease=TimedLease(shortest=timedelta(milliseconds=1), longest=timedelta(days=365)),
        scheduling=Scheduling(resolution=timedelta(milliseconds=1)),
        priority_levels=10,
        durability=_durability(facts, options),
        transactional=Transactional.NONE,
        max_register_batch=MAX_REGISTER_BATCH,
        max_input_ref_bytes=MAX_INPUT_REF_BYTES,
        side_doors=side_doors_of(driver),
        notes=tuple(dict.fromkeys(note for each in facts for note in _notes(each, options))),
    )


def _durability(facts: Sequence[Facts], options: RedisOptions) -> Durability:
    if all(each.append_only and each.fsync == "always" for each in facts):
        return Durability.FSYNC
    if options.wait_replicas and all(
        each.replicas is not None and 2 * (1 + options.wait_replicas) > 1 + each.replicas for each in facts
    ):
        return Durability.QUORUM
    # With an append-only file the kernel has what was acknowledged, whatever appendfsync says.
    return Durability.WINDOW if all(each.append_only for each in facts) else Durability.MEMORY


def _notes(facts: Facts, options: RedisOptions) -> list[str]:
    notes: list[str] = []
    unread = [
        name
        for name, value in (
            ("the version", facts.version),
            ("maxmemory-policy", facts.policy),
            ("appendonly", facts.append_only),
            ("appendfsync", facts.fsync),
        )
        if value is None
    ]
    if unread:
        notes.append(
            f"this user may not read {', '.join(unread)}: whether eviction or a crash loses jobs is unknown; "
            "permit INFO and CONFIG GET (ACL: +info +config|get)"
        )
    if facts.policy is not None and facts.policy.startswith("allkeys"):
        notes.append(
            f"maxmemory-policy is {facts.policy}: jobs are evicted when memory is full; set it to noeviction"
        )
    if facts.append_only is False:
        notes.append(
            "there is no append-only file: a killed server loses acknowledged jobs; set appendonly to yes"
        )
    elif facts.append_only:
        if facts.fsync == "everysec":
            # While a sync is under way Redis postpones its write, and answers all the same.
            notes.append(
                "appendfsync is everysec: a loss of power loses the jobs of about a second (measured: "
                "6 % of those that were acknowledged), and while a slow disk syncs, a killed server loses up "
                "to two; set it to always"
            )
        elif facts.fsync == "no":
            notes.append(
                "appendfsync is no: a loss of power loses what the kernel held, some 30 s; set it to always"
            )
    if facts.replicas and not options.wait_replicas:
        notes.append(
            "a failover loses what the replica did not have yet; with wait_replicas = 1 registrations and "
            "claims wait for it"
        )
    if facts.replicas is not None and facts.replicas < options.wait_replicas:
        notes.append(
            f"wait_replicas is {options.wait_replicas}, and {facts.replicas} replicas follow: "
            "every registration fails"
        )
    if options.retention:
        notes.append(
            f"done and cancelled jobs, and their keys, are kept for {format_duration(options.retention)} "
            "(retention)"
        )
    return notes


def _facts(answers: Sequence[Reply]) -> Facts:
    server, memory, persistence, replication, cluster = map(fields_of, answers[:5])
    version = server.get("redis_version")
    product = None
    if version is not None:
        valkey = server.get("valkey_version")
        product = f"Valkey {valkey}" if valkey else f"Redis {version}"
    append_only = persistence.get("aof_enabled")
    replicas = replication.get("connected_slaves")
    return Facts(
        product=product,
        version=tuple(int(part) for part in re.findall(r"\d+", version)[:3]) if version else None,
        policy=memory.get("maxmemory_policy"),
        append_only=None if append_only is None else append_only == "1",
        fsync=_setting(answers[5]),
        replicas=int(replicas) if replicas is not None else None,
        clustered=cluster.get("cluster_enabled") == "1",
    )


def fields_of(answer: Reply) -> dict[str, str]:
    """A section of INFO; empty when this user may not ask."""
    if not isinstance(answer, bytes):
        return {}
    lines = answer.decode("utf-8", "replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


def _setting(answer: Reply) -> str | None:
    if isinstance(answer, redis.ResponseError) or not answer:
        return None
    return cast("list[bytes]", answer)[1].decode()

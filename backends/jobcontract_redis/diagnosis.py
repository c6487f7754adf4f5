"""What hurts a Redis store: the side door `Diagnosis`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import cast

from jobcontract.side_doors import Ailment, Expectations
from jobcontract_redis.link import Link
from jobcontract_redis.options import RedisOptions
from jobcontract_redis.server import Facts, fields_of, read_facts

_NEARLY_FULL = 0.9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def diagnose(link: Link, options: RedisOptions, expected: Expectations) -> list[Ailment]:
    """As `Diagnosis.diagnose`. Goes past the check that refuses a server which loses jobs."""
    found = [ailment for facts in read_facts(link) for ailment in _settings(facts, options)]
    for answers in link.ask_each(("INFO", "memory"), ("INFO", "persistence"), ("INFO", "clients")):
        found += _memory(fields_of(answers[0]))
        found += _files(fields_of(answers[1]))
        found += _clients(fields_of(answers[2]), options, expected.processes)
    return list(dict.fromkeys(found))  # what all nodes of a cluster have is said once


def clock(link: Link) -> datetime:
    """As `Diagnosis.clock`; of a cluster, that of one node."""
    seconds, microseconds = cast("list[bytes]", link.ask_each(("TIME",))[0][0])
    return _EPOCH + timedelta(seconds=int(seconds), microseconds=int(microseconds))


def _settings(facts: Facts, options: RedisOptions) -> Iterator[Ailment]:
    if facts.policy is not None and facts.policy.startswith("allkeys"):
        yield Ailment(
            "eviction",
            f"maxmemory-policy is {facts.policy}: when the memory is full, jobs are thrown away without a "
            f"word",
            "CONFIG SET maxmemory-policy noeviction, and in redis.conf",
        )
    if facts.append_only is False:
        yield Ailment(
            "not_durable",
            "there is no append-only file: a killed server loses acknowledged jobs",
            "CONFIG SET appendonly yes, and in redis.conf",
        )
    elif facts.fsync == "no":
        yield Ailment(
            "not_durable",
            "appendfsync is no: a loss of power loses what the kernel held, some 30 s of jobs",
            "CONFIG SET appendfsync always (or everysec, for a window of a second), and in redis.conf",
        )
    if facts.policy is None or facts.append_only is None or facts.fsync is None:
        yield Ailment(
            "unseen",
            "this user may not read the settings of the server, so that eviction and persistence stay "
            "unchecked",
            "ACL SETUSER <user> +info +config|get",
        )
    if facts.replicas is not None and facts.replicas < options.wait_replicas:
        yield Ailment(
            "replicas",
            f"{facts.replicas} replicas follow, and wait_replicas is {options.wait_replicas}: every "
            f"registration "
            "fails",
            "mend the replication, or lower wait_replicas",
        )


def _memory(memory: dict[str, str]) -> Iterator[Ailment]:
    used, most = int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0))
    if most and used > _NEARLY_FULL * most:
        yield Ailment(
            "memory",
            f"{used / most:.0%} of maxmemory ({most / 2**20:,.0f} MiB) are used: when it is full, every "
            "registration fails",
            "raise maxmemory, shorten the backend's retention, or run jobctl prune",
        )


def _files(persistence: dict[str, str]) -> Iterator[Ailment]:
    if persistence.get("aof_enabled") == "1" and persistence.get("aof_last_write_status", "ok") != "ok":
        yield Ailment(
            "disk",
            "the last write of the append-only file failed: the server refuses every write",
            "make room on its disk",
        )


def _clients(clients: dict[str, str], options: RedisOptions, processes: int) -> Iterator[Ailment]:
    used, most = int(clients.get("connected_clients", 0)), int(clients.get("maxclients", 0))
    wanted = (options.pool_size + 1) * processes
    if most and most - used < wanted:
        many = f"{processes} more processes" if processes > 1 else "one more process"
        yield Ailment(
            "connections",
            f"maxclients leaves {max(0, most - used)} of {most} connections ({used} are in use), and {many} "
            f"may "
            f"open {wanted} (pool_size {options.pool_size}, and one to wait)",
            f"CONFIG SET maxclients {used + wanted} or more, lower pool_size, or run fewer processes",
        )

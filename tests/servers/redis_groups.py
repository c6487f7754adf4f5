"""Private groups of Redis servers: a primary with replicas under three Sentinels, or a cluster of three."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar
from urllib.parse import quote

import redis

from tests.servers.binaries import Programs, Service, find_programs
from tests.servers.group import Group, await_group
from tests.servers.process import DEFAULT_PASSWORD, Command, ServerFailed
from tests.servers.redis import RedisServer

SLOTS = 16384
FORMATION_DEADLINE = 30.0
"""Seconds that the members of a group have to find each other."""


class SentinelServer(RedisServer):
    """One Sentinel, without a password."""

    def __init__(self, monitored: RedisServer, *, name: str, quorum: int, down_after: float) -> None:
        super().__init__(programs=monitored.programs)
        self.password = ""
        self._monitored = monitored
        self._name = name
        self._quorum = quorum
        self._down_after = down_after

    def _command(self) -> Command:
        # Sentinel keeps in this file what it learns; on a restart that must stay.
        if not self._configuration.exists() or f"port {self.port}\n" not in self._configuration.read_text():
            host, port = self._monitored.address
            lines = [
                f"bind {self.host}",
                f"port {self.port}",
                f"dir {self.directory}",
                f"sentinel monitor {self._name} {host} {port} {self._quorum}",
                f"sentinel auth-pass {self._name} {self._monitored.password}",
                f"sentinel down-after-milliseconds {self._name} {round(self._down_after * 1000)}",
                f"sentinel failover-timeout {self._name} 5000",
            ]
            self._configuration.write_text("\n".join(lines) + "\n")
        argv, _ = self.programs.argv(
            "server", str(self._configuration), "--sentinel", directory=self.directory, user=None
        )
        return Command(argv)


class RedisSentinel(Group[RedisServer]):
    """A primary, its replicas and their Sentinels, all running."""

    def __init__(
        self,
        servers: Sequence[RedisServer],
        sentinels: Sequence[SentinelServer],
        *,
        name: str,
        password: str,
    ) -> None:
        super().__init__([*sentinels, *servers])
        self.servers = list(servers)
        self.sentinels = list(sentinels)
        self.name = name
        self.password = password

    def primary(self) -> RedisServer:
        """The primary by the word of a Sentinel that answers."""
        for sentinel in self.sentinels:
            if sentinel.running:
                _, port = sentinel.ask("SENTINEL GET-MASTER-ADDR-BY-NAME", self.name)
                return next(server for server in self.servers if server.port == port)
        raise ServerFailed("no Sentinel runs")

    def replicas(self) -> list[RedisServer]:
        primary = self.primary()
        return [server for server in self.servers if server is not primary]

    def await_primary_other_than(self, former: RedisServer, *, deadline: float = 30.0) -> RedisServer:
        """Block until the Sentinels name another primary, and it takes writes."""
        _await_redis(
            lambda: (
                self.primary() is not former and self.primary().information("replication")["role"] == "master"
            ),
            deadline,
            "the Sentinels promoted nobody",
            self.members,
        )
        return self.primary()

    def url(self, database: int = 0) -> str:
        addresses = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://:{quote(self.password, safe='')}@{addresses}/{self.name}/{database}"


class RedisCluster(Group[RedisServer]):
    """Three primaries that hold a third of the slots each, all running."""

    @property
    def password(self) -> str:
        return self.members[0].password

    def url(self) -> str:
        addresses = ",".join(f"{member.host}:{member.port}" for member in self.members)
        return f"redis+cluster://:{quote(self.password, safe='')}@{addresses}/0"


def start_sentinel(
    *,
    replicas: int = 1,
    name: str = "mymaster",
    down_after: float = 1.0,
    password: str = DEFAULT_PASSWORD,
    settings: Mapping[str, str] | None = None,
    programs: Programs | None = None,
) -> RedisSentinel:
    """Start a primary, `replicas` of it and three Sentinels; blocks until they all know of each other.

    Args:
        down_after: seconds of silence after which a Sentinel holds the primary for dead.
        settings: further lines of redis.conf for primary and replicas.
    """
    programs = programs or find_programs(Service.REDIS, in_container=False)
    with contextlib.ExitStack() as cleanup:
        common = {"masterauth": password, "repl-diskless-sync-delay": "0", **(settings or {})}
        primary = cleanup.enter_context(RedisServer(programs=programs, password=password, settings=common))
        replica_settings = {**common, "replicaof": f"{primary.host} {primary.port}"}
        servers = [primary] + [
            cleanup.enter_context(
                RedisServer(programs=programs, password=password, settings=replica_settings)
            )
            for _ in range(replicas)
        ]
        _await_redis(
            lambda: all(
                replica.information("replication")["master_link_status"] == "up" for replica in servers[1:]
            ),
            FORMATION_DEADLINE,
            "a replica did not reach its primary",
            servers,
        )
        sentinels = [
            cleanup.enter_context(SentinelServer(primary, name=name, quorum=2, down_after=down_after))
            for _ in range(3)
        ]

        def complete(sentinel: SentinelServer) -> bool:
            known = sentinel.ask("SENTINEL MASTER", name)
            return bool(known["num-other-sentinels"] == 2 and known["num-slaves"] == replicas)

        _await_redis(
            lambda: all(map(complete, sentinels)),
            FORMATION_DEADLINE,
            "the Sentinels did not find each other",
            [*sentinels, *servers],
        )
        cleanup.pop_all()
        return RedisSentinel(servers, sentinels, name=name, password=password)
    raise AssertionError("unreachable")


class ClusterNode(RedisServer):
    """A member of a cluster (Redis 7 or later: the bus needs a port of its own choice)."""

    port_names: ClassVar[tuple[str, ...]] = ("client", "bus")

    def _placement(self) -> dict[str, str]:
        return super()._placement() | {
            "cluster-enabled": "yes",
            "cluster-port": str(self.ports["bus"]),
            "cluster-node-timeout": "2000",
        }


def start_cluster(
    *,
    password: str = DEFAULT_PASSWORD,
    settings: Mapping[str, str] | None = None,
    programs: Programs | None = None,
) -> RedisCluster:
    """Start three nodes that share all slots; blocks until each of them finds the cluster in order."""
    programs = programs or find_programs(Service.REDIS, in_container=False)
    with contextlib.ExitStack() as cleanup:
        common = {"masterauth": password, **(settings or {})}
        nodes = [
            cleanup.enter_context(ClusterNode(programs=programs, password=password, settings=common))
            for _ in range(3)
        ]
        bounds = [SLOTS * index // len(nodes) for index in range(len(nodes) + 1)]
        for node, low, high in zip(nodes, bounds, bounds[1:], strict=False):
            node.ask("CLUSTER ADDSLOTSRANGE", low, high - 1)
            for other in nodes:
                node.ask("CLUSTER MEET", other.host, other.port, other.ports["bus"])

        def in_order(node: ClusterNode) -> bool:
            state = node.ask("CLUSTER INFO")
            return bool(state["cluster_state"] == "ok" and state["cluster_known_nodes"] == str(len(nodes)))

        _await_redis(
            lambda: all(map(in_order, nodes)),
            FORMATION_DEADLINE,
            "the nodes did not form a cluster",
            nodes,
        )
        cleanup.pop_all()
        return RedisCluster(nodes)
    raise AssertionError("unreachable")


def _await_redis(
    condition: Callable[[], bool], deadline: float, failure: str, servers: Sequence[RedisServer]
) -> None:
    await_group(condition, deadline, failure, servers, not_yet=(redis.ConnectionError, redis.TimeoutError))

"""Stages whose machines fail: disks that are full, or lose power; primaries that are replaced."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Literal

from tests.faults.disks import PowerDisk, SmallDisk
from tests.faults.fleet import Fleet
from tests.faults.stages import TIMEOUT, NoVictim, PostgresStage, RabbitStage, RedisStage, SQLiteStage, Stage
from tests.servers.binaries import Service, unprivileged_user
from tests.servers.postgres import PostgresServer
from tests.servers.process import Server
from tests.servers.rabbitmq import RabbitCluster, RabbitServer, start_cluster
from tests.servers.redis import RedisServer
from tests.servers.redis_groups import RedisSentinel, start_sentinel

MEGABYTE = 1 << 20
LED_WITHIN = 30.0
"""Seconds for which a node stands still at most until others lead its queues. After a minute they give it up,
and a cluster of which one node has noticed nothing of that waits for an operator.
"""
STOOD_STILL = 5.0
"""Seconds for which it is away after that."""
TRIES = 3


class Fills(Stage):
    """Has disks that can be filled."""

    disks: list[SmallDisk]

    def recover(self) -> None:
        """After a disk was full: a server that gave up is started again, as its supervisor would."""
        for end in self.ends:
            end.server.start()


class LosesPower(Stage):
    """Has a disk whose power can be cut."""

    disk: PowerDisk

    @abstractmethod
    def lose_power(self, fleet: Fleet) -> None:
        """The machine of the store goes down, and comes back with what its disk has."""


class FailsOver(Stage):
    """Has a primary that can be replaced."""

    @abstractmethod
    def fail_over(self) -> None:
        """The primary dies; the others choose another; it comes back as one of them."""


def lose_power(server: Server, disk: PowerDisk) -> None:
    """It answers nothing any more once its disk is frozen, and is killed as it stands."""
    server.pause()
    disk.keep_what_was_synced()
    server.kill()
    disk.come_back()
    server.start()


# -- PostgreSQL --------------------------------------------------------------------------------------------


class PostgresOnSmallDisks(PostgresStage, Fills):
    """Data and write-ahead log on a disk each, which are too small."""

    name = "postgres-small-disks"
    # So that neither needs much room.
    SETTINGS: ClassVar[dict[str, str]] = {"min_wal_size": "32MB", "max_wal_size": "48MB"}

    def make_server(self) -> PostgresServer:
        data, wal = SmallDisk(128 * MEGABYTE), SmallDisk(112 * MEGABYTE)
        self.disks = [self.stack.enter_context(disk) for disk in (data, wal)]
        server = PostgresServer(
            programs=self.programs(Service.POSTGRES), directory=data.path, settings=self.SETTINGS
        )
        server.start()
        server.stop()
        log = server.data / "pg_wal"
        shutil.copytree(log, wal.path / "pg_wal")
        shutil.rmtree(log)
        log.symlink_to(wal.path / "pg_wal")
        account = unprivileged_user()
        if account is not None:
            for path in [wal.path, *wal.path.rglob("*")]:
                os.chown(path, account.uid, account.gid)
        return server


class PostgresLosesPower(PostgresStage, LosesPower):
    """On a disk of which what was synced remains."""

    name = "postgres-power"

    def make_server(self) -> PostgresServer:
        self.disk = self.stack.enter_context(PowerDisk(300 * MEGABYTE))
        directory = self.disk.path / "server"
        directory.mkdir()
        return PostgresServer(programs=self.programs(Service.POSTGRES), directory=directory)

    def lose_power(self, fleet: Fleet) -> None:
        lose_power(self.server, self.disk)


# -- SQLite ------------------------------------------------------------------------------------------------


class SQLiteOnSmallDisk(SQLiteStage, Fills):
    """A disk that is too small."""

    name = "sqlite-small-disk"

    def start(self) -> None:
        self.disks = [self.stack.enter_context(SmallDisk(16 * MEGABYTE))]
        self.place(self.disks[0].path)


class SQLiteLosesPower(SQLiteStage, LosesPower):
    """On a disk of which what was synced remains. The store's machine is that of its clients."""

    name = "sqlite-power"
    synchronous: ClassVar[Literal["FULL", "NORMAL"]] = "FULL"

    def start(self) -> None:
        self.disk = self.stack.enter_context(PowerDisk(64 * MEGABYTE))
        self.place(self.disk.path)
        self.url = f"{self.url}?synchronous={self.synchronous}"

    def lose_power(self, fleet: Fleet) -> None:
        members = [each for role in ("worker", "producer", "scheduler") for each in fleet.alive(role)]
        for member in members:
            member.pause()
        self.disk.keep_what_was_synced()
        for member in members:
            member.kill()
        self.disk.come_back()
        for member in members:
            fleet.spawn(member.role)


class SQLiteNormalLosesPower(SQLiteLosesPower):
    """SQLite with synchronous NORMAL."""

    name = "sqlite-normal-power"
    setting = "SQLite, synchronous NORMAL"
    synchronous = "NORMAL"


# -- Redis -------------------------------------------------------------------------------------------------


class RedisOnSmallDisk(RedisStage, Fills):
    """A disk that is too small for the append-only file."""

    name = "redis-small-disk"

    def make_server(self) -> RedisServer:
        self.disks = [self.stack.enter_context(SmallDisk(24 * MEGABYTE))]
        directory = self.disks[0].path
        return RedisServer(programs=self.programs(Service.REDIS), directory=directory, appendfsync="always")


class RedisLosesPower(RedisStage, LosesPower):
    """On a disk of which what was synced remains."""

    name = "redis-power"
    appendfsync: ClassVar[Literal["always", "everysec"]] = "always"

    def make_server(self) -> RedisServer:
        self.disk = self.stack.enter_context(PowerDisk(64 * MEGABYTE))
        directory = self.disk.path / "server"
        directory.mkdir()
        return RedisServer(
            programs=self.programs(Service.REDIS), directory=directory, appendfsync=self.appendfsync
        )

    def lose_power(self, fleet: Fleet) -> None:
        lose_power(self.server, self.disk)


class RedisEverySecondLosesPower(RedisLosesPower):
    """Redis with appendfsync everysec."""

    name = "redis-everysec-power"
    setting = "Redis, appendfsync everysec"
    appendfsync = "everysec"


class RedisUnderSentinel(FailsOver):
    """A Redis primary with one replica, wait_replicas 0."""

    name = "redis-sentinel"
    setting = "Redis under Sentinel, wait_replicas 0"
    wait_replicas: ClassVar[int] = 0
    group: RedisSentinel

    def start(self) -> None:
        programs = self.programs(Service.REDIS)
        self.group = self.stack.enter_context(start_sentinel(programs=programs, down_after=0.5))
        self.url = self.direct_url = f"{self.group.url()}?{TIMEOUT}&wait_replicas={self.wait_replicas}"

    def poison(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self.group.primary().ask("SET", f"{{jobcontract:default}}:b:{job_id}", "rubbish")

    def fail_over(self) -> None:
        former = self.group.primary()
        former.kill()
        self.group.await_primary_other_than(former, deadline=60)
        former.start()


class RedisWaitsForReplicas(RedisUnderSentinel):
    """A Redis primary with one replica, wait_replicas 1."""

    name = "redis-sentinel-wait"
    setting = "Redis under Sentinel, wait_replicas 1"
    wait_replicas = 1


# -- RabbitMQ ----------------------------------------------------------------------------------------------


class RabbitLosesPower(RabbitStage, LosesPower):
    """On a disk of which what was synced remains."""

    name = "rabbitmq-power"

    def make_server(self) -> RabbitServer:
        self.disk = self.stack.enter_context(PowerDisk(300 * MEGABYTE))
        directory = self.disk.path / "server"
        directory.mkdir()
        return RabbitServer(
            programs=self.programs(Service.RABBITMQ), directory=directory, settings=self.SETTINGS
        )

    def poison(self, job_ids: Iterable[str]) -> None:
        super().poison(job_ids)
        self.disk.sync()  # the cookie and the queues are older than the run; RabbitMQ syncs neither

    def lose_power(self, fleet: Fleet) -> None:
        lose_power(self.server, self.disk)


class RabbitPartitioned(RabbitStage, FailsOver):
    """Three nodes, of which one at a time is cut off: it stands still, and believes that it leads."""

    name = "rabbitmq-cluster"
    setting = "RabbitMQ, quorum queues on three nodes"
    cluster: RabbitCluster

    def start(self) -> None:
        settings = self.SETTINGS | {"cluster_partition_handling": "pause_minority"}
        programs = self.programs(Service.RABBITMQ)
        self.cluster = self.stack.enter_context(start_cluster(programs=programs, settings=settings))
        self.server = self.cluster.members[0]
        addresses = ",".join(f"{node.host}:{node.port}" for node in self.cluster.members)
        head, _, tail = self.server.url().rpartition("@")
        self.direct_url = f"{head}@{addresses}/{tail.partition('/')[2]}"
        self.url = f"{self.direct_url}?{TIMEOUT}"

    def fail_over(self) -> None:
        """The node that most clients use stands still, and with it the leaders of its queues, until the
        others have done without it for a while.
        """
        witness = self.cluster.members[-1]
        if self.server.node not in leaders(witness).values():
            raise NoVictim("the node leads no queue")
        for _ in range(TRIES):
            with self.server.paused():
                deadline = time.monotonic() + LED_WITHIN
                while time.monotonic() < deadline:
                    with contextlib.suppress(RuntimeError):  # the witness was busy
                        if self.server.node not in leaders(witness).values():
                            time.sleep(STOOD_STILL)
                            return
        raise NoVictim("no other node leads the queues")


def leaders(witness: RabbitServer) -> dict[str, str]:
    """The node that leads each quorum queue, as `witness` knows without asking any other."""
    said = witness.rabbitmqctl("--timeout", "5", "eval", "ets:tab2list(ra_leaderboard).")
    return dict(re.findall(r"\{'?([^{}',]+)'?,\s*\{'?[^{}',]+'?,\s*'?([^{}',]+)'?\}", said))

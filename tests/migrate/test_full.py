"""The target is full in the middle of a move: its disk, its memory, or what a broker takes for that.

The state stays legal, `status` says what leads on, and once there is room, it goes on by the same command.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from jobcontract_migrate import Phase
from psycopg import sql

from jobcontract import Backend, Job, StoreUnavailable
from jobcontract.cli.exits import Exit
from tests.faults.disks import NotPossible, SmallDisk
from tests.migrate.conftest import MakeStage
from tests.migrate.stage import Stage, all_jobs, assert_each_ran_once, drain, until
from tests.servers.binaries import Programs, unprivileged_user
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

COUNT = 30
SECONDS = 30.0
"""For what takes seconds, on a busy machine."""


@dataclass(frozen=True)
class Target:
    """A store that can be filled."""

    url: str
    fill: Callable[[], None]
    make_room: Callable[[], None]


@pytest.fixture
def redis_target(redis_programs: Programs) -> Generator[Target]:
    with RedisServer(programs=redis_programs) as server:
        yield Target(
            server.url(),
            lambda: server.ask("CONFIG SET", "maxmemory", "1"),
            lambda: server.ask("CONFIG SET", "maxmemory", "0"),
        )


@pytest.fixture
def rabbitmq_target(rabbitmq_programs: Programs) -> Generator[Target]:
    with RabbitServer(programs=rabbitmq_programs) as server:

        def watermark(part: str) -> None:
            server.rabbitmqctl("set_vm_memory_high_watermark", part)

        yield Target(f"{server.url()}?timeout=2s", lambda: watermark("0.0001"), lambda: watermark("0.6"))


@pytest.fixture
def small_disk() -> Generator[SmallDisk]:
    try:
        disk = SmallDisk(24 << 20)
    except NotPossible as reason:
        pytest.skip(str(reason))
    with disk:
        yield disk


@pytest.fixture
def sqlite_target(small_disk: SmallDisk) -> Target:
    return Target(f"sqlite:///{small_disk.path}/new.db", small_disk.fill, small_disk.free)


@pytest.fixture
def postgres_target(postgres_server: PostgresServer, small_disk: SmallDisk) -> Generator[Target]:
    """A database in a tablespace of its own; the write-ahead log has room."""
    account = unprivileged_user()
    if account is not None:
        os.chown(small_disk.path, account.uid, account.gid)
    name = sql.Identifier(f"small_{secrets.token_hex(4)}")
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        place = sql.Literal(str(small_disk.path))
        connection.execute(sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(name, place))
        connection.execute(sql.SQL("CREATE DATABASE {} TABLESPACE {}").format(name, name))
        yield Target(postgres_server.url(name.as_string().strip('"')), small_disk.fill, small_disk.free)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        connection.execute(sql.SQL("DROP TABLESPACE {}").format(name))


@pytest.fixture(params=["postgres", "sqlite", "redis", pytest.param("rabbitmq", marks=pytest.mark.slow)])
def target(request: pytest.FixtureRequest) -> Target:
    found = request.getfixturevalue(f"{request.param}_target")
    assert isinstance(found, Target)
    return found


@pytest.fixture
def full_stage(make_stage: MakeStage, target: Target, tmp_path: Path) -> Stage:
    """From a SQLite file to what can be filled."""
    return make_stage("old", old=f"sqlite:///{tmp_path}/old.db", new=target.url)


def large_jobs(count: int) -> list[Job]:
    """Such that they need room that a store has not by chance."""
    return [Job(kind="work", input_ref={"n": n, "text": secrets.token_hex(20_000)}) for n in range(count)]


def run_into(stage: Stage, target: Target, point: str) -> None:
    """A move begins, and its target is full from `point` on."""
    full: list[str] = []

    def reach(name: str) -> None:
        if name == point and not full:
            full.append(name)
            target.fill()

    coordinator = stage.coordinator(reach=reach, batch=7)
    coordinator.begin("old", "new", {"first_source": "old"})
    with pytest.raises(StoreUnavailable):
        coordinator.run(Phase.SEALED)
    assert full
    coordinator.close()
    stage.forget_owner()


def leads_on(stage: Stage) -> str:
    """The command that `status` names."""
    status = stage.jobctl("migrate", "status", "--json")
    assert status.returncode == 0, status.stderr
    return str(json.loads(status.stdout)["next"])


def registered(backend: Backend, made: list[Job]) -> bool:
    with contextlib.suppress(StoreUnavailable):
        return len(backend.register_many(made)) == len(made)
    return False


def test_a_full_target_while_jobs_move_is_gone_on_with_when_there_is_room(
    full_stage: Stage, target: Target
) -> None:
    made = large_jobs(COUNT)
    full_stage.backend("old").register_many(made)
    producer = full_stage.backend()
    run_into(full_stage, target, "hidden")
    try:
        late = large_jobs(12)  # more than the room that a batch has left which was refused
        with pytest.raises(StoreUnavailable):
            producer.register_many(late)  # jobs go to the target by now; loudly, and in time
        again = full_stage.jobctl("migrate", "resume")
        assert (again.returncode, "the same command goes on" in again.stderr) == (Exit.RESUMABLE, True)
        assert "`jobctl migrate resume` goes on" in leads_on(full_stage)
    finally:
        target.make_room()
    until(lambda: registered(producer, late), SECONDS)
    went_on = full_stage.jobctl("migrate", "resume", "--batch", "7")
    assert went_on.returncode == 0, went_on.stderr
    assert all_jobs(full_stage.store("old")) == {}
    ran: list[UUID] = []
    drain(producer, ran, len(made) + len(late))
    assert_each_ran_once([job.id for job in (*made, *late)], ran)


@pytest.mark.parametrize("target", ["sqlite", "redis"], indirect=True)
def test_a_full_target_before_the_cut_over_keeps_jobs_where_they_are(
    full_stage: Stage, target: Target
) -> None:
    """Those who register never knew."""
    made = large_jobs(3)
    full_stage.backend("old").register_many(made)
    producer = full_stage.backend()
    run_into(full_stage, target, "canary")
    try:
        (late,) = large_jobs(1)
        assert producer.register(late).created
        assert "`jobctl migrate abort` gives up" in leads_on(full_stage)
    finally:
        target.make_room()
    given_up = full_stage.jobctl("migrate", "abort")
    assert given_up.returncode == 0, given_up.stderr
    ran: list[UUID] = []
    drain(producer, ran, 4)
    assert_each_ran_once([*(job.id for job in made), late.id], ran)

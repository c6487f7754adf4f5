"""What goes wrong: each fault is one function, which does it, and undoes it before it returns.

A fault is in the history from its first moment to its last; one that struck nobody is there as failed. How
long one lasts, and whom it hits, is the seed's choice.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psycopg
from jobcontract_migrate.states import BEFORE_THE_FENCE, BEHIND_THE_FENCE, OVER, Phase

from tests.faults.disks import NotPossible
from tests.faults.fleet import Fleet, Member
from tests.faults.hard_stages import FailsOver, Fills, LosesPower
from tests.faults.moving import Migration
from tests.faults.moving_stages import MovingStage
from tests.faults.programs import COMMAND
from tests.faults.stages import End, NoVictim, PostgresStage, RabbitStage, RedisStage, SQLiteStage, Stage
from tests.servers.proxy import Cut, Proxy, When


@dataclass(frozen=True)
class Field:
    """What a fault can reach."""

    stage: Stage
    fleet: Fleet
    chance: random.Random
    migration: Migration | None = None
    """Whoever has the jobs moved."""

    def victim(self, role: str) -> Member | None:
        """One of the processes that are alive."""
        alive = self.fleet.alive(role)
        return self.chance.choice(alive) if alive else None

    def end(self) -> End:
        """One of the servers."""
        return self.chance.choice(self.stage.ends)

    def lasting(self, shortest: float, longest: float) -> None:
        """Leave things as they are for a while."""
        time.sleep(self.chance.uniform(shortest, longest))


SOON = 60.0
"""Seconds within which a migration comes to any of its states."""
TAKEN_OVER_WITHIN = 30.0
"""Seconds within which another coordinator takes over from one that says nothing."""


Fault: TypeAlias = Callable[[Field], None]
FAULTS: dict[str, Fault] = {}


def fault(act: Fault) -> Fault:
    """Known by its name from now on."""
    FAULTS[act.__name__.replace("_", " ")] = act
    return act


# -- Processes ---------------------------------------------------------------------------------------------


@fault
def kill_a_worker(field: Field) -> None:
    """-9, in the middle of whatever it does; another takes its place."""
    _replace(field, "worker", Member.kill)


@fault
def stop_a_worker(field: Field) -> None:
    """SIGTERM, and another takes its place: a deployment."""
    _replace(field, "worker", Member.terminate)


@fault
def freeze_a_worker(field: Field) -> None:
    """SIGSTOP for longer than its leases: it goes on with jobs that are somebody else's by then."""
    with _frozen(field, "worker"):
        field.lasting(field.stage.lease * 1.2, field.stage.lease * 1.6)


@fault
def kill_the_relay(field: Field) -> None:
    """-9; another takes its place."""
    _replace(field, "relay", Member.kill)


@fault
def freeze_the_relay(field: Field) -> None:
    """SIGSTOP with rows that it has taken."""
    with _frozen(field, "relay"):
        field.lasting(0.5, 2)


@fault
def kill_a_producer(field: Field) -> None:
    """-9, in the middle of a transaction perhaps; another takes its place."""
    _replace(field, "producer", Member.kill)


# -- A migration -------------------------------------------------------------------------------------------


@fault
def kill_the_coordinator(field: Field) -> None:
    """-9, somewhere between two effects; whoever has the jobs moved gives the command again."""
    _at_work(field).kill()


@fault
def freeze_the_coordinator(field: Field) -> None:
    """SIGSTOP until another one has taken over and gone on; then it comes back late."""
    victim = _at_work(field)
    victim.pause()
    try:
        deadline = time.monotonic() + TAKEN_OVER_WITHIN
        while time.monotonic() < deadline:
            other = field.fleet.spawn("coordinator", **{COMMAND: "migrate resume"})
            other.wait(TAKEN_OVER_WITHIN)
            if other.code == 0:
                break  # until then the time of the first is not over
    finally:
        victim.resume()


@fault
def freeze_a_producer_through_a_cut_over(field: Field) -> None:
    """SIGSTOP from before the fence to behind it: it goes on by what it knew."""
    _await_phase(field, BEFORE_THE_FENCE)
    with _frozen(field, "producer"):
        _await_phase(field, BEHIND_THE_FENCE)


@fault
def kill_the_workers_through_a_cut_over(field: Field) -> None:
    """-9 to all of them before the fence; others come behind it, and find what has piled up on the move."""
    with _nobody_working(field):
        pass


@fault
def kill_the_coordinator_of_a_backlog(field: Field) -> None:
    """-9, while it moves what has piled up because all workers were killed before the fence."""
    with _nobody_working(field):
        _at_work(field).kill()


@contextlib.contextmanager
def _nobody_working(field: Field) -> Generator[None]:
    """From before the fence; the block is behind it."""
    _await_phase(field, BEFORE_THE_FENCE)
    victims = field.fleet.alive("worker")
    for victim in victims:
        victim.kill()
    try:
        _await_phase(field, BEHIND_THE_FENCE)
        yield
    finally:
        for _ in victims:
            field.fleet.spawn("worker")


@fault
def restart_the_control_store(field: Field) -> None:
    """Where it is neither of the stores that jobs move between."""
    end = _moving(field).control_end
    assert end is not None
    _at_work(field)
    end.server.restart()


@fault
def silence_the_control_store(field: Field) -> None:
    """Nothing arrives there, and nothing comes from there."""
    end = _moving(field).control_end
    assert end is not None
    _at_work(field)
    end.proxy.blackhole()
    try:
        field.lasting(0.5, 8)
    finally:
        end.proxy.pass_all()


def _moving(field: Field) -> MovingStage:
    assert isinstance(field.stage, MovingStage)
    return field.stage


def _at_work(field: Field) -> Member:
    """The coordinator, a moment after it has taken charge of a move that is not at its end."""
    for _ in _soon(field):
        for member in field.fleet.alive("coordinator"):
            if _is_in_charge(field, member):
                field.lasting(0, 1)
                if _is_in_charge(field, member):
                    return member
    raise NoVictim("nobody moves jobs")


def _is_in_charge(field: Field, member: Member) -> bool:
    move = _moving(field).move()
    under_way = move is not None and move.state not in (Phase.SEALED, *OVER)
    return under_way and member.running and f":{member.pid}:" in ((move and move.owner) or "")


def _await_phase(field: Field, phases: Collection[Phase]) -> None:
    for _ in _soon(field):
        move = _moving(field).move()
        if move is not None and move.state in phases:
            return


def _soon(field: Field) -> Iterator[None]:
    """Again and again while there is something to wait for."""
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline and field.migration is not None and field.migration.is_alive():
        yield
        time.sleep(0.02)


def _replace(field: Field, role: str, end: Callable[[Member], None]) -> None:
    victim = field.victim(role)
    if victim is None:
        raise NoVictim(role)
    end(victim)
    field.fleet.spawn(role)


@contextlib.contextmanager
def _frozen(field: Field, role: str) -> Generator[None]:
    victim = field.victim(role)
    if victim is None:
        raise NoVictim(role)
    victim.pause()
    try:
        yield
    finally:
        victim.resume()


@fault
def hold_the_write_lock(field: Field) -> None:
    """Somebody else's transaction in the file of a SQLite store."""
    assert isinstance(field.stage, SQLiteStage)
    with contextlib.closing(sqlite3.connect(field.stage.path, timeout=30)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        field.lasting(0.5, 6)
        connection.rollback()


# -- The server --------------------------------------------------------------------------------------------


@fault
def kill_the_server(field: Field) -> None:
    """-9 to all of its processes, and a new start."""
    server = field.end().server
    server.kill()
    field.lasting(0, 1)
    server.start()


@fault
def restart_the_server(field: Field) -> None:
    """As an administrator does."""
    field.end().server.restart()


@fault
def freeze_the_server(field: Field) -> None:
    """SIGSTOP: it takes connections, and answers nothing. Longer than the clients' patience, or shorter."""
    with field.end().server.paused():
        field.lasting(0.5, 5)


@fault
def throw_out_the_clients(field: Field) -> None:
    """Every connection is ended by the server."""
    field.end().throw_out()


@fault
def exhaust_the_connections(field: Field) -> None:
    """Somebody else has all connections of a PostgreSQL server."""
    assert isinstance(field.stage, PostgresStage)
    with contextlib.ExitStack() as held:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                held.enter_context(field.stage.server.connect())
        field.lasting(1, 4)


@fault
def pin_the_horizon(field: Field) -> None:
    """A session of PostgreSQL with an old snapshot: dead rows stay where they are."""
    assert isinstance(field.stage, PostgresStage)
    with field.stage.server.connect(autocommit=False) as connection, contextlib.suppress(psycopg.Error):
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT pg_current_xact_id()")
        field.lasting(5, 10)
        connection.rollback()


@fault
def fill_the_memory(field: Field) -> None:
    """Redis may have no more than it has."""
    assert isinstance(field.stage, RedisStage)
    used = int(field.stage.server.information("memory")["used_memory"])
    field.stage.server.ask("CONFIG SET", "maxmemory", used)
    field.lasting(2, 5)
    field.stage.server.ask("CONFIG SET", "maxmemory", 0)


@fault
def forget_the_scripts(field: Field) -> None:
    """SCRIPT FLUSH, as a restart or an administrator does it."""
    assert isinstance(field.stage, RedisStage)
    for _ in range(field.chance.randint(3, 10)):
        field.stage.server.ask("SCRIPT FLUSH")
        field.lasting(0, 0.2)


@fault
def raise_the_alarm(field: Field) -> None:
    """RabbitMQ is short of memory, and takes no more messages."""
    assert isinstance(field.stage, RabbitStage)
    field.stage.server.rabbitmqctl("set_vm_memory_high_watermark", "0.0001")
    field.lasting(2, 5)
    field.stage.server.rabbitmqctl("set_vm_memory_high_watermark", "0.6")


# -- The machine -------------------------------------------------------------------------------------------


@fault
def fill_a_disk(field: Field) -> None:
    """Not a byte is left; then there is room again."""
    assert isinstance(field.stage, Fills)
    disk = field.chance.choice(field.stage.disks)
    disk.fill()
    field.lasting(2, 5)
    disk.free()
    field.stage.recover()


@fault
def lose_power(field: Field) -> None:
    """What was not synced is gone."""
    assert isinstance(field.stage, LosesPower)
    field.stage.lose_power(field.fleet)


@fault
def fail_over(field: Field) -> None:
    """Another server takes the lead."""
    assert isinstance(field.stage, FailsOver)
    field.stage.fail_over()


@fault
def shift_a_clock(field: Field) -> None:
    """A worker takes the place of another, on a machine whose clock is wrong by an hour or a day."""
    library = find_faketime()
    victim = field.victim("worker")
    if victim is not None:
        victim.terminate()
    shift = field.chance.choice(["-1d", "-1h", "+1h", "+1d"])
    field.fleet.spawn("worker", LD_PRELOAD=library, FAKETIME=shift, **ONLY_THE_WALL_CLOCK)


ONLY_THE_WALL_CLOCK = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DISABLE_SHM": "1"}
"""The history's times are monotonic. (And a process that is killed leaves no shared memory.)"""

_SHIFTED = """
import time, threading
began = time.monotonic()
threading.Event().wait(0.01)
assert time.monotonic() - began < 60
print(time.time())
"""


def find_faketime() -> str:
    """The library that shifts a process' clock. Raises `NotPossible`."""
    for path in sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")):
        environment = {**os.environ, "LD_PRELOAD": str(path), "FAKETIME": "+1d", **ONLY_THE_WALL_CLOCK}
        tried = subprocess.run(
            [sys.executable, "-c", _SHIFTED], env=environment, capture_output=True, text=True, check=False
        )
        if tried.returncode or not 0.9 < (float(tried.stdout) - time.time()) / 86400 < 1.1:
            raise NotPossible(f"{path} does not shift the clock of this Python: {tried.stderr.strip()}")
        return str(path)
    raise NotPossible("libfaketime is not installed (Debian: apt-get install libfaketime)")


# -- The network -------------------------------------------------------------------------------------------


@fault
def reset_connections(field: Field) -> None:
    """RST to both sides of each, again and again."""
    proxy = field.end().proxy
    for _ in range(field.chance.randint(1, 5)):
        proxy.reset_all()
        field.lasting(0, 0.2)


@fault
def silence(field: Field) -> None:
    """Nothing arrives in any direction; then all that was held back does."""
    proxy = field.end().proxy
    proxy.blackhole()
    try:
        field.lasting(0.5, 5)
    finally:
        proxy.pass_all()


@fault
def slowness(field: Field) -> None:
    """Each round trip takes longer, and connections are thin."""
    proxy = field.end().proxy
    proxy.delay(field.chance.uniform(0.05, 0.5))
    proxy.limit(field.chance.choice([None, 200_000]))
    try:
        field.lasting(1, 3)
    finally:
        proxy.pass_all()


@fault
def lost_requests(field: Field) -> None:
    """Cut before the server sees the request."""
    _cuts(field, lambda proxy: proxy.cut_next_request())


@fault
def orphaned_requests(field: Field) -> None:
    """The server has the request, and its client is gone."""
    _cuts(field, lambda proxy: proxy.cut_next_request(when=When.AFTER_REQUEST))


@fault
def lost_replies(field: Field) -> None:
    """The server has done what was asked; its client does not hear of it."""
    _cuts(field, lambda proxy: proxy.cut_next_reply())


def _cuts(field: Field, arm: Callable[[Proxy], Cut]) -> None:
    proxy = field.end().proxy
    fell = False
    for _ in range(field.chance.randint(5, 15)):
        with contextlib.suppress(TimeoutError):  # nobody asked for anything
            arm(proxy).wait(2)
            fell = True
        field.lasting(0, 0.1)
    proxy.pass_all()
    if not fell:
        raise NoVictim("nobody asked for anything")

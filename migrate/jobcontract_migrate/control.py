"""The control store: the row that says where jobs live, what happened, and who goes by it.

Every change is one small transaction; what must not be done by somebody who only believes to be in charge
names its owner and its epoch in the statement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from jobcontract.config import Settings
from jobcontract.contract import Driver
from jobcontract.errors import ConfigError
from jobcontract.hosted import HostedSchema, HostedStatements, single
from jobcontract.hosted.statements import read
from jobcontract.registry import open_store
from jobcontract.side_doors import HostsTables, Row, Statement, Step
from jobcontract_migrate.journal import Journal
from jobcontract_migrate.states import OVER, Phase

_PACKAGE = "jobcontract_migrate"
_TABLES = ("moves", "move_events", "move_conflicts", "move_clients", "move_journal", "move_queues")
_NOW = {
    "postgresql": "extract(epoch FROM clock_timestamp())::float8",
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
}
OWNED_FOR = 15.0
"""Seconds for which a coordinator that says nothing is believed to be at work."""
LIVE_FOR = 10.0
"""Seconds after which a client that says nothing is taken for gone: no step waits for it. What it does all
the same, the stores' gates decide."""
HOLDS_FOR = 30.0
"""Seconds for which a client that says nothing is believed to run what it said it runs."""
ROUTE_HOLDS = 4.0
"""Seconds after which a client looks where jobs live before it does anything. Where the store can't refuse
it, it does nothing when it can't look."""
_REMEMBERED_FOR = 86400.0


@dataclass(frozen=True, slots=True)
class Move:
    """One migration, as the control store has it."""

    number: int
    source: str
    target: str
    state: Phase
    epoch: int
    home: str
    """Where jobs are registered."""
    consulted: str | None
    """Whose jobs and keys are known at home too: the store that was fenced."""
    keys_copied: bool
    """Home knows all keys of `consulted` itself."""
    claimed: tuple[str, ...]
    """Where jobs are claimed."""
    fence_until: float | None
    paused: bool
    owner: str | None
    owner_until: float | None
    started_at: float
    changed_at: float
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])  # Any: JSON
    now: float = 0.0
    """The control store's clock when this was read; instants are seconds since 1970."""

    @property
    def is_over(self) -> bool:
        """Completed or aborted."""
        return self.state in OVER

    @property
    def fence_is_stale(self) -> bool:
        """The fence has run out, and anybody may lift it."""
        return self.state is Phase.FENCING and self.fence_until is not None and self.fence_until <= self.now


class Event(NamedTuple):
    """Something that happened."""

    at: float
    epoch: int
    state: str
    said: str


class Conflict(NamedTuple):
    """A job that came without its key, because another one holds it."""

    job_id: str
    holder_id: str
    queue: str
    idempotency_key: str


class Client(NamedTuple):
    """A process that follows the control store."""

    client: str
    name: str
    epoch: int
    claims: bool
    silent_for: float
    holds: tuple[str, ...] = ()
    """Brokers whose jobs it runs."""


class ControlStatements(HostedStatements):
    """The SQL of both dialects, which differs in the clock and in how a parameter is written; where whole
    batches go in, in more.
    """

    def __init__(self, host: HostsTables) -> None:
        super().__init__(host, _PACKAGE, "moves", _TABLES)
        self.schema_folder = "schema"

    def _text(self, verb: str) -> str:
        try:
            text = read(_PACKAGE, f"sql/{verb}.sql")
        except FileNotFoundError:
            return super()._text(verb)
        text = text.replace("{now}", _NOW[self.dialect])
        return text.replace("%s", "?") if self.dialect == "sqlite" else text


class ControlSchema(HostedSchema):
    """The control tables in the store called `host_name`."""

    def __init__(self, host: HostsTables, host_name: str, statements: ControlStatements) -> None:
        super().__init__(
            host,
            host_name,
            statements,
            what="state of migrations",
            remedy="run `jobctl init`",
        )


class Control:
    """The control store. Safe in threads; contacts nothing when it is made."""

    def __init__(self, driver: Driver, name: str) -> None:
        """Raises `ConfigError` when the store called `name` can't hold tables."""
        if not isinstance(driver, HostsTables):
            raise ConfigError(
                f"control: the store of {name!r} can't hold the state of a migration; "
                "name a PostgreSQL backend, or a SQLite one in a file"
            )
        self.driver = driver
        self.name = name
        self.host = cast(HostsTables, driver)
        """What takes further tables there."""
        self._statements = ControlStatements(self.host)
        self.schema = ControlSchema(self.host, name, self._statements)
        self.journal = Journal(self.host, self._statements)
        """Which copies of jobs count, where a store can't know it."""
        self._installed = False

    @classmethod
    def open(cls, settings: Settings) -> Control:
        """That of the configuration. Raises `ConfigError` when none is configured."""
        store = settings.control_store()
        if store is None:
            raise ConfigError(
                'no store is configured to know where jobs live; set control = "..." to a PostgreSQL or '
                "SQLite backend, for the producers and workers too, and restart them once"
            )
        return cls(open_store(store, settings), store.name)

    def install(self, *, dry_run: bool = False) -> list[Step]:
        """Make the tables, and their store's own objects."""
        return self.schema.install(dry_run=dry_run)

    def is_installed(self) -> bool:
        """Whether the tables are there. Without them nobody has moved jobs yet."""
        if not self._installed:
            with self.host.transaction() as transaction:
                if self.schema.read_version(transaction):
                    self.schema.check(transaction)
                    self._installed = True
        return self._installed

    def close(self) -> None:
        """Close the connections."""
        self.driver.close()

    # -- The row -----------------------------------------------------------------------------------------

    def read(self) -> Move | None:
        """The last migration; None when there was none."""
        rows = self._run(self._statements("read_move"))
        return _move(rows[0]) if rows else None

    def add(self, move: Move, owner: str) -> bool:
        """Begin. False when somebody was faster."""
        statement = self._statements(
            "add_move",
            move.number,
            move.source,
            move.target,
            move.state.value,
            move.epoch,
            move.home,
            ",".join(move.claimed),
            owner,
            OWNED_FOR,
            json.dumps(dict(move.facts)),
        )
        return bool(self._run(statement))

    def advance(self, move: Move, before: Move, owner: str, said: str, fence: float | None = None) -> bool:
        """The next step, with what there is to say about it. False when `before` is not where it stands, when
        somebody else owns it, or when its fence has run out.
        """
        with self.host.transaction() as transaction:
            done = transaction.run(
                self._statements(
                    "advance",
                    move.source,
                    move.target,
                    move.state.value,
                    move.epoch,
                    move.home,
                    move.consulted,
                    int(move.keys_copied),
                    ",".join(move.claimed),
                    fence,
                    move.number,
                    owner,
                    before.epoch,
                )
            )
            if done:
                transaction.run(self._event(move, said))
        return bool(done)

    def lift_fence(self, move: Move, said: str) -> bool:
        """Back to dual_read, if the fence has run out."""
        with self.host.transaction() as transaction:
            row = single(transaction, self._statements("lift_fence", move.number))
            if row is not None:
                transaction.run(
                    self._statements(
                        "add_event", move.number, move.number, row[1], Phase.DUAL_READ.value, said
                    )
                )
        return row is not None

    def say(self, move: Move, said: str) -> None:
        """Remember that something happened."""
        self._run(self._event(move, said))

    def set_keys_copied(self, move: Move, owner: str) -> None:
        """Home knows all keys from now on."""
        self._run(self._statements("set_keys_copied", move.number, owner))

    def set_facts(self, move: Move, owner: str, facts: Mapping[str, object]) -> None:
        """What the report tells."""
        self._run(self._statements("set_facts", json.dumps(dict(facts)), move.number, owner))

    def set_paused(self, move: Move, paused: bool) -> None:
        """Whether the mover rests."""
        self._run(self._statements("set_paused", int(paused), move.number))

    def events(self, move: Move) -> list[Event]:
        """All that happened, in order."""
        return [Event(*row) for row in self._run(self._statements("events", move.number))]

    # -- Its owner ---------------------------------------------------------------------------------------

    def take_over(self, move: Move, owner: str, dead: str | None) -> bool:
        """Become the owner; `dead` is one that is known not to run any more. False: another is at work."""
        statement = self._statements("take_over", owner, OWNED_FOR, move.number, owner, dead or owner)
        return bool(self._run(statement))

    def keep(self, move: Move, owner: str) -> bool | None:
        """Go on being the owner: whether the mover should rest; None when somebody else is the owner now."""
        rows = self._run(self._statements("keep", OWNED_FOR, move.number, owner))
        return bool(rows[0][0]) if rows else None

    def let_go(self, move: Move, owner: str) -> None:
        """Own it no more."""
        self._run(self._statements("let_go", move.number, owner))

    # -- Conflicts ---------------------------------------------------------------------------------------

    def add_conflicts(self, move: Move, conflicts: Sequence[Conflict]) -> None:
        """Remember them. Safe to repeat."""
        with self.host.transaction() as transaction:
            for each in conflicts:
                transaction.run(self._statements("add_conflict", move.number, *each))

    def conflicts(self, move: Move) -> list[Conflict]:
        """All of this migration."""
        return [Conflict(*row) for row in self._run(self._statements("conflicts", move.number))]

    # -- Who goes by it ----------------------------------------------------------------------------------

    def beat(
        self, client: str, name: str, epoch: int, claims: bool, holds: Sequence[str] = ()
    ) -> Move | None:
        """A client says that it is there, goes by `epoch`, and runs jobs of the brokers `holds`; the last
        migration.
        """
        with self.host.transaction() as transaction:
            transaction.run(self._statements("beat", client, name, epoch, int(claims), ",".join(holds)))
            row = single(transaction, self._statements("read_move"))
        return None if row is None else _move(row)

    def leave(self, client: str) -> None:
        """A client says goodbye."""
        with self.host.transaction() as transaction:
            transaction.run(self._statements("leave_clients", client))
            transaction.run(self._statements("forget_clients", _REMEMBERED_FOR))

    def clients(self, silent_for: float = LIVE_FOR) -> list[Client]:
        """Those who are there: who said something in the last `silent_for` seconds."""
        rows = self._run(self._statements("clients", silent_for))
        return [
            Client(client, name, epoch, bool(claims), silent, tuple(str(holds).split(",")) if holds else ())
            for client, name, epoch, claims, silent, holds in rows
        ]

    # -- The mechanism -----------------------------------------------------------------------------------

    def _event(self, move: Move, said: str) -> Statement:
        return self._statements("add_event", move.number, move.number, move.epoch, move.state.value, said)

    def _run(self, statement: Statement) -> list[Row]:
        with self.host.transaction() as transaction:
            return transaction.run(statement)


def read_last_move(settings: Settings) -> Move | None:
    """The last migration of the configured control store; None when there was none."""
    with closing(Control.open(settings)) as control:
        return control.read() if control.is_installed() else None


def _move(row: Row) -> Move:
    (
        number, source, target, state, epoch, home, consulted, keys_copied, claimed, fence_until, paused,
        owner, owner_until, started_at, changed_at, facts, now,
    ) = row  # fmt: skip
    return Move(
        number=number,
        source=source,
        target=target,
        state=Phase(state),
        epoch=epoch,
        home=home,
        consulted=consulted,
        keys_copied=bool(keys_copied),
        claimed=tuple(claimed.split(",")),
        fence_until=fence_until,
        paused=bool(paused),
        owner=owner,
        owner_until=owner_until,
        started_at=started_at,
        changed_at=changed_at,
        facts=json.loads(facts),
        now=now,
    )

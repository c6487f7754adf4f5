"""Stages on which jobs move: two stores, a control store, and clients that follow it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, cast

from jobcontract_migrate import RoutedDriver
from jobcontract_migrate.canary import CANARY
from jobcontract_migrate.control import Control, Move
from jobcontract_outbox.driver import OutboxDriver

from jobcontract import Backend, get_backend
from jobcontract.config import Settings
from jobcontract.contract import Driver
from jobcontract.errors import StoreError
from jobcontract.status import JobStatus
from tests.faults.history import Recorder
from tests.faults.recording import record_route
from tests.faults.run_file import NEW, OLD, TICKING, read_settings
from tests.faults.stages import End, PostgresStage, RabbitStage, RedisStage, SQLiteStage, Stage, listing

CONTROL = "control"
NOBODY_REGISTERED = (CANARY, "jobcontract.unknown")
"""The kinds of what a migration stores by itself: to try a store, and to keep a key of a job that ended."""


class MovingStage(Stage):
    """Jobs live in `OLD`, and move to `NEW`. `place` says where these are."""

    setting = "Any two of these, and jobs on the move between them"
    control: str = OLD
    """The backend that says where jobs live."""
    behind: str = ""
    """The backend with the outbox in front of `NEW`, if there is one."""
    control_end: End | None = None
    """The control store's server, where it has one of its own."""

    @abstractmethod
    def place(self) -> tuple[dict[str, str], dict[str, str]]:
        """Have the servers; the URLs of the backends by name, as clients see them and as the runner does."""

    def start(self) -> None:
        seen, direct = self.place()
        self.direct_folder = self.folder / "direct"
        self.direct_folder.mkdir()
        for folder, urls in ((self.folder, seen), (self.direct_folder, direct)):
            tables = "".join(
                f'[backends.{name}]\nurl = "{url}"\n'
                + (f'outbox = "{self.behind}"\n' if name == NEW and self.behind else "")
                for name, url in urls.items()
            )
            text = f'default = "{OLD}"\ncontrol = "{self.control}"\n{tables}{TICKING}'
            (folder / "jobcontract.toml").write_text(text)

    def write_settings(self) -> None:
        """Done when it was started."""

    @property
    def direct_settings(self) -> Settings:
        return read_settings(self.direct_folder)

    @property
    def relays(self) -> bool:
        return bool(self.behind)

    def look(self) -> Backend:
        return get_backend(settings=self.direct_settings)

    def install(self, backend: Backend) -> None:
        backend.install()
        with self.look_at(NEW) as new:
            new.install()  # the runner asks what it can, and a relay looks for its table

    def look_at(self, name: str) -> Backend:
        """One of the stores, whatever the control store says."""
        return get_backend(name, settings=self.direct_settings)

    def watch(self, backend: Backend, recorder: Recorder) -> None:
        record_route(cast(RoutedDriver, backend.driver), recorder)

    def move(self) -> Move | None:
        """The migration as it stands; None before it has begun, and while nobody can say."""
        try:
            control = Control.open(self.direct_settings)
            try:
                return control.read() if control.is_installed() else None
            finally:
                control.close()
        except StoreError:
            return None

    def stores(self, backend: Backend) -> list[Driver]:
        found: list[Driver] = []
        for name in (OLD, NEW):
            driver = self.stack.enter_context(self.look_at(name)).driver
            found.append(driver.target if isinstance(driver, OutboxDriver) else driver)
        return found

    def listings(self, backend: Backend) -> Iterator[tuple[str, Iterable[JobStatus]]]:
        for name in (OLD, NEW):
            with self.look_at(name) as store:
                yield name, (each for each in listing(store) if each.kind not in NOBODY_REGISTERED)

    def left(self, backend: Backend) -> int:
        count = 0
        for name in (OLD, NEW):
            with self.look_at(name) as store:
                count += sum(row.ready + row.scheduled + row.running for row in store.stats())
        return count

    def poison(self, job_ids: Iterable[str]) -> None:
        """Not here: what can't be read is dead before it could move."""


class FilesToFiles(MovingStage):
    """From one SQLite file to another."""

    name = "move-files"

    def place(self) -> tuple[dict[str, str], dict[str, str]]:
        urls = {name: f"sqlite:///{self.folder}/{name}.db" for name in (OLD, NEW)}
        return urls, urls


class PostgresToRedis(MovingStage):
    """From PostgreSQL to Redis."""

    name = "move-postgres-redis"

    def place(self) -> tuple[dict[str, str], dict[str, str]]:
        old = self.stack.enter_context(PostgresStage(self.folder, self.programs))
        new = self.stack.enter_context(RedisStage(self.folder, self.programs))
        self.ends += [*old.ends, *new.ends]
        return {OLD: old.url, NEW: new.url}, {OLD: old.direct_url, NEW: new.direct_url}


class SQLiteToPostgres(MovingStage):
    """From a SQLite file to PostgreSQL."""

    name = "move-sqlite-postgres"

    def place(self) -> tuple[dict[str, str], dict[str, str]]:
        old = self.stack.enter_context(SQLiteStage(self.folder, self.programs))
        new = self.stack.enter_context(PostgresStage(self.folder, self.programs))
        self.ends += new.ends
        return {OLD: old.url, NEW: new.url}, {OLD: old.direct_url, NEW: new.direct_url}


class PostgresToRabbit(MovingStage):
    """From PostgreSQL to RabbitMQ behind an outbox in that PostgreSQL: what most people will do."""

    name = "move-postgres-rabbitmq"
    behind = OLD
    stale = RabbitStage.stale

    def place(self) -> tuple[dict[str, str], dict[str, str]]:
        self.source = self.stack.enter_context(PostgresStage(self.folder, self.programs))
        self.target = self.stack.enter_context(RabbitStage(self.folder, self.programs))
        self.ends += [*self.source.ends, *self.target.ends]
        self.transactions = self.source.transactions
        return (
            {OLD: self.source.url, NEW: self.target.url},
            {OLD: self.source.direct_url, NEW: self.target.direct_url},
        )

    def business(self) -> list[str] | None:
        return self.source.business()

    def left(self, backend: Backend) -> int:
        ((waiting,),) = self.source.server.execute("SELECT count(*) FROM jobcontract.outbox")
        assert isinstance(waiting, int)
        with self.look_at(OLD) as old:
            waiting += sum(row.ready + row.scheduled + row.running for row in old.stats())
        queues: list[dict[str, Any]] = self.target.server.api("GET", "/queues/%2F")
        there: int = sum(queue.get("messages", 0) for queue in queues if ".dead." not in queue["name"])
        return waiting + there


class SchemaToSchema(MovingStage):
    """From one schema of a PostgreSQL database to another; the control store is a server of its own."""

    name = "move-schemas"
    control = CONTROL

    def place(self) -> tuple[dict[str, str], dict[str, str]]:
        self.source = self.stack.enter_context(PostgresStage(self.folder, self.programs))
        control = self.stack.enter_context(PostgresStage(self.folder, self.programs))
        self.ends += self.source.ends
        (self.control_end,) = control.ends
        self.transactions = self.source.transactions
        seen = {name: f"{self.source.url}&schema={name}" for name in (OLD, NEW)}
        direct = {name: f"{self.source.direct_url}?schema={name}" for name in (OLD, NEW)}
        return seen | {CONTROL: control.url}, direct | {CONTROL: control.direct_url}

    def heal(self) -> None:
        super().heal()
        assert self.control_end is not None
        self.control_end.proxy.pass_all()

    def business(self) -> list[str] | None:
        return self.source.business()

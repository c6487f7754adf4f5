"""The stores under attack: private servers, each behind a proxy for all clients but the runner."""

from __future__ import annotations

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias

from jobcontract_outbox.driver import OutboxDriver

from jobcontract import Backend, get_backend
from jobcontract.config import Settings
from jobcontract.contract import Deduplication, Driver
from jobcontract.side_doors import Lookup
from jobcontract.status import JobStatus
from tests.faults.history import Recorder
from tests.faults.recording import record
from tests.faults.run_file import OUTBOX, STORE, read_settings, write_settings
from tests.servers.binaries import Programs, Service, find_programs
from tests.servers.postgres import PostgresServer
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

TIMEOUT = "timeout=3s"
"""Of the clients: a silent server is noticed soon."""
BUSINESS_TABLE = "CREATE TABLE business (id text PRIMARY KEY)"
HUGE = '{"number":' + "9" * 5000 + "}"
"""JSON that no client can read."""


FindPrograms: TypeAlias = Callable[[Service], Programs]


class NoVictim(Exception):
    """There was nothing that a fault could have struck, or nothing came of it."""


@dataclass(frozen=True)
class End:
    """One server that can be attacked, and the way to it."""

    server: Server
    proxy: Proxy
    throw_out: Callable[[], None]
    """Have the server end all its connections."""


class Stage(ABC):
    """A store that is there for one run. `start` fills in what is declared here."""

    name: ClassVar[str]
    setting: ClassVar[str]
    """The store and what makes its promises worth what they are, as the table of guarantees has it."""
    lease: ClassVar[float] = 2.0
    hold: ClassVar[float] = 0.5
    """Seconds for which some transactions of producers stay open."""
    outbox_url: str = ""
    """Of the database with the outbox, as the clients see it; where there is one."""
    transactions: str = ""
    """The URL of the database where producers have transactions, or nothing."""
    stale: ClassVar[float] = 0.0
    """Seconds for which `left` may tell of what was."""
    window: int = 0
    """How many jobs a relay may send again after a fault."""

    def __init__(self, folder: Path, programs: FindPrograms = find_programs) -> None:
        self.folder = folder
        self.programs = programs
        self.stack = contextlib.ExitStack()
        self.ends: list[End] = []
        self.url = ""
        """Of the store, as the clients see it."""
        self.direct_url = ""
        """Of the store, as the runner sees it."""

    @abstractmethod
    def start(self) -> None:
        """Have servers, proxies and an empty store."""

    @abstractmethod
    def poison(self, job_ids: Iterable[str]) -> None:
        """Make stored jobs undecodable, past the driver."""

    def business(self) -> list[str] | None:
        """The jobs whose producer's own row is there; None where producers have no transactions."""
        return None

    def heal(self) -> None:
        """Undo all that was done to the network."""
        for end in self.ends:
            end.proxy.pass_all()

    def left(self, backend: Backend) -> int:
        """How many jobs are neither done nor dead."""
        return sum(row.ready + row.scheduled + row.running for row in backend.stats())

    def write_settings(self) -> None:
        """The configuration of the clients."""
        write_settings(self.folder, self.url, outbox=self.outbox_url)

    def look(self) -> Backend:
        """A client that no fault of the network touches. To be closed."""
        return get_backend(self.direct_url, settings=Settings())

    @property
    def relays(self) -> bool:
        """Whether a relay has to run."""
        return bool(self.outbox_url)

    def install(self, backend: Backend) -> None:
        """Have all tables that clients need."""
        backend.install()

    def watch(self, backend: Backend, recorder: Recorder) -> None:
        """Record what `look` gave."""
        record(backend.driver, recorder, OUTBOX if self.outbox_url else STORE)

    def stores(self, backend: Backend) -> list[Driver]:
        """Where jobs can be."""
        return [store_of(backend)]

    def listings(self, backend: Backend) -> Iterator[tuple[str, Iterable[JobStatus]]]:
        """What each store has, by its name in the history."""
        yield STORE, listing(backend)

    def close(self) -> None:
        self.stack.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PostgresStage(Stage):
    """PostgreSQL as it comes: fsync, synchronous commits."""

    name = "postgres"
    setting = "PostgreSQL, fsync and synchronous commits"

    def start(self) -> None:
        self.server = self.stack.enter_context(self.make_server())
        proxy = self.stack.enter_context(Proxy(self.server.address))
        self.ends.append(End(self.server, proxy, self._throw_out))
        self.transactions = self.server.url(host=proxy.host, port=proxy.port)
        self.url = f"{self.transactions}?{TIMEOUT}"
        self.direct_url = self.server.url()
        with self.server.connect() as connection:
            connection.execute(BUSINESS_TABLE)

    def make_server(self) -> PostgresServer:
        return PostgresServer(programs=self.programs(Service.POSTGRES))

    def poison(self, job_ids: Iterable[str]) -> None:
        update = "UPDATE jobcontract.live_jobs SET input_ref = %s WHERE id = %s"
        with self.server.connect() as connection:
            for job_id in job_ids:
                connection.execute(update, (HUGE, job_id))

    def business(self) -> list[str] | None:
        return [str(job_id) for (job_id,) in self.server.execute("SELECT id FROM business")]

    def _throw_out(self) -> None:
        with self.server.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )


class SQLiteStage(Stage):
    """A file that all processes open."""

    name = "sqlite"
    setting = "SQLite, synchronous FULL"

    def start(self) -> None:
        self.place(self.folder)

    def place(self, folder: Path) -> None:
        """Have the file in `folder`."""
        self.path = folder / "jobs.db"
        self.url = self.direct_url = self.transactions = f"sqlite:///{self.path}"
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(BUSINESS_TABLE)

    def poison(self, job_ids: Iterable[str]) -> None:
        with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as connection, connection:
            for job_id in job_ids:
                connection.execute("UPDATE jobcontract_jobs SET input_ref = ? WHERE id = ?", (HUGE, job_id))

    def business(self) -> list[str] | None:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return [str(job_id) for (job_id,) in connection.execute("SELECT id FROM business")]


class RedisStage(Stage):
    """Redis that syncs its append-only file before it answers."""

    name = "redis"
    setting = "Redis, appendfsync always"

    def make_server(self) -> RedisServer:
        return RedisServer(programs=self.programs(Service.REDIS), appendfsync="always")

    def start(self) -> None:
        self.server = self.stack.enter_context(self.make_server())
        proxy = self.stack.enter_context(Proxy(self.server.address))
        self.ends.append(End(self.server, proxy, self._throw_out))
        self.url = f"{self.server.url(host=proxy.host, port=proxy.port)}?{TIMEOUT}"
        self.direct_url = self.server.url()

    def poison(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self.server.ask("SET", f"{{jobcontract:default}}:b:{job_id}", "rubbish")

    def _throw_out(self) -> None:
        self.server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


class RabbitStage(Stage):
    """One RabbitMQ node, quorum queues."""

    name = "rabbitmq"
    setting = "RabbitMQ, quorum queues on one node"

    SETTINGS: ClassVar[dict[str, str]] = {"collect_statistics_interval": "1000"}
    stale = 6.0  # statistics of statistics; and none are there after a restart

    def make_server(self) -> RabbitServer:
        return RabbitServer(programs=self.programs(Service.RABBITMQ), settings=self.SETTINGS)

    def start(self) -> None:
        self.server = self.stack.enter_context(self.make_server())
        proxy = self.stack.enter_context(Proxy(self.server.address))
        self.ends.append(End(self.server, proxy, self._throw_out))
        self.url = f"{self.server.url(host=proxy.host, port=proxy.port)}?{TIMEOUT}"
        self.direct_url = self.server.url()

    def poison(self, job_ids: Iterable[str]) -> None:
        chosen = set(job_ids)
        queue = "jobcontract.v1.ready.default.0"
        with contextlib.closing(self.server.connect()) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for _ in range(channel.queue_declare(queue, passive=True).method.message_count):
                delivered, properties, body = channel.basic_get(queue)
                if properties.message_id in chosen:
                    body = body.replace(b'"input_ref":{}', b'"input_ref":' + HUGE.encode())
                channel.basic_publish("", queue, body, properties, mandatory=True)
                channel.basic_ack(delivered.delivery_tag)
        self.server.flush_metadata()

    def left(self, backend: Backend) -> int:
        queues: list[dict[str, Any]] = self.server.api("GET", "/queues/%2F")
        return sum(queue.get("messages", 0) for queue in queues if ".dead." not in queue["name"])

    def _throw_out(self) -> None:
        for connection in self.server.api("GET", "/connections"):
            with contextlib.suppress(RuntimeError):  # it has gone by itself
                self.server.api("DELETE", f"/connections/{connection['name'].replace(' ', '%20')}")


class OutboxStage(Stage):
    """A store behind an outbox in PostgreSQL; a relay in between."""

    target_stage: ClassVar[type[RedisStage | RabbitStage]]
    window = 200

    def start(self) -> None:
        self.host = self.stack.enter_context(PostgresStage(self.folder, self.programs))
        self.target = self.stack.enter_context(self.target_stage(self.folder, self.programs))
        self.ends += [*self.host.ends, *self.target.ends]
        self.url, self.outbox_url = self.target.url, self.host.url
        self.transactions = self.host.transactions
        self.direct_folder = self.folder / "direct"
        self.direct_folder.mkdir()
        write_settings(self.direct_folder, self.target.direct_url, outbox=self.host.direct_url)

    def business(self) -> list[str] | None:
        return self.host.business()

    def look(self) -> Backend:
        return get_backend(STORE, settings=read_settings(self.direct_folder))

    def poison(self, job_ids: Iterable[str]) -> None:
        """Not here: a row that can't be read is the relay's to park, and has tests of its own."""

    def left(self, backend: Backend) -> int:
        ((waiting,),) = self.host.server.execute("SELECT count(*) FROM jobcontract.outbox")
        assert isinstance(waiting, int)
        return waiting + self.target.left(backend)


class OutboxRedisStage(OutboxStage):
    name = "outbox-redis"
    setting = "Redis behind an outbox in PostgreSQL"
    target_stage = RedisStage


class OutboxRabbitStage(OutboxStage):
    name = "outbox-rabbitmq"
    setting = "RabbitMQ behind an outbox in PostgreSQL"
    target_stage = RabbitStage
    stale = RabbitStage.stale


def looks_up(store: Driver) -> bool:
    """Whether every job can be listed, and not only the dead and what waits in an outbox."""
    return isinstance(store, Lookup)


def keeps_copies(store: Driver) -> bool:
    """Whether the store takes a job that it has once more, as it does when it compares no ids. An outbox in
    front compares what is registered there, and not what a relay that was killed publishes again.
    """
    return store.capabilities.deduplication is Deduplication.NONE


def store_of(backend: Backend) -> Driver:
    """The driver behind the outbox, if there is one."""
    driver = backend.driver
    return driver.target if isinstance(driver, OutboxDriver) else driver


def listing(backend: Backend) -> Generator[JobStatus]:
    """Every job that can be listed."""
    page_of = backend.jobs if looks_up(store_of(backend)) else backend.dead_jobs
    cursor: str | None = None
    while page := page_of(limit=1000, cursor=cursor):
        yield from page
        cursor = page[-1].cursor

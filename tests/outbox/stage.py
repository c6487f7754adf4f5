"""A store with an outbox in front of it, from a configuration as an application has it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from jobcontract_outbox import Relay, RelayOptions
from jobcontract_outbox.ends import find_ends
from jobcontract_outbox.statements import Statements
from jobcontract_outbox.status import read_status

from jobcontract import Backend, Claim, Job, StoreUnavailable, get_backend
from jobcontract.config import Settings, load_settings
from jobcontract.side_doors import HostsTables, OutboxStats, Statement

PATIENCE = 60.0


class Stage:
    """Backends "host" (SQL) and others with ``outbox = "host"``, in a folder of their own."""

    def __init__(self, folder: Path, host: str, targets: Mapping[str, str]) -> None:
        """`host` is the URL of the SQL store, `targets` maps names to URLs."""
        self.folder = folder
        self.host_url = host
        tables = [f'[backends.host]\nurl = "{host}"\n']
        tables += [f'[backends.{name}]\nurl = "{url}"\noutbox = "host"\n' for name, url in targets.items()]
        self.file = folder / "jobcontract.toml"
        self.file.write_text('default = "host"\n' + "\n".join(tables))
        self.targets = tuple(targets)
        self._stack = contextlib.ExitStack()

    @property
    def settings(self) -> Settings:
        return load_settings(self.file, environment={})

    def backend(self, name: str | None = None) -> Backend:
        """A new client of `name`, closed with the stage."""
        backend = get_backend(name or self.targets[0], settings=self.settings)
        self._stack.callback(backend.close)
        return backend

    def install(self) -> None:
        for name in self.targets:
            self.backend(name).install()

    def relay(
        self,
        *names: str,
        batch: int = 500,
        attempts: int = 10,
        retention: timedelta = timedelta(days=14),
    ) -> Relay:
        """A relay that is not started, closed with the stage."""
        options = RelayOptions(batch=batch, attempts=attempts, retention=retention)
        relay = Relay(find_ends(self.settings, names), options)
        self._stack.callback(relay.close)
        self._stack.callback(relay.stop)
        return relay

    def publish(self, *names: str, batch: int = 500, attempts: int = 10) -> int:
        """One pass of a relay; how many jobs it published."""
        relay = self.relay(*names, batch=batch, attempts=attempts)
        relay.run_once()
        return sum(loop.published for loop in relay.loops)

    def status(self, name: str | None = None) -> OutboxStats:
        (ends,) = find_ends(self.settings, (name or self.targets[0],))
        opened = ends.open()
        with contextlib.closing(opened.driver):
            return read_status(opened.tables, opened.driver.schema, Statements(opened.tables), ends.name)

    def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Past everything, in the outbox's database. ``{outbox}`` stands for the table."""
        driver = self.backend("host").driver
        assert isinstance(driver, HostsTables)
        tables = {name: driver.table(name) for name in ("outbox", "outbox_jobs", "outbox_schema")}
        with driver.transaction() as transaction:
            return transaction.run(Statement(statement.format(**tables), parameters))

    @contextlib.contextmanager
    def process(self, *arguments: str) -> Generator[subprocess.Popen[str]]:
        """`jobctl` with `arguments`, as a process; killed at the end if it still runs."""
        running = subprocess.Popen(
            [sys.executable, "-m", "jobcontract", *arguments],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("JOBCONTRACT_")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield running
        finally:
            if running.poll() is None:
                running.send_signal(signal.SIGKILL)
            running.communicate()

    def close(self) -> None:
        self._stack.close()


def drain(backend: Backend, queue: str = "default") -> list[Claim]:
    """Every job that can be claimed now, completed."""
    return list(_draining(backend, queue))


def drain_until(backend: Backend, count: int, queue: str = "default") -> list[Claim]:
    """`drain`, until so many different jobs have come; a store that is only coming back is asked again."""
    claims: list[Claim] = []

    def enough() -> bool:
        with contextlib.suppress(StoreUnavailable):
            claims.extend(_draining(backend, queue))  # keeps what came before it raised
        return len(set(ids(claims))) >= count

    until(enough)
    return claims + drain(backend, queue)


def _draining(backend: Backend, queue: str) -> Iterator[Claim]:
    while found := backend.claim(queues=[queue], limit=500):
        assert all(verdict.applied for verdict in backend.complete_many(found))
        yield from found


def ids(claims: Iterable[Claim]) -> list[UUID]:
    return [claim.job.id for claim in claims]


def jobs(count: int, **fields: Any) -> list[Job]:
    return [Job(kind="work", input_ref={"number": number}, **fields) for number in range(count)]


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Block until `condition` holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"it did not come true within {seconds:g} s")
        time.sleep(0.02)

"""A database that is down while ticks fall due."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from jobcontract import Backend, Handlers, get_backend
from jobcontract.config import Settings
from jobcontract.errors import StoreUnavailable
from jobcontract.schedules import Interval, Schedule, backfill, find_missing
from jobcontract.worker import Worker, WorkerOptions
from tests.schedules.test_scheduler import begin, keys, place_of, ticks
from tests.servers.binaries import Programs
from tests.servers.postgres import PostgresServer
from tests.worker.running import eventually

SECOND = timedelta(seconds=1)


@pytest.fixture
def server(postgres_programs: Programs) -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with PostgresServer(programs=postgres_programs, fsync=False) as server:
        yield server


def test_a_worker_goes_on_with_its_schedules_and_says_what_it_left_out(server: PostgresServer) -> None:
    every = Schedule(name="every", ticks=Interval(SECOND), kind="tick", catch_up=2 * SECOND)
    handlers = Handlers()

    @handlers.handler("tick")
    def handle(input: dict[str, object]) -> None: ...

    with get_backend(server.url(), settings=Settings()) as backend:
        backend.install()
        first = begin(backend, every, ago=timedelta())
        worker = Worker(backend, handlers, WorkerOptions(grace=timedelta()), schedules=[every])
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        try:
            eventually(lambda: len(keys(backend)) >= 2)
            server.stop()
            time.sleep(6)  # the time that is lost
            server.start()
            before = eventually(lambda: _keys(backend), within=60)
            eventually(lambda: len(keys(backend)) >= len(before) + 2, within=60)
        finally:
            worker.stop_now()
            thread.join(20)
        assert not thread.is_alive()

        last = place_of(backend, every).last
        missing = {every.key(tick) for tick in find_missing(backend, every, until=last).ticks}
        assert len(missing) >= 2, "it was down for longer than the schedule catches up"
        assert missing | set(keys(backend)) == set(ticks(every, first, last))
        assert backfill(backend, every, until=last).created == len(missing)
        assert keys(backend) == ticks(every, first, last)


def _keys(backend: Backend) -> Counter[str | None] | None:
    try:
        return keys(backend)
    except StoreUnavailable:
        return None

"""What others hold open, in the outbox's database and beside it, delays no job that was committed."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Generator

import psycopg
import pytest

from jobcontract import Backend, Job
from tests.outbox.conftest import MakeStage
from tests.outbox.stage import Stage, drain_until, ids, jobs, until
from tests.servers.postgres import PostgresServer


@pytest.fixture
def stage(make_stage: MakeStage, postgres_url: str, redis_url: str) -> Stage:
    """Redis behind an outbox in PostgreSQL."""
    return make_stage(postgres_url, redis=redis_url)


class Held:
    """Transactions that nobody ends: in another database, and two in the outbox's own."""

    def __init__(self, stage: Stage, server: PostgresServer, stack: contextlib.ExitStack) -> None:
        self.pending = Job(kind="work")
        """Written by the last of them: its row has a lower number than all that come later."""
        connections = [
            stack.enter_context(psycopg.connect(url))
            for url in (server.url(), stage.host_url, stage.host_url)
        ]
        for connection in connections:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT pg_current_xact_id()")
        self._writer = connections[-1]
        stage.backend().register(self.pending, connection=self._writer)

    def commit(self) -> None:
        """End the one that wrote."""
        self._writer.commit()


@contextlib.contextmanager
def held(stage: Stage, server: PostgresServer) -> Generator[Held]:
    with contextlib.ExitStack() as stack:
        yield Held(stage, server, stack)


def test_they_hold_up_nothing_that_was_committed(stage: Stage, postgres_server: PostgresServer) -> None:
    """However much comes and goes behind their snapshots, whose dead rows no vacuum may take."""
    relay = stage.relay()
    relay.start()
    backend = stage.backend()
    with held(stage, postgres_server) as open_transactions:
        for _ in range(10):
            made = jobs(1000)
            backend.register_many(made)
            assert sorted(ids(drain_until(backend, 1000))) == sorted(job.id for job in made)
        until(lambda: stage.status().pending == 0)
        open_transactions.commit()
        assert ids(drain_until(backend, 1)) == [open_transactions.pending.id]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_they_hold_up_nothing_for_minutes_either(stage: Stage, postgres_server: PostgresServer) -> None:
    relay = stage.relay()
    relay.start()
    worker, producer = stage.backend(), stage.backend()
    before = [_latency(producer, worker) for _ in range(50)]
    with held(stage, postgres_server) as open_transactions:
        latencies: list[float] = []
        end = time.monotonic() + 180
        while time.monotonic() < end:
            latencies.append(_latency(producer, worker))
            time.sleep(0.05)
        open_transactions.commit()
        assert ids(drain_until(stage.backend(), 1)) == [open_transactions.pending.id]
    usual, late = statistics.median(before), statistics.median(latencies[-50:])
    assert late < 3 * usual + 0.05, f"{late:.3f} s in the last minute, {usual:.3f} s before"
    assert max(latencies) < 10


def _latency(producer: Backend, worker: Backend) -> float:
    """Seconds from the commit of a job until a worker has it."""
    job = Job(kind="work")
    producer.register(job)
    began = time.monotonic()
    assert ids(drain_until(worker, 1)) == [job.id]
    return time.monotonic() - began

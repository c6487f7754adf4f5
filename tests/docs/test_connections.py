"""What docs/how-to/connections.md says of how many connections a worker holds."""

from __future__ import annotations

import threading

from jobcontract import Handlers, Job, get_backend
from jobcontract.config import Settings
from jobcontract.worker import WorkerOptions
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.worker.running import RunningWorker, eventually

CONCURRENCY = 48
HANDFUL = 8  # six threads that may ask at once, one that listens, and this test


def waiting_handlers(started: threading.Semaphore, finish: threading.Event) -> Handlers:
    handlers = Handlers()

    @handlers.handler("wait")
    def wait(input: dict[str, object]) -> None:
        started.release()
        assert finish.wait(60)

    return handlers


def test_running_handlers_hold_no_connection(postgres_server: PostgresServer) -> None:
    database = postgres_server.create_database()
    started, finish = threading.Semaphore(0), threading.Event()
    with get_backend(postgres_server.url(database), settings=Settings()) as backend:
        backend.install()
        backend.register_many([Job(kind="wait") for _ in range(CONCURRENCY)])
        with RunningWorker(
            backend, waiting_handlers(started, finish), WorkerOptions(concurrency=CONCURRENCY)
        ) as worker:
            for _ in range(CONCURRENCY):
                assert started.acquire(timeout=60)
            assert 1 <= _sessions(postgres_server, database) <= HANDFUL
            finish.set()
            eventually(lambda: not [row for row in backend.stats() if row.ready or row.running], within=60)
            assert _sessions(postgres_server, database) <= HANDFUL, "nor did so many completions"
            worker.stop()


def test_a_worker_on_rabbitmq_has_two(rabbitmq_server: RabbitServer) -> None:
    vhost = rabbitmq_server.create_vhost()
    started, finish = threading.Semaphore(0), threading.Event()
    with get_backend(rabbitmq_server.url(vhost), settings=Settings()) as backend:
        backend.install()
        backend.register_many([Job(kind="wait") for _ in range(CONCURRENCY)])
        with RunningWorker(
            backend, waiting_handlers(started, finish), WorkerOptions(concurrency=CONCURRENCY)
        ) as worker:
            for _ in range(CONCURRENCY):
                assert started.acquire(timeout=60)
            listed = rabbitmq_server.rabbitmqctl("list_connections", "vhost", "--quiet")
            assert listed.split().count(vhost) == 2
            finish.set()
            worker.stop()


def _sessions(server: PostgresServer, database: str) -> int:
    with server.connect() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", (database,)
        ).fetchone()
    assert row is not None
    return int(row[0])

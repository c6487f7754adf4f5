"""A PostgreSQL that restarts, hangs, answers slowly or drops connections: the worker goes on by itself."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from jobcontract import Backend, Handlers, Job, JobContext, State
from jobcontract.worker import WorkerOptions
from tests.servers.binaries import Programs
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.worker.claims import nothing
from tests.worker.conftest import open_installed
from tests.worker.processes import WorkerProcess
from tests.worker.running import PROMPT, RunningWorker, await_state, eventually


@pytest.fixture
def server(postgres_programs: Programs) -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with PostgresServer(programs=postgres_programs, fsync=False) as server:
        yield server


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    """In front of the server that the tests share."""
    with Proxy(postgres_server.address) as proxy:
        yield proxy


def url_through(proxy: Proxy, postgres_server: PostgresServer, url: str, **parameters: str) -> str:
    """The database of `url`, by way of the proxy."""
    database = url.rpartition("/")[2]
    return postgres_server.url(database, host=proxy.host, port=proxy.port, **parameters)


@pytest.fixture
def runs() -> Counter[int]:
    """How often each job ran."""
    return Counter()


@pytest.fixture
def counting(handlers: Handlers, runs: Counter[int]) -> Handlers:
    """A handler that counts its runs."""

    @handlers.handler("job")
    def handle(input: dict[str, int]) -> None:
        runs[input["number"]] += 1
        time.sleep(0.002)  # the work

    return handlers


def numbered(count: int) -> list[Job]:
    """That many jobs."""
    return [Job(kind="job", input_ref={"number": number}) for number in range(count)]


def all_done(backend: Backend) -> bool:
    """Whether nothing is left to run."""
    return not any(one.ready + one.running + one.scheduled for one in backend.stats())


def test_a_restart_under_load_is_survived_and_said_once(
    server: PostgresServer, counting: Handlers, runs: Counter[int], caplog: pytest.LogCaptureFixture
) -> None:
    with open_installed(server.url(server.create_database())) as backend:
        backend.register_many(numbered(2000))
        options = replace(PROMPT, concurrency=4, lease=timedelta(seconds=3))
        with RunningWorker(backend, counting, options) as worker:
            eventually(lambda: len(runs) > 200)
            server.stop()
            eventually(lambda: "fails to" in caplog.text)
            time.sleep(4)  # longer than the leases
            server.start()
            eventually(lambda: all_done(backend), within=60)
            eventually(lambda: "works again" in caplog.text)
            # Every loop is back, the rescue too: nobody else could take this one.
            backend.register(Job(kind="job", input_ref={"number": 5000}))
            backend.claim(queues=["default"], lease=timedelta(milliseconds=100))
            eventually(lambda: runs[5000] == 1)
            worker.stop()
            worker.join()

    assert set(runs) == {*range(2000), 5000}
    assert caplog.text.count("fails to") == 1
    assert caplog.text.count("works again") == 1


def test_a_worker_that_starts_before_its_server_waits_for_it(
    server: PostgresServer, counting: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    with open_installed(server.url(server.create_database())) as backend:
        job = numbered(1)[0]
        backend.register(job)
        server.stop()
        with RunningWorker(backend, counting):
            eventually(lambda: "fails to" in caplog.text)
            server.start()
            await_state(backend, job, State.DONE)


def test_terminated_connections_lose_nothing(
    postgres_server: PostgresServer, postgres_url: str, counting: Handlers, runs: Counter[int]
) -> None:
    with open_installed(postgres_url) as backend:
        backend.register_many(numbered(1500))
        with RunningWorker(backend, counting, replace(PROMPT, lease=timedelta(seconds=5))):
            killed = 0
            while len(runs) < 1500:
                with postgres_server.connect() as connection:
                    killed += connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                        [postgres_url.rpartition("/")[2]],
                    ).rowcount
                time.sleep(0.1)  # several times while the jobs run
            eventually(lambda: all_done(backend), within=60)

    assert killed > 5
    assert set(runs) == set(range(1500))


@pytest.mark.parametrize("moment", ["before the request", "before the reply"])
def test_a_connection_that_breaks_while_finishing_leaves_no_job_claimed(
    postgres_server: PostgresServer,
    postgres_url: str,
    proxy: Proxy,
    counting: Handlers,
    runs: Counter[int],
    moment: str,
) -> None:
    backend = open_installed(url_through(proxy, postgres_server, postgres_url))
    with backend, open_installed(postgres_url) as direct:
        warm, job = numbered(2)
        direct.register(warm)
        with RunningWorker(backend, counting, replace(PROMPT, lease=timedelta(minutes=5))):
            await_state(direct, warm, State.DONE)  # statements are prepared, connections open

            def fits(request: bytes) -> bool:
                return job.id.bytes in request or str(job.id).encode() in request

            cut = (
                proxy.cut_next_request(fits) if moment == "before the request" else proxy.cut_next_reply(fits)
            )
            direct.register(job)
            cut.wait()
            status = await_state(direct, job, State.DONE)

    assert runs == Counter({0: 1, 1: 1})
    assert status.attempt == 1


def test_a_silent_network_is_noticed_and_survived(
    postgres_server: PostgresServer,
    postgres_url: str,
    proxy: Proxy,
    counting: Handlers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = open_installed(url_through(proxy, postgres_server, postgres_url, timeout="2s"))
    with backend, open_installed(postgres_url) as direct:
        first, second = numbered(2)
        direct.register(first)
        with RunningWorker(backend, counting) as worker:
            await_state(direct, first, State.DONE)
            proxy.blackhole()
            eventually(lambda: "fails to" in caplog.text, within=15)
            direct.register(second)
            proxy.pass_all()
            await_state(direct, second, State.DONE)
            proxy.blackhole()
            worker.stop()
            worker.join(within=30)


def test_sigterm_in_a_silent_network_ends_the_process(
    postgres_server: PostgresServer, postgres_url: str, proxy: Proxy
) -> None:
    with open_installed(postgres_url) as direct:
        job = Job(kind="job")
        direct.register(job)
        url = url_through(proxy, postgres_server, postgres_url, timeout="2s")
        with WorkerProcess(url, "running", "5", "1") as process:
            process.await_word("running")
            proxy.blackhole()
            process.send(signal.SIGTERM)
            assert process.wait(within=30) == 0
        with RunningWorker(direct, _doing_nothing()):
            await_state(direct, job, State.DONE)


def _doing_nothing() -> Handlers:
    handlers = Handlers()
    handlers.handler("job")(nothing)
    return handlers


def test_a_slow_store_lets_no_lease_lapse(
    postgres_server: PostgresServer, postgres_url: str, proxy: Proxy, handlers: Handlers
) -> None:
    running: list[int] = []
    starts: Counter[int] = Counter()
    cancelled: list[str | None] = []

    @handlers.handler("job")
    def handle(input: dict[str, int], context: JobContext) -> None:
        starts[input["number"]] += 1
        running.append(1)
        if context.cancelled.wait(10):
            cancelled.append(context.cancelled.reason)

    options = replace(PROMPT, concurrency=200, batch=200, lease=timedelta(seconds=2))
    backend = open_installed(url_through(proxy, postgres_server, postgres_url))
    with backend, open_installed(postgres_url) as direct:
        # Nor may a second worker, to whom the store answers quickly, ever find an expired lease.
        other = RunningWorker(direct, handlers, replace(options, concurrency=1, batch=1, queues=("none",)))
        with other, RunningWorker(backend, handlers, options):
            first, *rest = numbered(200)
            direct.register(first)
            expiry = eventually(lambda: _expiry(direct, first))
            for _ in range(2):  # the renewals are under way
                expiry = eventually(partial(_expiry, direct, first, after=expiry))
            proxy.delay(0.5)
            direct.register_many(rest)
            eventually(lambda: len(running) >= 200, within=60)
            eventually(lambda: all_done(direct), within=60)

    assert cancelled == []
    assert set(starts.values()) == {1}
    assert {status.attempt for status in direct.jobs(limit=1000)} == {1}


def _expiry(backend: Backend, job: Job, *, after: datetime | None = None) -> datetime | None:
    status = backend.get(job.id)
    expiry = None if status is None else status.lease_expires_at
    return expiry if after is None or (expiry is not None and expiry > after) else None


def test_an_idle_worker_asks_at_most_once_a_second(postgres_programs: Programs, counting: Handlers) -> None:
    statement = re.compile(r"LOG:  (?:execute|statement)")
    logging_server = PostgresServer(
        programs=postgres_programs, fsync=False, settings={"log_statement": "all"}
    )
    with logging_server as server, open_installed(server.url(server.create_database())) as backend:
        backend.register(numbered(1)[0])
        # The rescue, at its 15 seconds, adds one in fifteen; here it stays out, for it comes when it likes.
        with RunningWorker(backend, counting, WorkerOptions(rescue_interval=timedelta(hours=1))):
            eventually(lambda: all_done(backend))
            time.sleep(2)  # what follows the last job
            before = len(statement.findall(server.log.read_text()))
            time.sleep(10)
            after = len(statement.findall(server.log.read_text()))

    assert after - before <= 10

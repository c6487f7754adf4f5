"""An operator stops a job that runs: its handler is told, and it is dead."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator

import pytest

from jobcontract import Backend, Handlers, Job, JobContext, State
from jobcontract.errors import Unsupported
from jobcontract.stopping import NOTE, StopRequests
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer
from tests.worker.conftest import open_installed
from tests.worker.running import RunningWorker, await_state, eventually


@pytest.fixture
def on_redis(redis_server: RedisServer) -> Iterator[Backend]:
    """A namespace of its own."""
    with open_installed(f"{redis_server.url()}?namespace={secrets.token_hex(8)}") as backend:
        yield backend


def test_a_store_that_looks_up_and_notes_can(on_redis: Backend, handlers: Handlers) -> None:
    """As Redis does; which stores have both, their capabilities say."""
    assert on_redis.capabilities.side_doors >= {"lookup", "notes"}
    test_its_handler_is_told_and_the_job_is_dead_not_run_again(on_redis, handlers, "synchronous")


@pytest.mark.parametrize("kind", ["synchronous", "awaited"])
def test_its_handler_is_told_and_the_job_is_dead_not_run_again(
    store: Backend, handlers: Handlers, kind: str
) -> None:
    started = threading.Event()
    reasons: list[str | None] = []

    @handlers.handler("synchronous")
    def wait(input: object, context: JobContext) -> None:
        started.set()
        context.cancelled.wait(60)
        reasons.append(context.cancelled.reason)
        context.check_cancelled()

    @handlers.handler("awaited")
    async def sleep(input: object, context: JobContext) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(context.cancelled.reason)

    job = Job(kind=kind)
    store.register(job)
    with RunningWorker(store, handlers):
        assert started.wait(20)
        assert store.stop(job.id) is State.RUNNING
        status = await_state(store, job, State.DEAD)
    assert reasons == ["an operator stopped it"]
    assert status.attempt == 1
    assert status.last_error == "Stopped: an operator stopped it"


def test_a_handler_that_does_not_listen_ends_as_it_would(memory: Backend, handlers: Handlers) -> None:
    told = threading.Event()

    @handlers.handler("job")
    def finish(input: object, context: JobContext) -> None:
        context.cancelled.wait(60)
        told.set()

    job = Job(kind="job")
    memory.register(job)
    with RunningWorker(memory, handlers):
        eventually(lambda: memory.stop(job.id) is State.RUNNING)
        assert told.wait(20)
        await_state(memory, job, State.DONE)


def test_a_later_run_of_the_job_is_not_meant(memory: Backend, handlers: Handlers) -> None:
    started = threading.Event()
    job = Job(kind="job")
    memory.register(job)
    (claim,) = memory.claim()
    assert memory.stop(job.id) is State.RUNNING
    memory.release([claim])

    @handlers.handler("job")
    def run(input: object, context: JobContext) -> None:
        started.set()
        assert not context.cancelled.wait(3)

    with RunningWorker(memory, handlers):
        assert started.wait(20)
        assert await_state(memory, job, State.DONE).attempt == 2


def test_what_does_not_run_is_left_as_it_is(memory: Backend) -> None:
    job = Job(kind="job")
    memory.register(job)
    assert memory.stop_many([job.id, Job(kind="job").id]) == [State.READY, None]
    assert memory.read_notes([NOTE]).values == {}


def test_requests_are_few_and_forgotten_in_time(memory: Backend) -> None:
    now = memory.read_notes([NOTE]).now
    requests = StopRequests().with_these({str(number): 1 for number in range(1000)}, now)
    assert len(requests.jobs) == 400
    assert len(requests.model_dump_json()) < 64 * 1024
    assert requests.asks_for("999", 1)
    assert not requests.asks_for("999", 2)
    assert StopRequests.read("not ours") == StopRequests.read(None) == StopRequests()


def test_a_store_that_looks_up_nothing_can_t(rabbitmq_server: RabbitServer) -> None:
    url = rabbitmq_server.url(rabbitmq_server.create_vhost())
    with open_installed(url) as backend, pytest.raises(Unsupported, match="lookup"):
        backend.stop(Job(kind="job").id)

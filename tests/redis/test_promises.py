"""Workers on Redis that are killed, stopped, cut off and given rubbish: what the store promised stands."""

from __future__ import annotations

import signal
from collections.abc import Generator
from dataclasses import replace

import pytest
from jobcontract_redis import RedisDriver

from jobcontract import Backend, Handlers, Job, State
from jobcontract.errors import StoreUnavailable
from tests.redis.stores import HOUR, QUEUE, counts, open_store, stored, until
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.worker.processes import WorkerProcess
from tests.worker.running import PROMPT, RunningWorker, await_state, eventually


@pytest.fixture
def url(redis_server: RedisServer, namespace: str) -> str:
    """Where `store` is."""
    return f"{redis_server.url()}?namespace={namespace}"


@pytest.fixture
def backend(store: RedisDriver) -> Backend:
    """`store` as applications hold it."""
    return Backend("redis", lambda: store)


@pytest.fixture
def runs() -> list[object]:
    """The inputs of the jobs that ran here."""
    return []


@pytest.fixture
def handlers(runs: list[object]) -> Handlers:
    """A handler that does nothing but say so."""
    handlers = Handlers()
    handlers.handler("job")(runs.append)
    return handlers


# -- 7, 10: processes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["claimed", "running", "finished"])
def test_a_worker_that_is_killed_loses_no_job(
    url: str, backend: Backend, handlers: Handlers, runs: list[object], point: str
) -> None:
    job = Job(kind="job", input_ref={"number": 7})
    backend.register(job)
    with WorkerProcess(url, point, "1.0") as victim:
        victim.await_word(point)
        victim.kill()
    with RunningWorker(backend, handlers):
        status = await_state(backend, job, State.DONE)
    assert runs == [{"number": 7}]
    assert status.attempt == 2
    assert "lease of attempt 1 ran out" in status.last_error


def test_a_stopped_worker_that_goes_on_later_changes_nothing(
    url: str, backend: Backend, handlers: Handlers
) -> None:
    job = Job(kind="job")
    backend.register(job)
    with WorkerProcess(url, "finished", "1.0") as stale:
        stale.await_word("finished")
        stale.send(signal.SIGSTOP)
        with RunningWorker(backend, handlers):
            await_state(backend, job, State.DONE)
        before = backend.get(job.id)
        stale.send(signal.SIGCONT)
        stale.go_on()
        stale.await_log("lost")
        assert backend.get(job.id) == before


def test_sigterm_gives_back_what_was_not_finished_and_burns_no_attempt(
    url: str, backend: Backend, store: RedisDriver
) -> None:
    job = Job(kind="job", max_attempts=1)
    backend.register(job)
    with WorkerProcess(url, "running", "300", "0") as process:
        process.await_word("running")
        process.send(signal.SIGTERM)
        eventually(lambda: counts(store) == {"ready": 1})
    (claimed,) = store.claim([QUEUE], 1, HOUR)
    assert (claimed.lease.attempt, claimed.lease.refunded) == (2, 1)


# -- 11: restarts and silence ----------------------------------------------------------------------------


@pytest.fixture
def worked_on(own_server: RedisServer) -> Generator[Backend]:
    """A store whose server a test may kill, as applications hold it."""
    driver = open_store(own_server.url(), timeout="1s")
    with Backend("redis", lambda: driver) as backend:
        yield backend


def test_a_worker_survives_a_long_outage(
    own_server: RedisServer, worked_on: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Job(kind="job"), Job(kind="job")
    with RunningWorker(worked_on, handlers) as worker:
        worked_on.register(first)
        await_state(worked_on, first, State.DONE)
        own_server.kill()
        with pytest.raises(StoreUnavailable):
            worked_on.register(second)
        until(lambda: "fails to" in caplog.text, "the worker does not meet the outage")
        own_server.start()
        worked_on.register(second)
        await_state(worked_on, second, State.DONE)
        assert worker.runs


def test_the_next_call_after_a_restart_works(own_server: RedisServer, worked_on: Backend) -> None:
    worked_on.register(Job(kind="job"))
    own_server.restart()
    assert len(worked_on.claim()) == 1
    own_server.kill()
    own_server.start()
    assert worked_on.register(Job(kind="job")).created


def test_a_worker_notices_a_half_open_connection(
    redis_server: RedisServer, proxy: Proxy, store: RedisDriver, namespace: str, handlers: Handlers
) -> None:
    url = redis_server.url(host=proxy.host, port=proxy.port)
    driver = open_store(url, namespace=namespace, timeout="500ms")
    job = Job(kind="job")
    with Backend("redis", lambda: driver) as backend, RunningWorker(backend, handlers):
        until(lambda: proxy.connections >= 2, "the worker does not wait yet")
        proxy.blackhole()
        store.register([job.to_record()])
        proxy.reset_all()
        proxy.pass_all()
        until(lambda: stored(store, job.id).state is State.DONE, "the worker does not come back")


# -- 12: rubbish -----------------------------------------------------------------------------------------


def test_one_poisoned_job_never_stops_the_others(
    redis_server: RedisServer, backend: Backend, namespace: str
) -> None:
    handlers = Handlers()

    @handlers.handler("job")
    def work(input: dict[str, int]) -> None:
        if input["number"] == 3:
            raise RuntimeError("a bad one")

    jobs = [Job(kind="job", input_ref={"number": number}, max_attempts=1) for number in range(10)]
    unknown = Job(kind="nobody-knows-it")
    backend.register_many([unknown, *jobs])
    prefix = f"{{{namespace}:{QUEUE}}}:b:"
    redis_server.ask("SET", f"{prefix}{jobs[0].id}", "rubbish")
    redis_server.ask("DEL", f"{prefix}{jobs[1].id}")
    huge = "9" * 5000
    redis_server.ask("SET", f"{prefix}{jobs[2].id}", f'1 1 0 1 job 0 0\n{{"number":{huge}}}')
    with RunningWorker(backend, handlers, replace(PROMPT, concurrency=2)):
        for job in jobs[4:]:
            await_state(backend, job, State.DONE)
        for job in jobs[:4]:
            await_state(backend, job, State.DEAD)
    problems = {number: status for number in range(4) if (status := backend.get(jobs[number].id))}
    assert "can't be read" in (problems[0].last_error or "") or "not valid" in (problems[0].last_error or "")
    assert "body of the job is missing" in (problems[1].last_error or "")
    assert "Exceeds the limit" in (problems[2].last_error or "")
    assert "a bad one" in (problems[3].last_error or "")
    assert backend.get(unknown.id) is not None

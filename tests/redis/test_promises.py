"""Workers on Redis that are killed, stopped, cut off and given rubbish: what the store promised stands."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import pytest
from jobcontract_redis import RedisDriver

from jobcontract import Backend, Handlers, Job, State
from jobcontract.contract import Lease
from jobcontract.errors import StoreUnavailable
from tests.redis.stores import HOUR, QUEUE, counts, leases_of, open_store, records, stored, until
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


# -- 1, 3, 4, 5: a history under faults ------------------------------------------------------------------


class Event(NamedTuple):
    """A lease that was given out, by the server's clock."""

    attempt: int
    begins: datetime
    ends: datetime
    token: str


class History:
    """What producers and workers were told, whatever happened to their connections."""

    LEASE = timedelta(seconds=1)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: dict[str, str] = {}
        """By idempotency key, the id that the store answered with."""
        self.contradictions: list[str] = []
        self.leases: defaultdict[str, list[Event]] = defaultdict(list)
        self.completed: Counter[str] = Counter()

    def registered(self, key: str, job_id: str) -> None:
        with self._lock:
            before = self.acknowledged.setdefault(key, job_id)
            if before != job_id:
                self.contradictions.append(f"key {key} was held by {before}, then by {job_id}")

    def claimed(self, leases: list[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self.leases[lease.job_id].append(
                    Event(lease.attempt, lease.expires_at - self.LEASE, lease.expires_at, lease.token)
                )

    def settled(self, lease: Lease) -> None:
        with self._lock:
            self.completed[lease.job_id] += 1

    def has_completed(self, count: int) -> bool:
        """Whether so many jobs were completed."""
        return len(self.completed) >= count

    def check(self, store: RedisDriver) -> None:
        """Every job that was acknowledged ended once, under one key, and nobody held it beside another."""
        assert self.contradictions == []
        assert len(set(self.acknowledged.values())) == len(self.acknowledged)
        for job_id in self.acknowledged.values():
            assert stored(store, job_id).state is State.DONE
        assert max(self.completed.values()) == 1
        for events in self.leases.values():
            events.sort()
            assert len({event.token for event in events}) == len(events)
            for earlier, later in pairwise(events):
                assert later.attempt > earlier.attempt
                assert later.begins >= earlier.ends


@pytest.mark.parametrize("fault", ["resets", "restarts", "forgotten scripts"])
def test_a_history_under_faults(own_server: RedisServer, fault: str) -> None:
    history, over = History(), threading.Event()
    with Proxy(own_server.address) as proxy:
        url = own_server.url(host=proxy.host, port=proxy.port)
        store = open_store(url, timeout="2s")
        actors = [
            threading.Thread(
                target=_repeat, args=[over, act, store, history, random.Random(number)], daemon=True
            )
            for number, act in enumerate([_produce, _produce, _work, _work, _work])
        ]
        for actor in actors:
            actor.start()
        for number in range(12):
            enough = partial(history.has_completed, 100 * (number + 1))
            until(enough, f"after {number} faults nothing goes on")
            match fault:
                case "resets":
                    proxy.reset_all()
                case "restarts":
                    own_server.kill()
                    own_server.start()
                case _:
                    own_server.ask("SCRIPT FLUSH")
        over.set()
        for actor in actors:
            actor.join()
        until(lambda: _drain(store, history), "the jobs that were left are not drained")
        history.check(store)
        store.close()


Act = Callable[[RedisDriver, History, random.Random], None]


def _repeat(
    over: threading.Event, act: Act, store: RedisDriver, history: History, chance: random.Random
) -> None:
    while not over.is_set():
        try:
            act(store, history, chance)
        except StoreUnavailable:
            over.wait(0.01)


def _produce(store: RedisDriver, history: History, chance: random.Random) -> None:
    """Register jobs under keys that others use too; repeat it with the same ids until it is acknowledged."""
    made = [record._replace(idempotency_key=f"key {chance.randrange(100_000)}") for record in records(10)]
    made = list({record.idempotency_key: record for record in made}.values())
    for _ in range(50):
        try:
            answers = store.register(made)
        except StoreUnavailable:
            continue
        for record, answer in zip(made, answers, strict=True):
            history.registered(record.idempotency_key or "", str(answer.job_id))
        return


def _work(store: RedisDriver, history: History, chance: random.Random) -> None:
    leases = leases_of(store.claim([QUEUE], 10, History.LEASE))
    history.claimed(leases)
    store.rescue(100)
    kept = [lease for lease in leases if chance.random() > 0.02]  # the others are forgotten, as by a crash
    if kept:
        for lease, verdict in zip(kept, store.complete(kept), strict=True):
            if verdict.applied:
                history.settled(lease)


def _drain(store: RedisDriver, history: History) -> bool:
    store.rescue(1000)
    leases = leases_of(store.claim([QUEUE], 1000, History.LEASE))
    history.claimed(leases)
    if leases:
        for lease, verdict in zip(leases, store.complete(leases), strict=True):
            if verdict.applied:
                history.settled(lease)
    return set(counts(store)) == {"done"}


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

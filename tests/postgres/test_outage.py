"""A server that is stopped, restarted or silent: each call ends in time, and the next works by itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from jobcontract.contract import Job
from jobcontract.errors import StoreError, StoreUnavailable
from tests.postgres.conftest import installed
from tests.postgres.stores import LEASE, NOTHING, Store, jobs, open_store, until
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy

TIMEOUT = 2.0  # of `own_store`
AT_MOST = TIMEOUT + 3.0  # on a busy machine

CALLS: dict[str, Callable[[Store], object]] = {
    "register": lambda store: store.register(*jobs(1)),
    "claim": lambda store: store.claim(),
    "rescue": lambda store: store.driver.rescue(10),
    "stats": lambda store: store.driver.stats(),
    "prune": lambda store: store.driver.prune(timedelta(days=1), [], 10),
    "pause": lambda store: store.driver.pause("other"),
}


def seconds_until_unavailable(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable):
        call()
    return time.monotonic() - begun


def available(store: Store) -> bool:
    """Whether a call works."""
    try:
        store.claim()
    except StoreUnavailable:
        return False
    return True


@pytest.mark.parametrize("name", CALLS)
def test_a_stopped_server_is_noticed_within_the_timeout(
    own_server: PostgresServer, own_store: Store, name: str
) -> None:
    """SIGSTOP: the kernel still takes what is sent, and nobody answers. No timeout of the server can fire."""
    call = CALLS[name]
    call(own_store)
    with own_server.paused():
        assert seconds_until_unavailable(lambda: call(own_store)) < AT_MOST
        assert seconds_until_unavailable(lambda: call(own_store)) < AT_MOST, "a new connection is bounded too"
    call(own_store)


def test_nobody_waits_longer_for_a_stopped_server_than_for_itself(
    own_server: PostgresServer, own_store: Store
) -> None:
    """Waiting for a free connection counts towards the deadline."""
    own_store.claim()
    with own_server.paused():
        spent: list[float] = []
        threads = [
            threading.Thread(target=lambda: spent.append(seconds_until_unavailable(own_store.claim)))
            for _ in range(25)  # more than the pool has connections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(spent) == 25
    assert max(spent) < AT_MOST


def test_a_silent_network_is_noticed_and_overcome(own_server: PostgresServer) -> None:
    """A half-open connection: neither end ever hears that the other has gone."""
    with (
        Proxy(own_server.address) as proxy,
        installed(own_server.url(host=proxy.host, port=proxy.port), timeout="2s") as store,
    ):
        proxy.blackhole()
        assert seconds_until_unavailable(store.claim) < AT_MOST
        assert seconds_until_unavailable(store.claim) < AT_MOST
        proxy.pass_all()
        until(lambda: available(store), "the store is available again")


def test_a_restart_costs_no_call_an_error(own_server: PostgresServer, own_store: Store) -> None:
    """Each of the connections in the pool is broken by it; none of them is lent."""
    fill_the_pool(own_store, 8)
    own_server.restart()
    for _ in range(10):
        own_store.claim()


def fill_the_pool(store: Store, size: int) -> None:
    """Use `size` connections at once."""
    sessions = [store.driver.sessions.session() for _ in range(size)]
    for session in sessions:
        session.__enter__()
    for session in sessions:
        session.__exit__(None, None, None)


def test_terminated_sessions_under_load_lose_no_job(own_server: PostgresServer, own_store: Store) -> None:
    registered: list[Job] = []
    done: list[str] = []
    stop = threading.Event()

    def registered_at_least(count: int) -> bool:
        return len(registered) >= count

    def produce() -> None:
        while not stop.is_set():
            (made,) = jobs(1)
            while True:  # safe to repeat with the same job
                try:
                    own_store.register(made)
                except StoreUnavailable:
                    continue
                break
            registered.append(made)

    def work() -> None:
        while not stop.is_set() or own_store.driver.stats():
            try:
                for each in own_store.claim(5, lease=timedelta(seconds=1)):
                    if own_store.complete(each.lease) == [True]:
                        done.append(each.record.id)
                own_store.driver.rescue(100)
            except StoreUnavailable:
                continue

    threads = [threading.Thread(target=each) for each in (produce, produce, work, work)]
    for thread in threads:
        thread.start()
    with own_server.connect() as connection:
        for _ in range(20):
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'jobcontract' AND pid <> pg_backend_pid()"
            )
            count = len(registered)
            until(partial(registered_at_least, count + 5), "producers go on")
    stop.set()
    for thread in threads:
        thread.join()
    finished = finished_ids(own_server)
    assert finished == {str(made.id) for made in registered}
    assert len(done) == len(set(done))


def finished_ids(server: PostgresServer) -> set[str]:
    return {str(job_id) for (job_id,) in server.execute("SELECT id FROM jobcontract.done_jobs")}


def test_a_waiter_hears_of_new_jobs_after_the_listeners_session_was_terminated(
    own_server: PostgresServer, own_store: Store
) -> None:
    assert own_store.driver.wait(["default"], timedelta(milliseconds=200)) is False
    own_server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE query LIKE '%next_due%' AND pid <> pg_backend_pid()"
    )
    heard: list[bool] = []
    waiting = threading.Thread(
        target=lambda: heard.append(own_store.driver.wait(["default"], timedelta(minutes=1)))
    )
    waiting.start()
    with installed(own_server.url()) as producer:
        producer.register(*jobs(1))
    waiting.join(30)
    assert heard == [True]


def test_a_wait_survives_a_stopped_server_and_keeps_its_time(
    own_server: PostgresServer, own_store: Store
) -> None:
    own_store.driver.wait(["default"], NOTHING)
    with own_server.paused():
        begun = time.monotonic()
        own_store.driver.wait(["default"], timedelta(seconds=1))
        assert time.monotonic() - begun < 2.0


def test_a_server_that_is_down_is_said_at_once_and_by_its_address(own_server: PostgresServer) -> None:
    store = open_store(own_server.url())
    own_server.stop()
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"can't connect to PostgreSQL at 127.0.0.1:{own_server.port}"):
        store.claim()
    assert time.monotonic() - begun < 5, "nobody waits for the timeout to learn that the port is closed"


def test_a_full_server_is_worth_another_try(own_server: PostgresServer, own_store: Store) -> None:
    """psycopg gives no code for "too many clients already"."""
    holding: list[psycopg.Connection] = []
    with contextlib.suppress(psycopg.OperationalError):
        while True:
            holding.append(own_server.connect())
    late = open_store(own_server.url())
    with pytest.raises(StoreUnavailable, match="too many clients"):
        late.claim()
    for connection in holding:
        connection.close()
    until(lambda: available(late), "a place is free")
    late.driver.close()


def test_what_a_call_left_behind_on_the_server_is_cancelled(own_server: PostgresServer) -> None:
    """A registration that gave up waiting for a key must not leave a session that goes on waiting."""
    with (
        installed(own_server.url(), timeout="500ms") as store,
        own_server.connect(autocommit=False) as holder,
    ):
        holder.execute(
            "INSERT INTO jobcontract.job_keys VALUES ('default', 'document 7', gen_random_uuid(), '\\x00')"
        )
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.5 s"):
            store.register(*jobs(1, idempotency_key="document 7"))
        until(
            lambda: own_server.execute("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)],
            "nobody waits any more",
        )


def test_a_pool_that_is_too_small_says_so(own_server: PostgresServer) -> None:
    with installed(own_server.url(), pool_size="1", timeout="200ms") as store:
        with store.driver.sessions.session(), pytest.raises(StoreUnavailable, match="raise pool_size"):
            store.claim()
        store.claim()


def test_a_closed_driver_refuses_calls_and_closes_twice(own_server: PostgresServer) -> None:
    with installed(own_server.url()) as store:
        store.driver.close()
        with pytest.raises(StoreError, match="closed"):
            store.claim()
        assert store.driver.wait(["default"], LEASE) is True
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'jobcontract'"
    until(lambda: own_server.execute(sessions) == [(0,)], "its sessions have ended")

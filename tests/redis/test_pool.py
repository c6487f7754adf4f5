"""Connections: shared, bounded, dropped when they broke, and never out of step with the answers."""

from __future__ import annotations

import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType

import pytest
from jobcontract_redis import RedisDriver

from jobcontract.errors import StoreError, StoreUnavailable
from tests.redis.stores import HOUR, QUEUE, connect, counts, leases_of, open_store, records, until
from tests.servers.process import DEFAULT_PASSWORD, free_port
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer


def connections(server: RedisServer) -> int:
    """How many clients the server has beside the one that asks."""
    return int(server.information("clients")["connected_clients"]) - 1


def test_threads_share_a_bounded_number_of_connections(own_server: RedisServer) -> None:
    store = open_store(own_server.url(), pool_size=3)
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(store.register, [records(5) for _ in range(200)]))
    assert counts(store) == {"ready": 1000}
    assert 1 <= connections(own_server) <= 3
    store.close()


def test_a_call_that_gets_no_connection_says_which_setting_helps(own_server: RedisServer) -> None:
    store = open_store(own_server.url(), pool_size=1, timeout="300ms")
    with own_server.paused(), ThreadPoolExecutor(2) as threads:
        both = [threads.submit(store.stats) for _ in range(2)]
        said = sorted(str(each.exception()) for each in both)
    assert "did not answer" in said[0]
    assert "raise pool_size" in said[1] or "did not answer" in said[1]
    assert store.stats() == []
    store.close()


def test_connections_that_were_cut_while_idle_are_not_used(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(store.register, [records(1) for _ in range(50)]))
    own_server.ask("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")
    until(lambda: connections(own_server) == 0, "they are not cut")
    assert store.register(records(1))[0].created
    store.close()


def test_one_driver_after_close_is_closed(redis_server: RedisServer, store: RedisDriver) -> None:
    store.register(records(1))
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.stats()


def test_a_closed_driver_holds_no_connection(own_server: RedisServer) -> None:
    store = open_store(own_server.url())
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(store.register, [records(1) for _ in range(20)]))
    store.close()
    until(lambda: connections(own_server) == 0, "a connection was left open")


class Interrupted(BaseException):
    """What Ctrl-C is to an application."""


@contextmanager
def interrupted_after(seconds: float) -> Generator[None]:
    """Raise `Interrupted` in this thread, wherever it is then."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_answer_that_nobody_read_is_not_taken_for_the_next_one(
    store: RedisDriver, proxied: RedisDriver, proxy: Proxy
) -> None:
    assert proxied.claim([QUEUE], 4, HOUR) == []  # the server knows the script now
    store.register(records(10))
    proxy.delay(0.5)
    with pytest.raises(Interrupted), interrupted_after(0.1):
        proxied.claim([QUEUE], 4, HOUR)
    leases = leases_of(proxied.claim([QUEUE], 10, HOUR))  # before the answer to the first has come
    assert len(leases) == 6
    assert counts(store) == {"running": 10}


def test_a_server_that_is_not_there_is_one_clear_sentence() -> None:
    port = free_port()
    store = connect(f"redis://:secret@127.0.0.1:{port}/0")
    with pytest.raises(StoreUnavailable, match=f"Redis at 127.0.0.1:{port} can't be reached") as failed:
        store.stats()
    assert "secret" not in str(failed.value)
    assert failed.value.__cause__ is None
    store.close()


def test_a_host_that_does_not_exist_is_one_clear_sentence() -> None:
    store = connect("redis://:secret@no-such-host.invalid/0")
    with pytest.raises(StoreUnavailable, match=r"no-such-host\.invalid:6379 can't be reached"):
        store.stats()
    store.close()


def test_too_many_clients_is_worth_another_try(own_server: RedisServer) -> None:
    store = open_store(own_server.url(), timeout="1s")
    store.close()
    own_server.ask("CONFIG SET", "maxclients", "1")
    with own_server.client() as other:
        other.get("any key")  # connects
        late = connect(own_server.url(), timeout="1s")
        with pytest.raises(StoreUnavailable):
            late.stats()
    until(lambda: works(late), "it does not come in when the other has left")
    late.close()


def works(store: RedisDriver) -> bool:
    try:
        store.stats()
    except StoreUnavailable:
        return False
    return True


def test_a_command_that_no_redis_of_ours_knows_is_an_error_without_the_password(
    own_server: RedisServer,
) -> None:
    own_server.ask("CONFIG SET", "maxmemory", "0")
    store = open_store(own_server.url())
    own_server.ask("SET", f"{{jobcontract:{QUEUE}}}:ready", "not a sorted set")
    with pytest.raises(StoreError, match=r"refused a command: .*WRONGTYPE") as failed:
        store.register(records(1))
    assert DEFAULT_PASSWORD not in str(failed.value)
    store.close()

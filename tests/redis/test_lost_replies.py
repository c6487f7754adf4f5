"""A reply is cut after the server ran the script: nothing happens twice, no job is stranded for good."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest
import redis
from jobcontract_redis import RedisDriver
from jobcontract_redis.scripts import (
    CANCEL,
    CLAIM,
    COMPLETE,
    EXTEND,
    FAIL,
    PRUNE,
    REGISTER,
    RELEASE,
    REQUEUE,
    RESCUE,
    Script,
)
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobcontract.contract import State
from jobcontract.errors import StoreUnavailable
from tests.redis.stores import (
    HOUR,
    NOTHING,
    QUEUE,
    connect,
    counts,
    failure,
    leases_of,
    records,
    state_of,
    stored,
    until,
)
from tests.servers.proxy import Proxy, contains
from tests.servers.redis import RedisServer

SHORT = timedelta(milliseconds=50)


@pytest.fixture
def cut(proxy: Proxy, redis_server: RedisServer) -> Callable[[Script, Callable[[], object]], None]:
    """Let a call lose the reply to its script, and see that the script ran once and the call said so."""

    def lose_reply(script: Script, call: Callable[[], object]) -> None:
        load(redis_server, script)
        before = _runs(redis_server)
        made = proxy.cut_next_reply(contains(script.digest))
        with pytest.raises(StoreUnavailable):
            call()
        made.wait()
        assert _runs(redis_server) == before + 1, "the script was sent again"

    return lose_reply


def load(server: RedisServer, script: Script) -> None:
    """Make the script known, so that it runs when it is first called."""
    with server.client() as client:
        cast(Any, client).script_load(script.source)


def _runs(server: RedisServer) -> int:
    """How many scripts the server has run so far."""
    statistics = server.information("commandstats")
    return sum(statistics.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


def test_register(store: RedisDriver, proxied: RedisDriver, cut: Any) -> None:
    made = records(100)
    cut(REGISTER, lambda: proxied.register(made))
    assert counts(store) == {"ready": 100}
    again = proxied.register(made)
    assert [str(each.job_id) for each in again] == [each.id for each in made]
    assert not any(each.created or each.conflict for each in again)
    assert counts(store) == {"ready": 100}


def test_register_with_keys(store: RedisDriver, proxied: RedisDriver, cut: Any) -> None:
    made = [*records(1, idempotency_key="a"), *records(1, idempotency_key="b")]
    cut(REGISTER, lambda: proxied.register(made))
    again = proxied.register(made)
    assert [(str(each.job_id), each.created) for each in again] == [(each.id, False) for each in made]
    assert counts(store) == {"ready": 2}


def test_claim(store: RedisDriver, proxied: RedisDriver, cut: Any) -> None:
    made = records(10)
    store.register(made)
    cut(CLAIM, lambda: proxied.claim([QUEUE], 4, SHORT))
    assert counts(store) == {"ready": 6, "running": 4}
    stranded = [each.id for each in made if state_of(store, each.id) is State.RUNNING]
    assert [stored(store, each).attempt for each in stranded] == [1] * 4
    assert len(store.claim([QUEUE], 100, HOUR)) == 6
    rescued = 0

    def all_rescued() -> bool:
        nonlocal rescued
        rescued += store.rescue(100).ready
        return rescued == 4

    until(all_rescued, "they are stranded")
    assert sorted(lease.job_id for lease in leases_of(store.claim([QUEUE], 100, HOUR))) == sorted(stranded)


def test_a_client_that_retries_by_itself_would_claim_twice(
    store: RedisDriver, redis_server: RedisServer, proxy: Proxy, namespace: str
) -> None:
    """The same fault, and redis-py with the retries that it makes when nobody forbids them."""
    load(redis_server, CLAIM)
    store.register(records(10))
    proxy.cut_next_reply(contains(CLAIM.digest))
    prefix = f"{{{namespace}:{QUEUE}}}:"
    arguments = [*(prefix + name for name in CLAIM.keys), prefix, 4, 60_000, "nonce"]
    with redis.Redis(
        host=proxy.host,
        port=proxy.port,
        password=redis_server.password,
        retry=Retry(NoBackoff(), 3),
        retry_on_error=[redis.ConnectionError],
    ) as client:
        cast(Any, client).execute_command("EVALSHA", CLAIM.digest, len(CLAIM.keys), *arguments)
    assert counts(store) == {"ready": 2, "running": 8}


def test_complete(store: RedisDriver, proxied: RedisDriver, cut: Any) -> None:
    store.register(records(5))
    leases = leases_of(store.claim([QUEUE], 3, HOUR))
    cut(COMPLETE, lambda: proxied.complete(leases))
    assert counts(store) == {"ready": 2, "done": 3}
    assert not any(verdict.applied for verdict in proxied.complete(leases))
    assert counts(store) == {"ready": 2, "done": 3}


def test_fail(store: RedisDriver, proxied: RedisDriver, cut: Any) -> None:
    store.register(records(2, max_attempts=2))
    leases = leases_of(store.claim([QUEUE], 2, HOUR))
    failures = [failure(leases[0], retry_in=HOUR), failure(leases[1], permanent=True)]
    cut(FAIL, lambda: proxied.fail(failures))
    assert counts(store) == {"scheduled": 1, "dead": 1}
    assert not any(verdict.applied for verdict in proxied.fail(failures))
    assert counts(store) == {"scheduled": 1, "dead": 1}
    assert stored(store, leases[0].job_id).attempt == 1


def test_extend(store: RedisDriver, proxied: RedisDriver, cut: Any) -> None:
    store.register(records(1))
    (lease,) = leases_of(store.claim([QUEUE], 1, timedelta(minutes=1)))
    cut(EXTEND, lambda: proxied.extend([lease], HOUR))
    expires = stored(store, lease.job_id).lease_expires_at
    assert expires is not None
    assert expires - lease.expires_at > timedelta(minutes=58)
    assert proxied.complete([lease])[0].applied


def test_release(store: RedisDriver, proxied: RedisDriver, cut: Any) -> None:
    store.register(records(1, max_attempts=1))
    (lease,) = leases_of(store.claim([QUEUE], 1, HOUR))
    cut(RELEASE, lambda: proxied.release([lease], NOTHING))
    assert not proxied.release([lease], NOTHING)[0].applied
    (again,) = leases_of(store.claim([QUEUE], 1, HOUR))
    assert (again.attempt, again.refunded) == (2, 1)


def test_rescue(store: RedisDriver, proxied: RedisDriver, proxy: Proxy, redis_server: RedisServer) -> None:
    load(redis_server, RESCUE)
    store.register(records(2, max_attempts=1))
    leases = leases_of(store.claim([QUEUE], 2, SHORT))
    store.release(leases[:1], NOTHING)
    (lease,) = leases_of(store.claim([QUEUE], 1, SHORT))
    until(lambda: _expired(store) == 2, "the leases do not run out")
    proxy.cut_next_reply(contains(RESCUE.digest))
    with pytest.raises(StoreUnavailable):
        proxied.rescue(100)
    assert counts(store) == {"dead": 2}
    assert tuple(proxied.rescue(100)) == (0, 0)
    assert stored(store, lease.job_id).attempt == 2


def test_cancel_and_requeue(store: RedisDriver, proxied: RedisDriver, cut: Any) -> None:
    (made,) = records(1)
    store.register([made])
    cut(CANCEL, lambda: proxied.cancel([made.id]))
    assert proxied.cancel([made.id]) == [State.CANCELLED]
    cut(REQUEUE, lambda: proxied.requeue([made.id]))
    assert proxied.requeue([made.id]) == [State.READY]
    assert counts(store) == {"ready": 1}


def test_prune(store: RedisDriver, proxied: RedisDriver, cut: Any) -> None:
    store.register(records(3))
    store.complete(leases_of(store.claim([QUEUE], 2, HOUR)))
    cut(PRUNE, lambda: proxied.prune(NOTHING, {State.DONE}, 100))
    assert proxied.prune(NOTHING, {State.DONE}, 100) == 0
    assert counts(store) == {"ready": 1}


def test_a_request_that_never_arrived_changes_nothing(
    store: RedisDriver, proxied: RedisDriver, proxy: Proxy
) -> None:
    store.register(records(3))
    proxy.cut_next_request(contains(CLAIM.digest))
    with pytest.raises(StoreUnavailable):
        proxied.claim([QUEUE], 3, HOUR)
    assert counts(store) == {"ready": 3}
    assert len(proxied.claim([QUEUE], 3, HOUR)) == 3


def test_a_server_that_went_silent_is_noticed_within_the_timeout(
    redis_server: RedisServer, proxy: Proxy, store: RedisDriver, namespace: str
) -> None:
    client = connect(redis_server.url(host=proxy.host, port=proxy.port), namespace=namespace, timeout="200ms")
    client.register(records(1))
    proxy.blackhole()
    with pytest.raises(StoreUnavailable, match="did not answer"):
        client.claim([QUEUE], 1, HOUR)
    with pytest.raises(StoreUnavailable):
        client.stats()  # nor does it answer a new connection
    proxy.reset_all()  # what was held back is gone
    proxy.pass_all()
    assert len(client.claim([QUEUE], 1, HOUR)) == 1
    client.close()


def _expired(store: RedisDriver) -> int:
    return sum(row.expired for row in store.stats())

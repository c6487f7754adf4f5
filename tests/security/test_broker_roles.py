"""Each role of docs/security.md does its work on Redis and RabbitMQ with exactly what stands there."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from jobcontract import Backend, Claim, Job, State, get_backend
from jobcontract.config import Settings
from jobcontract.doctor import examine
from jobcontract.errors import StoreError
from tests.security.grants import grants
from tests.security.relaying import relays
from tests.servers.binaries import Programs
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

As = Callable[[str], Backend]
UrlOf = Callable[[str], str]


def refused(operation: Callable[[], object]) -> None:
    with pytest.raises(StoreError, match=r"does not permit|does not let|may not|refused|ACCESS_REFUSED"):
        operation()


# -- Redis -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redis(redis_programs: Programs) -> Iterator[RedisServer]:
    """A server for users of the tests' own."""
    with RedisServer(programs=redis_programs) as server:
        yield server


@pytest.fixture
def redis_owner(redis: RedisServer) -> Iterator[Backend]:
    """Everything is permitted to it."""
    redis.ask("FLUSHALL")
    with get_backend(redis.url(), settings=Settings()) as backend:
        backend.install()
        yield backend


@pytest.fixture
def redis_url_of(redis: RedisServer, redis_owner: Backend) -> Iterator[UrlOf]:
    """The URL of a new user with what a role is given."""
    del redis_owner  # it has installed
    with ExitStack() as stack:

        def url_of(role: str) -> str:
            user = f"{role}{secrets.token_hex(4)}"
            redis.ask("ACL SETUSER", user, "reset", "on", f">{user}", *grants("acl")[role].split())
            stack.callback(redis.ask, "ACL DELUSER", user)
            return f"redis://{user}:{user}@{redis.host}:{redis.port}/0"

        yield url_of


@pytest.fixture
def as_redis(redis_url_of: UrlOf) -> Iterator[As]:
    """A backend that connects as a user with what a role is given."""
    with ExitStack() as stack:
        yield lambda role: stack.enter_context(get_backend(redis_url_of(role), settings=Settings()))


def test_a_redis_relay_is_a_producer(tmp_path: Path, redis: RedisServer, redis_url_of: UrlOf) -> None:
    relays(tmp_path, redis.url(), redis_url_of("producer"))


def test_a_redis_producer_registers(as_redis: As) -> None:
    producer = as_redis("producer")
    made = Job(kind="k", idempotency_key="a", run_at=None)
    assert producer.register(made).created
    assert not producer.register(made).created
    assert not producer.register(Job(kind="k", idempotency_key="a")).created
    assert "retention" in " ".join(producer.capabilities.notes), "it may read what its durability rests on"
    assert not any("may not read" in note for note in producer.capabilities.notes)
    refused(producer.claim)
    refused(lambda: producer.prune(timedelta()))


def test_a_redis_worker_runs_jobs(as_redis: As, redis_owner: Backend) -> None:
    worker = as_redis("worker")
    redis_owner.register_many([Job(kind="k", max_attempts=1) for _ in range(5)])
    done, failed, released, extended, lost = worker.claim(limit=5)
    worker.complete(done)
    assert worker.fail(failed, "no").state is State.DEAD
    assert worker.release([released])[0].applied
    worker.extend(extended)
    worker.extend(lost, timedelta(milliseconds=1))
    worker.rescue(100)
    worker.wait(timeout=timedelta(milliseconds=50))
    assert worker.stats()
    assert worker.get(done.job.id) is not None


def test_a_redis_operator_looks_after_it(as_redis: As, redis_owner: Backend) -> None:
    operator = as_redis("operator")
    made = Job(kind="k")
    redis_owner.register(made)
    assert [status.job.id for status in operator.jobs() if status.job] == [made.id]
    assert operator.cancel(made.id) is State.CANCELLED
    assert operator.requeue(made.id) is State.READY
    operator.pause("default")
    operator.resume("default")
    (claim,) = redis_owner.claim()
    redis_owner.complete(claim)
    assert operator.stats()[0].done == 1
    assert operator.prune(timedelta()) == 1
    assert examine(operator) == []


@pytest.mark.parametrize("role", ["producer", "worker", "operator"])
def test_no_redis_user_leaves_the_namespace(as_redis: As, redis: RedisServer, role: str) -> None:
    as_redis(role)  # the grants are those of the namespace "jobcontract"
    user = f"{role}{secrets.token_hex(4)}"
    redis.ask("ACL SETUSER", user, "reset", "on", f">{user}", *grants("acl")[role].split())
    url = f"redis://{user}:{user}@{redis.host}:{redis.port}/0?namespace=other"
    with get_backend(url, settings=Settings()) as elsewhere:
        refused(elsewhere.install)


# -- RabbitMQ ----------------------------------------------------------------------------------------


@pytest.fixture
def rabbit_owner(rabbitmq_server: RabbitServer) -> Iterator[tuple[str, Backend]]:
    """A virtual host, and the backend of whoever configures it."""
    vhost = rabbitmq_server.create_vhost()
    url = f"{rabbitmq_server.url(vhost)}?priority_levels=1"
    with get_backend(url, settings=Settings()) as backend:
        backend.install()
        yield vhost, backend
    rabbitmq_server.delete_vhost(vhost)


@pytest.fixture
def rabbit_url_of(rabbitmq_server: RabbitServer, rabbit_owner: tuple[str, Backend]) -> Iterator[UrlOf]:
    """The URL of a new user with the permissions of a role."""
    vhost = rabbit_owner[0]
    with ExitStack() as stack:

        def url_of(role: str) -> str:
            user = f"{role}-{secrets.token_hex(4)}"
            configure, write, read = shlex.split(grants("rabbitmq")[role].replace("\\", "\\\\"))
            rabbitmq_server.api("PUT", f"/users/{user}", {"password": user, "tags": ""})
            stack.callback(rabbitmq_server.api, "DELETE", f"/users/{user}")
            rabbitmq_server.api(
                "PUT",
                f"/permissions/{quote(vhost, safe='')}/{user}",
                {"configure": configure, "write": write, "read": read},
            )
            return f"{rabbitmq_server.url(vhost, user=user, password=user)}?priority_levels=1"

        yield url_of


@pytest.fixture
def as_rabbit(rabbit_url_of: UrlOf) -> Iterator[As]:
    """A backend that connects as a user with the permissions of a role."""
    with ExitStack() as stack:
        yield lambda role: stack.enter_context(get_backend(rabbit_url_of(role), settings=Settings()))


def test_a_rabbitmq_relay_is_a_producer(
    tmp_path: Path, rabbitmq_server: RabbitServer, rabbit_owner: tuple[str, Backend], rabbit_url_of: UrlOf
) -> None:
    owner = f"{rabbitmq_server.url(rabbit_owner[0])}?priority_levels=1"
    relays(tmp_path, owner, rabbit_url_of("producer"))


def test_a_rabbitmq_producer_registers_and_reads_nothing(as_rabbit: As) -> None:
    producer = as_rabbit("producer")
    producer.register_many([Job(kind="k") for _ in range(10)])
    refused(producer.claim)


def test_a_rabbitmq_worker_runs_jobs(as_rabbit: As, rabbit_owner: tuple[str, Backend]) -> None:
    worker = as_rabbit("worker")
    rabbit_owner[1].register_many([Job(kind="k") for _ in range(4)])
    claims: list[Claim] = []
    while len(claims) < 4:
        claims += worker.claim(limit=4)
    done, failed, dead, released = claims
    worker.complete(done)
    assert worker.fail(failed, "no", retry_in=timedelta(seconds=1)).state is State.READY
    assert worker.fail(dead, "no", permanent=True).state is State.DEAD
    assert worker.release([released])[0].applied
    worker.rescue()
    refused(worker.dead_jobs)


def test_a_rabbitmq_operator_sends_the_dead_back_and_is_healthy(
    as_rabbit: As, rabbit_owner: tuple[str, Backend]
) -> None:
    owner = rabbit_owner[1]
    made = Job(kind="k")
    owner.register(made)
    claims: list[Claim] = []
    while not claims:
        claims = owner.claim()
    owner.fail(claims[0], "no", permanent=True)
    operator = as_rabbit("operator")
    assert [status.job.id for status in operator.dead_jobs() if status.job] == [made.id]
    assert operator.revive_many([made.id]) == [State.READY]
    assert examine(operator) == []

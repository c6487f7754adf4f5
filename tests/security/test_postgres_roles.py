"""Each role of docs/security.md does its work on PostgreSQL with exactly the grants that stand there."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from jobcontract_postgres import PostgresDriver

from jobcontract import Backend, Job, State, get_backend
from jobcontract.config import load_settings
from jobcontract.doctor import examine
from jobcontract.errors import StoreError
from jobcontract.limits import Slot, SlotRequest, shared_limits_of
from tests.security.grants import grants
from tests.security.relaying import relays
from tests.servers.postgres import PostgresServer

As = Callable[[str], Backend]


@pytest.fixture
def owner(postgres_server: PostgresServer) -> Iterator[Backend]:
    """The owner's backend, in a database of its own; jobs wait there."""
    name = postgres_server.create_database()
    with get_backend(postgres_server.url(name)) as backend:
        backend.install()
        backend.register_many([Job(kind="k", queue="other") for _ in range(3)])
        yield backend
    postgres_server.drop_database(name)


@pytest.fixture
def connection(owner: Backend, postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    """The owner's, in the database."""
    with postgres_server.connect(database_of(owner)) as connection:
        yield connection


def database_of(backend: Backend) -> str:
    driver = backend.driver
    assert isinstance(driver, PostgresDriver)
    with driver.sessions.session(checked=False) as connection:
        return connection.info.dbname


@pytest.fixture
def login(
    owner: Backend, connection: psycopg.Connection, postgres_server: PostgresServer
) -> Iterator[Callable[[str], str]]:
    """Makes a user with the grants of a role; its URL."""
    made: list[str] = []

    def login(role: str) -> str:
        user = f"u{secrets.token_hex(6)}"
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{user}'".encode())
        made.append(user)
        name = role.partition("-")[0]
        connection.execute(re.sub(rf"\bTO {name}\b", f"TO {user}", grants("sql")[role]).encode())
        return postgres_server.url(database_of(owner), user=user, password=user)

    yield login
    for user in made:
        connection.execute(f"DROP OWNED BY {user}; DROP ROLE {user}".encode())


@pytest.fixture
def as_role(login: Callable[[str], str]) -> Iterator[As]:
    """A backend that connects as a user with the grants of a role."""
    with ExitStack() as stack:
        yield lambda role: stack.enter_context(get_backend(login(role)))


def refused(operation: Callable[[], object]) -> None:
    with pytest.raises(StoreError, match="permission denied"):
        operation()


def test_a_producer_registers_and_reads_nothing(
    as_role: As, owner: Backend, connection: psycopg.Connection
) -> None:
    producer = as_role("producer")
    made = Job(kind="k", idempotency_key="a", input_ref={"n": 1})
    assert producer.register(made).created
    assert not producer.register(made).created
    again = producer.register(Job(kind="k", idempotency_key="a", input_ref={"n": 2}))
    assert (again.created, again.job_id, again.conflict) == (False, made.id, True)
    assert producer.register_many([Job(kind="k") for _ in range(100)])[99].created
    (claim,) = owner.claim(limit=1)
    owner.complete(claim)
    assert producer.register(claim.job).state is State.DONE
    connection.execute("DELETE FROM jobcontract.live_jobs WHERE id = %s", (made.id,))
    refused(producer.claim)
    refused(lambda: producer.get(made.id))
    refused(lambda: producer.cancel(made.id))
    refused(producer.stats)


def test_a_producer_registers_in_its_own_transaction(login: Callable[[str], str], owner: Backend) -> None:
    url = login("producer")
    job = Job(kind="k", idempotency_key="b")
    with (
        get_backend(url) as producer,
        psycopg.connect(url, autocommit=False) as connection,
    ):
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert producer.register(job, connection=connection).created
        connection.commit()
    assert owner.get(job.id) is not None


def test_a_worker_runs_jobs_and_registers_none(as_role: As, owner: Backend) -> None:
    worker = as_role("worker")
    owner.register_many([Job(kind="k", idempotency_key=str(number), max_attempts=1) for number in range(6)])
    done, failed, dead, released, lost, extended = worker.claim(limit=6)
    worker.complete(done)
    assert worker.fail(failed, "no").state is State.DEAD
    assert worker.fail(dead, "no", permanent=True).state is State.DEAD
    assert worker.release([released])[0].applied
    worker.extend(extended)
    worker.extend(lost, timedelta(milliseconds=1))
    assert sum(worker.rescue(100)) in (0, 1)
    worker.wait(timeout=timedelta(milliseconds=10))
    assert worker.stats()
    assert worker.get(done.job.id) is not None
    refused(lambda: worker.register(Job(kind="k")))
    refused(lambda: worker.prune(timedelta()))
    refused(lambda: worker.pause("default"))


def test_an_operator_looks_after_it_and_is_healthy(as_role: As, owner: Backend) -> None:
    operator = as_role("operator")
    found = operator.jobs(queue="other")
    assert len(found) == 3
    assert operator.cancel(found[0].job.id) is State.CANCELLED  # type: ignore[union-attr]
    assert operator.requeue(found[0].job.id) is State.READY  # type: ignore[union-attr]
    operator.pause("other")
    operator.resume("other")
    owner.complete_many(owner.claim(queues=["other"], limit=2))
    assert {each.queue: each.done_per_second for each in operator.stats()} == {"other": pytest.approx(0.2)}
    assert operator.prune(timedelta()) == 2
    assert "unseen" not in {ailment.name for ailment in examine(operator)}


@pytest.fixture
def through_outbox(
    owner: Backend, postgres_server: PostgresServer, tmp_path: Path
) -> Callable[[str], Backend]:
    """A SQLite store behind an outbox in the owner's database, with the given URL for the latter."""

    def open_(url: str) -> Backend:
        file = tmp_path / f"{secrets.token_hex(4)}.toml"
        file.write_text(
            f'[backends.host]\nurl = "{url}"\n[backends.it]\nurl = "sqlite:///{tmp_path}/it.db"\noutbox = '
            f'"host"\n'
        )
        return get_backend("it", settings=load_settings(file, environment={}))

    with open_(postgres_server.url(database_of(owner))) as backend:
        backend.install()
    return open_


def test_a_producer_through_the_outbox_and_a_relay(
    login: Callable[[str], str], through_outbox: Callable[[str], Backend], tmp_path: Path
) -> None:
    from jobcontract_outbox import Relay, RelayOptions
    from jobcontract_outbox.ends import find_ends

    with through_outbox(login("producer-through-outbox")) as producer:
        made = Job(kind="k", idempotency_key="a")
        assert producer.register(made).created
        assert not producer.register(made).created
        refused(lambda: producer.cancel(made.id))
    file = tmp_path / "relay.toml"
    file.write_text(
        f'[backends.host]\nurl = "{login("relay")}"\n'
        f'[backends.it]\nurl = "sqlite:///{tmp_path}/it.db"\noutbox = "host"\n'
    )
    settings = load_settings(file, environment={})
    relay = Relay(find_ends(settings), RelayOptions(retention=timedelta(microseconds=1)))
    relay.check()
    relay.run_once()
    relay.loops[0].prune()
    assert relay.loops[0].published == 1
    relay.close()
    with get_backend("it", settings=settings) as backend:
        assert len(backend.claim()) == 1
        refused(lambda: backend.register(Job(kind="k")))


def test_on_a_target_a_relay_is_a_producer(
    tmp_path: Path, owner: Backend, login: Callable[[str], str], postgres_server: PostgresServer
) -> None:
    relays(tmp_path, postgres_server.url(database_of(owner)), login("producer"))


def test_a_worker_keeps_its_limits(as_role: As, owner: Backend) -> None:
    limits = shared_limits_of(as_role("worker-with-limits").driver)
    assert limits is not None
    (claim,) = owner.claim(queues=["other"], limit=1)
    lease, length = claim.lease, timedelta(minutes=1)
    assert limits.take_slots([SlotRequest(lease, (Slot("kind:k", 1),))], length) == [True]
    assert limits.keep_slots([lease], length) == [True]
    limits.free_slots([lease])
    for _ in range(2):
        limits.take_turns("rate:k", 1, timedelta(seconds=1), length)

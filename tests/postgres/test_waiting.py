"""Who notifies whom, and when nobody has to."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from jobcontract_postgres.statements import channel_name

from jobcontract.connections import bind, run_steps
from tests.postgres.conftest import installed
from tests.postgres.stores import NOTHING, Store, jobs, until
from tests.servers.postgres import PostgresServer

LONG = timedelta(minutes=1)


class Listening:
    """What goes over the channel of a store."""

    def __init__(self, server: PostgresServer, store: Store) -> None:
        self.connection = server.connect()
        schema = store.schema
        self.connection.execute(f'LISTEN "{channel_name(schema)}"'.encode())

    def heard(self) -> list[str]:
        """The payloads so far. The server has handed over what was committed before this is called."""
        self.connection.execute("SELECT 1")
        return [notification.payload for notification in self.connection.notifies(timeout=0)]


@pytest.fixture
def listening(postgres_server: PostgresServer, store: Store) -> Generator[Listening]:
    listening = Listening(postgres_server, store)
    yield listening
    listening.connection.close()


@contextmanager
def waiting(store: Store, connection: psycopg.Connection, queue: str = "default") -> Generator[list[bool]]:
    """Somebody waits, and holds the lock that says so, during the block."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(store.driver.wait([queue], LONG)))
    thread.start()
    until(lambda: is_watched(store, connection, queue), "the waiter has its lock")
    yield answers
    thread.join(30)
    assert not thread.is_alive(), "the waiter was not woken"


def is_watched(store: Store, connection: psycopg.Connection, queue: str = "default") -> bool:
    """Whether a registration would notify."""
    schema = store.schema
    row = connection.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND (classid::bigint << 32) + objid::bigint = hashtextextended(%s, 0)",
        (channel_name(schema) + queue,),
    ).fetchone()
    return row is not None and row[0] > 0


def test_while_nobody_waits_nobody_is_notified(store: Store, listening: Listening) -> None:
    """NOTIFY takes a lock of the whole cluster until its transaction is committed."""
    store.register(*jobs(3))
    store.driver.release([store.claim_one()], NOTHING)
    assert listening.heard() == []


def test_a_batch_notifies_once_for_each_queue_in_which_work_is_due(
    store: Store, listening: Listening, connection: psycopg.Connection
) -> None:
    row = connection.execute("SELECT clock_timestamp() + interval '1 hour'").fetchone()
    assert row is not None
    with waiting(store, connection, "a"), waiting(store, connection, "b"), waiting(store, connection, "c"):
        store.register(
            *jobs(50, queue="a"),
            *jobs(50, queue="b"),
            *jobs(50, queue="c", run_at=row[0]),
            *jobs(5, queue="d"),
        )
        until(lambda: not is_watched(store, connection, "a"), "a's lock is let go")
        until(lambda: not is_watched(store, connection, "b"), "b's lock is let go")
        assert sorted(listening.heard()) == ["a", "b"]
        store.register(*jobs(1, queue="c"))


def test_the_payload_does_not_grow_with_the_job(
    store: Store, listening: Listening, connection: psycopg.Connection
) -> None:
    """A notification of more than 8,000 bytes would make the registration itself fail."""
    with waiting(store, connection):
        store.register(*jobs(1000, input_ref={"text": "x" * 60_000}))
    assert listening.heard() == ["default"]


def released(store: Store) -> Callable[[], object]:
    lease = store.claim_one()
    return lambda: store.driver.release([lease], NOTHING)


def failed(store: Store) -> Callable[[], object]:
    lease = store.claim_one()
    return lambda: store.fail(lease)


def rescued(store: Store) -> Callable[[], object]:
    store.claim_one(lease=timedelta(milliseconds=1))
    return lambda: until(lambda: store.driver.rescue(1).ready, "the lease has run out")


def requeued(store: Store) -> Callable[[], object]:
    lease = store.claim_one()
    store.fail(lease, permanent=True)
    return lambda: store.driver.requeue([lease.job_id])


def resumed(store: Store) -> Callable[[], object]:
    store.driver.pause("default")
    return lambda: store.driver.resume("default")


@pytest.mark.parametrize("way", [released, failed, rescued, requeued, resumed])
def test_work_that_comes_back_wakes_a_waiter(
    store: Store, connection: psycopg.Connection, way: Callable[[Store], Callable[[], object]]
) -> None:
    store.register(*jobs(1))
    give_back = way(store)
    with waiting(store, connection) as answers:
        assert answers == []
        give_back()
    assert answers == [True]


def test_a_commit_that_comes_after_the_waiters_first_look_wakes_it(
    store: Store, connection: psycopg.Connection, postgres_server: PostgresServer
) -> None:
    """Its transaction tried the lock before anybody waited, and so it did not notify."""
    with psycopg.connect(postgres_server.url()) as caller:
        run_steps(bind(caller), store.driver.register_steps([job.to_record() for job in jobs(1)]))
        with waiting(store, connection) as answers:
            until(lambda: has_looked(store, connection), "the waiter has looked for work")
            assert answers == []
            caller.commit()
    assert answers == [True]


def has_looked(store: Store, connection: psycopg.Connection) -> bool:
    """Whether the last statement of a session of `store` looked for work, and has been answered."""
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE state = 'idle' AND query LIKE '%%jobcontract next_due%%' AND strpos(query, %s) > 0",
        (store.schema,),
    ).fetchone()
    return row == (1,)


def test_a_scheduled_job_ends_the_wait_when_it_is_due(store: Store, connection: psycopg.Connection) -> None:
    row = connection.execute("SELECT clock_timestamp() + interval '500 ms'").fetchone()
    assert row is not None
    store.register(*jobs(1, run_at=row[0]))
    assert store.claim() == []
    assert store.driver.wait(["default"], LONG) is True
    assert len(store.claim()) == 1, "and not before"


def test_a_job_whose_row_somebody_has_locked_is_not_reported_again_and_again(
    store: Store, postgres_server: PostgresServer
) -> None:
    """Claims pass over it, so a worker would go round without a pause for as long as the lock is held."""
    store.register(*jobs(1))
    with postgres_server.connect(autocommit=False) as holder:
        holder.execute(store.sql("SELECT FROM OURS.live_jobs FOR UPDATE"))
        assert store.driver.wait(["default"], LONG) is True
        assert store.claim() == []
        assert store.driver.wait(["default"], timedelta(milliseconds=300)) is False
        (new,) = jobs(1, priority=9)
        store.register(new)
        assert [each.record.id for each in store.claim()] == [str(new.id)]


def test_an_idle_worker_asks_no_more_than_once_a_second(own_server: PostgresServer) -> None:
    """It claims and waits in turns, and a wait ends after two seconds: one statement for each."""
    database = own_server.create_database()
    with own_server.connect() as connection:
        connection.execute(f"ALTER DATABASE {database} SET log_statement = 'all'".encode())
    with installed(own_server.url(database)) as store:
        store.driver.wait(["default"], timedelta(seconds=2))  # takes the lock, and looks again some times
        before = len(statements(own_server))
        for _ in range(3):
            assert store.claim() == []
            assert store.driver.wait(["default"], timedelta(milliseconds=100)) is False
        assert statements(own_server)[before:] == ["claim", "next_due"] * 3
    own_server.drop_database(database)


def statements(server: PostgresServer) -> list[str]:
    """The verbs that the server's log shows, in order. What a session has answered is in the log."""
    return re.findall(r"/\* jobcontract (\w+) \*/", server.log.read_text())


def test_the_lock_ends_with_the_driver(store: Store, connection: psycopg.Connection) -> None:
    assert store.driver.wait(["default"], timedelta(milliseconds=200)) is False
    until(lambda: is_watched(store, connection), "the lock is held")
    store.driver.close()
    until(lambda: not is_watched(store, connection), "the lock is gone")

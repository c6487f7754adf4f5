"""Registering where two transactions, or a job and its own repetition, meet."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import psycopg
import pytest
from psycopg import IsolationLevel

from jobcontract.connections import bind, run_steps
from jobcontract.contract import Job, Lease, Registration, State
from jobcontract.errors import StoreUnavailable
from tests.postgres.stores import Store, jobs, until
from tests.servers.postgres import PostgresServer

READ_COMMITTED = IsolationLevel.READ_COMMITTED
REPEATABLE_READ = IsolationLevel.REPEATABLE_READ
LEVELS = pytest.mark.parametrize("level", [READ_COMMITTED, REPEATABLE_READ], ids=lambda level: level.name)


Result = TypeVar("Result")


class Caller:
    """An application with a transaction of its own."""

    def __init__(self, server: PostgresServer, store: Store, level: IsolationLevel) -> None:
        self.store = store
        self.connection = psycopg.connect(server.url())
        self.connection.isolation_level = level

    def look(self) -> None:
        """Run a statement, with which a REPEATABLE READ transaction takes its snapshot."""
        self.connection.execute("SELECT 1")

    def register(self, *made: Job) -> list[Registration]:
        steps = self.store.driver.register_steps([job.to_record() for job in made])
        return run_steps(bind(self.connection), steps)


@pytest.fixture
def caller_at(postgres_server: PostgresServer, store: Store) -> Generator[Callable[[IsolationLevel], Caller]]:
    """Makes callers at an isolation level."""
    callers: list[Caller] = []

    def caller_at(level: IsolationLevel) -> Caller:
        callers.append(Caller(postgres_server, store, level))
        return callers[-1]

    yield caller_at
    for caller in callers:
        caller.connection.close()


@contextmanager
def waiting(connection: psycopg.Connection, act: Callable[[], Result]) -> Generator[Future[Result]]:
    """`act` under way in a thread; the block begins when a session waits for another one's transaction."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(act)
        until(lambda: waiting_sessions(connection) or future.done(), "a session waits for a lock")
        assert not future.done(), f"it did not wait: {future.exception() or future.result()}"
        yield future


def waiting_sessions(connection: psycopg.Connection) -> int:
    """How many wait for a lock."""
    row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    assert row is not None
    return int(row[0])


@LEVELS
def test_a_duplicate_inserts_when_the_first_transaction_rolls_back(
    caller_at: Callable[[IsolationLevel], Caller], connection: psycopg.Connection, level: IsolationLevel
) -> None:
    first, second = caller_at(level), caller_at(level)
    lost, kept = jobs(2, idempotency_key="document 7")
    assert first.register(lost)[0].created
    with waiting(connection, lambda: second.register(kept)) as answer:
        first.connection.rollback()
    assert answer.result() == [Registration(kept.id, created=True)]
    second.connection.commit()
    assert [each.record.id for each in second.store.claim(10)] == [str(kept.id)]


def test_a_duplicate_is_answered_when_the_first_transaction_commits(
    caller_at: Callable[[IsolationLevel], Caller], connection: psycopg.Connection
) -> None:
    first, second = caller_at(READ_COMMITTED), caller_at(READ_COMMITTED)
    holder, duplicate = jobs(2, idempotency_key="document 7")
    first.register(holder)
    with waiting(connection, lambda: second.register(duplicate)) as answer:
        first.connection.commit()
    assert answer.result() == [Registration(holder.id, created=False)]


def test_under_repeatable_read_a_holder_that_committed_since_is_a_serialization_failure(
    caller_at: Callable[[IsolationLevel], Caller], store: Store
) -> None:
    """Its snapshot does not show the holder, so there is no answer: the application repeats itself."""
    caller = caller_at(REPEATABLE_READ)
    caller.look()
    holder, duplicate = jobs(2, idempotency_key="document 7")
    store.register(holder)
    with pytest.raises(StoreUnavailable):
        caller.register(duplicate)
    caller.connection.rollback()
    assert caller.register(duplicate) == [Registration(holder.id, created=False)]


def test_batches_with_the_same_keys_in_other_orders_do_not_deadlock(
    caller_at: Callable[[IsolationLevel], Caller], store: Store, connection: psycopg.Connection
) -> None:
    """Both are stopped at the key in the middle; by then, each would hold what the other one needs next."""
    holder = caller_at(READ_COMMITTED)
    holder.register(Job(kind="test", idempotency_key="m"))
    batches = [[Job(kind="test", idempotency_key=key) for key in keys] for keys in ("amz", "zma")]
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(store.register, *batch) for batch in batches]
        until(lambda: waiting_sessions(connection) == 2, "both wait")
        holder.connection.rollback()
        registrations = [each for answer in answers for each in answer.result()]
    assert sorted(each.created for each in registrations) == [False] * 3 + [True] * 3
    assert len({each.job_id for each in registrations}) == 3


def test_a_job_that_is_registered_again_while_it_is_completed_does_not_come_back(
    caller_at: Callable[[IsolationLevel], Caller], connection: psycopg.Connection, store: Store
) -> None:
    """The repetition waits for the row that the completion is removing, and finds its place free."""
    (made,) = jobs(1)
    store.register(made)
    lease = store.claim_one()
    caller = caller_at(READ_COMMITTED)
    with caller_at(READ_COMMITTED).connection as completing:
        complete_by_hand(completing, store, lease)
        with waiting(connection, lambda: caller.register(made)) as answer:
            completing.commit()
    assert answer.result() == [Registration(made.id, created=False, state=State.DONE)]
    caller.connection.commit()
    assert store.claim(10) == []


def test_a_job_that_was_completed_since_the_snapshot_does_not_come_back(
    caller_at: Callable[[IsolationLevel], Caller], store: Store
) -> None:
    """Under REPEATABLE READ it is still running, although its place is free."""
    (made,) = jobs(1)
    store.register(made)
    lease = store.claim_one()
    caller = caller_at(REPEATABLE_READ)
    caller.look()
    assert store.complete(lease) == [True]
    assert caller.register(made) == [Registration(made.id, created=False, state=State.RUNNING)]
    caller.connection.commit()
    assert store.claim(10) == []


def complete_by_hand(connection: psycopg.Connection, store: Store, lease: Lease) -> None:
    """What the driver's statement does, without the commit."""
    columns = "id, run_at, created_at, attempt, max_attempts, priority, queue, kind, input_ref"
    connection.execute(
        store.sql(
            "WITH gone AS (DELETE FROM OURS.live_jobs WHERE id = %s RETURNING *)"
            f" INSERT INTO OURS.done_jobs ({columns}, finished_at) SELECT {columns}, now() FROM gone"
        ),
        (lease.job_id,),
    )


def test_the_key_of_a_job_that_was_deleted_by_hand_is_free_again(
    store: Store, connection: psycopg.Connection
) -> None:
    deleted, new = jobs(2, idempotency_key="document 7")
    store.register(deleted)
    connection.execute(store.sql("DELETE FROM OURS.live_jobs"))
    assert store.register(new) == [Registration(new.id, created=True)]


def test_a_known_job_under_another_key_takes_no_second_key(store: Store) -> None:
    (made,) = jobs(1, idempotency_key="a")
    store.register(made)
    renamed = Job(kind="test", id=made.id, idempotency_key="b")
    assert store.register(renamed) == [Registration(made.id, created=False)]
    (other,) = jobs(1, idempotency_key="b")
    assert store.register(other) == [Registration(other.id, created=True)]


def test_a_job_for_now_is_due_from_its_statement_on_and_not_from_its_transactions_begin(
    caller_at: Callable[[IsolationLevel], Caller], store: Store
) -> None:
    """Jobs of a long transaction don't overtake those that were registered while it was open."""
    caller = caller_at(READ_COMMITTED)
    caller.look()
    (earlier,) = jobs(1)
    store.register(earlier)
    (later,) = jobs(1)
    caller.register(later)
    caller.connection.commit()
    assert [each.record.id for each in store.claim(10)] == [str(earlier.id), str(later.id)]


def test_a_job_whose_id_tells_no_time_is_recognised_too(store: Store) -> None:
    """Not every producer makes UUIDs of version 7, and only those say since when a job can have ended."""
    made = Job(kind="test", id="6f1ed002-ab59-4b0c-9d2e-0f0c5a1f7b11")
    store.register(made)
    assert store.complete(store.claim_one()) == [True]
    assert store.register(made) == [Registration(made.id, created=False, state=State.DONE)]
    assert store.claim(10) == []


def test_a_registration_can_be_rolled_back_to_a_savepoint(
    caller_at: Callable[[IsolationLevel], Caller], store: Store
) -> None:
    caller = caller_at(READ_COMMITTED)
    undone, kept = jobs(2, idempotency_key="document 7")
    with caller.connection.transaction():
        with caller.connection.transaction(force_rollback=True):
            caller.register(undone)
        assert caller.register(kept) == [Registration(kept.id, created=True)]
    assert [each.record.id for each in store.claim(10)] == [str(kept.id)]


def test_a_batch_of_jobs_scheduled_and_due_keeps_each_ones_time(
    store: Store, connection: psycopg.Connection
) -> None:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    (soon,) = jobs(1, run_at=row[0] + timedelta(hours=1))
    (now,) = jobs(1)
    store.register(soon, now)
    assert [each.record.id for each in store.claim(10)] == [str(now.id)]

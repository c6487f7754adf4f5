"""The cut-over: transactions that straddle it, keys around it, and a fence that nobody lifts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from jobcontract_migrate import Phase
from psycopg import IsolationLevel

from jobcontract import Job, Registration
from jobcontract.errors import StoreClosed
from tests.migrate.conftest import MakeStage
from tests.migrate.stage import Stage, all_jobs, until

KEY = "document 1"


@pytest.fixture
def schemas(make_stage: MakeStage, postgres_url: str) -> Stage:
    """Two schemas of one database: a caller's connection leads to both."""
    return make_stage("old", old=f"{postgres_url}?schema=old", new=f"{postgres_url}?schema=new")


@pytest.fixture
def connection(schemas: Stage, postgres_url: str) -> Iterator[psycopg.Connection]:
    """The application's own."""
    del schemas
    with psycopg.connect(postgres_url) as connection:
        yield connection


class Migration(threading.Thread):
    """`migrate` in the background; `until_state` waits for it to be there."""

    def __init__(self, stage: Stage, cutover: timedelta = timedelta(seconds=30)) -> None:
        super().__init__(daemon=True)
        self.stage = stage
        self.seen: set[Phase] = set()
        self.coordinator = stage.coordinator(
            cutover_timeout=cutover, watch=lambda progress: self.seen.add(progress.move.state)
        )
        self.coordinator.begin("old", "new", {"first_source": "old"})
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.coordinator.run(Phase.SEALED)
        except BaseException as error:
            self.error = error

    def until_state(self, state: Phase) -> None:
        until(lambda: state in self.seen or self.error is not None)
        assert self.error is None

    def end(self) -> None:
        self.join(60)
        assert not self.is_alive()
        assert self.error is None


@pytest.mark.parametrize("isolation", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_a_key_in_a_transaction_across_the_fence_is_one_job(
    schemas: Stage, connection: psycopg.Connection, isolation: IsolationLevel, commit: bool
) -> None:
    """It registers, the source is fenced, it registers another and ends; meanwhile others want the key."""
    connection.isolation_level = isolation
    backend, other = schemas.backend(), schemas.backend()
    first, second = Job(kind="a", idempotency_key=KEY), Job(kind="b")
    assert backend.register(first, connection=connection).created
    migration = Migration(schemas)
    migration.until_state(Phase.FENCING)
    assert backend.register(second, connection=connection).created  # it was let in before
    answers: list[Registration] = []
    late = Job(kind="a", idempotency_key=KEY)
    waiter = threading.Thread(target=lambda: answers.append(other.register(late)), daemon=True)
    waiter.start()
    if commit:
        connection.commit()
    else:
        connection.rollback()
    waiter.join(60)
    migration.end()
    (answer,) = answers
    assert answer.job_id == (first.id if commit else late.id)
    assert answer.created is not commit
    expected = {first.id, second.id} if commit else {late.id}
    assert {claim.job.id for claim in backend.claim(limit=10)} == expected


@pytest.mark.parametrize("isolation", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ])
def test_a_transaction_that_began_before_and_registers_later_gets_no_error(
    schemas: Stage, connection: psycopg.Connection, isolation: IsolationLevel
) -> None:
    """Its snapshot is that of the time when jobs went to the old store."""
    connection.isolation_level = isolation
    backend = schemas.backend()
    backend.register(Job(kind="warm_up"))
    connection.execute("SELECT 1")
    schemas.migrate()
    made = Job(kind="a", idempotency_key=KEY)
    assert backend.register(made, connection=connection).created
    connection.commit()
    assert str(made.id) in all_jobs(schemas.store("new"))
    assert str(made.id) not in all_jobs(schemas.store("old"))
    assert backend.register(Job(kind="a", idempotency_key=KEY)).job_id == made.id


def test_a_producer_in_its_own_transactions_gets_no_error(
    schemas: Stage, connection: psycopg.Connection
) -> None:
    backend = schemas.backend()
    migration = Migration(schemas)
    registered: list[Job] = []
    while migration.is_alive():
        made = Job(kind="a", idempotency_key=f"key {len(registered)}")
        backend.register(made, connection=connection)
        connection.commit()
        registered.append(made)
        time.sleep(0.005)
    migration.end()
    found = all_jobs(schemas.store("new"))
    assert {str(job.id) for job in registered} == set(found)


def test_a_transaction_that_does_not_end_postpones_the_cut_over(
    schemas: Stage, connection: psycopg.Connection
) -> None:
    """Nobody waits for longer than the timeout; the move goes on when the transaction has ended."""
    straddling, backend = schemas.backend(), schemas.backend()
    straddling.register(Job(kind="a"), connection=connection)
    migration = Migration(schemas, cutover=timedelta(seconds=1))
    control = schemas.control()
    until(lambda: any("postponed" in event.said for event in control.events(schemas.move())))
    made = Job(kind="b")
    assert backend.register(made).created
    connection.commit()
    migration.end()
    assert str(made.id) in all_jobs(schemas.store("new"))


def test_a_fence_that_nobody_lifts_is_lifted_by_a_producer(stage: Stage) -> None:
    """The coordinator is gone with the fence up. Writes are accepted again when its time is over."""
    points: list[str] = []

    def reach(point: str) -> None:
        points.append(point)
        if point == "gates of fencing":
            raise KeyboardInterrupt

    backend = stage.backend()
    backend.register(Job(kind="a"))
    coordinator = stage.coordinator(reach=reach, cutover_timeout=timedelta(seconds=1))
    coordinator.begin("old", "new", {"first_source": "old"})
    with pytest.raises(KeyboardInterrupt):
        coordinator.run(Phase.SEALED)
    stage.forget_owner()
    assert stage.move().state is Phase.FENCING
    with pytest.raises(StoreClosed):
        stage.store("old").register([Job(kind="b").to_record()])
    assert backend.register(Job(kind="b")).created
    assert stage.move().state is Phase.DUAL_READ
    assert stage.resume().state is Phase.SEALED
    assert len(all_jobs(stage.store("new"))) == 2


def test_two_producers_of_the_same_keys_make_one_job_of_each(stage: Stage) -> None:
    """They race for every key, before, during and after the cut-over."""
    stop = threading.Event()
    created: list[list[Registration]] = [[], []]

    def produce(own: list[Registration]) -> None:
        backend = stage.backend()
        number = 0
        while not stop.is_set():
            number += 1
            own.append(backend.register(Job(kind="a", idempotency_key=f"key {number}")))

    threads = [threading.Thread(target=produce, args=(own,), daemon=True) for own in created]
    for thread in threads:
        thread.start()
    until(lambda: all(len(own) > 10 for own in created))
    stage.migrate()
    behind = [len(own) for own in created]
    until(lambda: all(len(own) > before + 10 for own, before in zip(created, behind, strict=True)))
    stop.set()
    for thread in threads:
        thread.join(60)
    both = min(len(own) for own in created)
    for one, other in zip(created[0][:both], created[1][:both], strict=True):
        assert one.job_id == other.job_id
        assert one.created is not other.created
    ids = {str(each.job_id) for own in created for each in own}
    assert set(all_jobs(stage.store("new"))) == ids

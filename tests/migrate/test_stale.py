"""Those who were stopped and continue: a client that goes by an old route, and a coordinator that is over."""

from __future__ import annotations

import signal
import subprocess
import threading
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from jobcontract_migrate import Coordinator, Phase
from jobcontract_migrate.charge import Busy, Superseded
from psycopg.pq import TransactionStatus

from jobcontract import Job, Registration
from jobcontract.connections import bind, run_steps
from jobcontract.errors import StoreClosed, StoreError
from jobcontract.side_doors import JoinsTransactions, Statement, Steps
from tests.migrate.conftest import MakeStage
from tests.migrate.stage import Stage, all_jobs, assert_each_ran_once, claim_when_there, drain, program


def test_a_client_of_the_old_store_is_refused(stage: Stage) -> None:
    """It names the store, and so knows of no route at all."""
    old = stage.backend("old")
    old.register(Job(kind="a"))
    (running,) = old.claim()
    coordinator = stage.coordinator()
    coordinator.begin("old", "new", {"first_source": "old"})
    coordinator.run(Phase.MOVING)
    with pytest.raises(StoreClosed, match="moving to another one"):
        old.register(Job(kind="b"))
    old.complete(running)
    assert stage.resume().state is Phase.SEALED
    with pytest.raises(StoreClosed, match="can't be claimed here now"):
        old.claim()
    assert len(all_jobs(stage.store("old"))) == 1


def test_a_client_that_slept_through_two_epochs_finds_its_way(stage: Stage) -> None:
    """Nothing was asked for between its last word and the end of the move: the route it remembers is old."""
    sleeper = stage.backend()
    sleeper.register(Job(kind="a", idempotency_key="a"))
    assert sleeper.claim(queues=["other"]) == []
    stage.migrate()
    answer = sleeper.register(Job(kind="a", idempotency_key="a"))
    assert not answer.created
    made = Job(kind="b")
    sleeper.register(made)
    assert {claim.job.id for claim in sleeper.claim(limit=10)} == {answer.job_id, made.id}
    assert all_jobs(stage.store("old")) == {}


def test_the_same_job_registered_again_across_the_cut_over_is_one(stage: Stage) -> None:
    """Its answer was lost on the way: the client tries again, and jobs go elsewhere by now."""
    made = Job(kind="a")
    backend = stage.backend()
    assert backend.register(made).created
    coordinator = stage.coordinator(batch=1)
    coordinator.begin("old", "new", {"first_source": "old"})
    coordinator.run(Phase.MOVING)
    assert not backend.register(made).created
    stage.resume()
    assert len(all_jobs(stage.store("new"))) == 1


def test_of_two_coordinators_one_works(files: Stage) -> None:
    coordinator = files.coordinator()
    coordinator.begin("old", "new", {"first_source": "old"})
    with pytest.raises(Busy, match="another coordinator is at work"):
        files.coordinator().run(Phase.SEALED)
    assert coordinator.run(Phase.SEALED).state is Phase.SEALED


def test_a_coordinator_that_comes_back_late_changes_nothing(files: Stage) -> None:
    """It was stopped between hiding and storing a batch; another one took over, and went back."""
    files.backend("old").register_many([Job(kind="a") for _ in range(5)])
    late: list[Coordinator] = []

    def reach(point: str) -> None:
        if point == "hidden" and not late:
            late.append(coordinator)
            files.forget_owner()
            files.resume()
            files.reverse()

    coordinator = files.coordinator(reach=reach, batch=3)
    coordinator.begin("old", "new", {"first_source": "old"})
    with pytest.raises((Superseded, StoreError)):
        coordinator.run(Phase.SEALED)
    assert late
    assert len(all_jobs(files.store("old"))) == 5
    assert all_jobs(files.store("new")) == {}


def ask(client: subprocess.Popen[str]) -> list[UUID]:
    """Have it register a job and run some: the id of the one, and theirs."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write("go on\n")
    client.stdin.flush()
    answer = client.stdout.readline()
    assert answer, client.communicate()[1]
    return [UUID(word) for word in answer.split()]


def test_a_client_of_a_broker_is_stopped_through_a_migration_and_continues(
    make_stage: MakeStage, broker_url: str, postgres_url: str
) -> None:
    """A broker refuses nobody, so whoever comes back has to find out by himself, before he does anything."""
    stage = make_stage("new", old=broker_url, new=postgres_url)
    with program(stage, "obey", str(stage.file)) as client:
        first, *ran = ask(client)
        client.send_signal(signal.SIGSTOP)
        made = [Job(kind="work") for _ in range(20)]
        stage.backend("old").register_many(made)
        assert stage.migrate(batch=7).state is Phase.SEALED
        client.send_signal(signal.SIGCONT)
        late, *found = ask(client)
    assert found, "it claims where the jobs are now"
    assert str(late) in all_jobs(stage.store("new")), "it registers where they are"
    assert (
        stage.coordinator().complete().state is Phase.COMPLETED
    )  # with what it had been given, and gave back
    ran += found
    drain(stage.backend(), ran, len(made) + 2)
    assert_each_ran_once([first, late, *(job.id for job in made)], ran)
    assert stage.backend("old").claim(limit=10) == []


@pytest.fixture
def behind(make_stage: MakeStage, postgres_url: str, broker_url: str) -> Stage:
    """Jobs that have moved from PostgreSQL to RabbitMQ, behind an outbox in the same PostgreSQL."""
    stage = make_stage("old", outbox="old", old=postgres_url, new=broker_url)
    stage.backend("new").install()
    stage.migrate()
    return stage


def test_a_registration_that_was_stopped_in_an_outbox_goes_where_the_jobs_are(
    behind: Stage, postgres_url: str
) -> None:
    """It had looked, and was stopped before it wrote anything: the outbox takes it, and nobody is there."""
    driver = behind.backend().driver
    assert isinstance(driver, JoinsTransactions)
    made = Job(kind="work", idempotency_key="key")
    with psycopg.connect(postgres_url) as connection:
        steps = driver.register_steps([made.to_record()])
        first = next(steps)
        assert behind.reverse(cutover_timeout=timedelta(seconds=30)).state is Phase.SEALED
        assert behind.coordinator().complete().state is Phase.COMPLETED
        (answer,) = run_steps(bind(connection), going_on(first, steps))
    assert (answer.job_id, answer.created) == (made.id, True)
    with behind.relaying():
        (claim,) = claim_when_there(behind.backend())
        assert claim.job.id == made.id
        behind.backend().complete(claim)
    assert behind.backend().register(Job(kind="work", idempotency_key="key")).job_id == made.id


def test_a_transaction_across_the_fence_of_an_outbox_ends_first(behind: Stage, postgres_url: str) -> None:
    """Its client knows of the fence before it commits; what it wrote until then moves with the others."""
    backend = behind.backend()
    made = Job(kind="work", idempotency_key="key")
    points: list[str] = []
    with psycopg.connect(postgres_url) as connection:
        assert backend.register(made, connection=connection).created

        def reach(point: str) -> None:
            points.append(point)
            if point == "now fencing":
                threading.Timer(1, connection.commit).start()
            elif point == "fenced":
                assert connection.info.transaction_status is TransactionStatus.IDLE

        behind.reverse(reach=reach, cutover_timeout=timedelta(seconds=30))
    assert "fenced" in points
    assert backend.register(Job(kind="work", idempotency_key="key")).job_id == made.id
    assert [claim.job.id for claim in backend.claim(limit=10)] == [made.id]


def going_on(first: Statement, steps: Steps[list[Registration]]) -> Steps[list[Registration]]:
    """`steps`, from its `first` statement on."""
    statement = first
    while True:
        try:
            rows = yield statement
        except Exception as error:
            statement = steps.throw(error)
        else:
            try:
                statement = steps.send(rows)
            except StopIteration as stop:
                found: list[Registration] = stop.value
                return found


@pytest.mark.parametrize("through", [pytest.param("stopped", marks=pytest.mark.slow), "named"])
def test_a_client_is_stopped_through_two_epochs_and_continues(stage: Stage, through: str) -> None:
    """What it knew is old, whether it follows or names the store: it registers and claims nothing there."""
    with program(stage, "obey", str(stage.file), *(["old"] if through == "named" else [])) as client:
        first, *ran = ask(client)
        client.send_signal(signal.SIGSTOP)
        made = [Job(kind="work") for _ in range(20)]
        stage.backend("old").register_many(made)
        assert stage.migrate(batch=7).state is Phase.SEALED
        assert stage.coordinator().complete().state is Phase.COMPLETED
        client.send_signal(signal.SIGCONT)
        if through == "named":
            with pytest.raises(AssertionError, match="StoreClosed"):
                ask(client)
            late: list[UUID] = []
        else:
            one, *found = ask(client)
            late, ran = [one], ran + found
    assert all_jobs(stage.store("old")).keys() <= {str(first)}
    drain(stage.backend(), ran, len(made) + 1 + len(late))
    assert_each_ran_once([first, *late, *(job.id for job in made)], ran)

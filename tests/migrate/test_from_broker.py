"""Jobs leave a broker: the mover alone consumes there, and what it held when it died comes again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from jobcontract_migrate import Phase
from jobcontract_migrate.control import Control
from jobcontract_rabbitmq.dead import created_at

from jobcontract import Job, State
from jobcontract.side_doors import Statement
from tests.migrate.conftest import MakeStage
from tests.migrate.stage import (
    Stage,
    Traffic,
    all_jobs,
    assert_each_ran_once,
    claim_when_there,
    drain,
    run_and_die,
    until,
)

COUNT = 25
HOUR = timedelta(hours=1)


@pytest.fixture
def leaving(make_stage: MakeStage, postgres_url: str, broker_url: str) -> Stage:
    """From RabbitMQ to PostgreSQL."""
    return make_stage("new", old=broker_url, new=postgres_url)


def test_jobs_move_there_and_back_and_there_again(broker_stage: Stage) -> None:
    with Traffic(broker_stage, keyed=False) as traffic:
        traffic.until_more()
        assert broker_stage.migrate(batch=10).state is Phase.SEALED
        traffic.until_more()
        assert broker_stage.reverse(batch=10).home == "old"
        traffic.until_more()
        assert broker_stage.reverse(batch=10).home == "new"
        traffic.until_more()
        assert broker_stage.coordinator().complete().state is Phase.COMPLETED
        traffic.until_more()
    drain(broker_stage.backend(), traffic.ran, len(traffic.registered))
    assert_each_ran_once(traffic.registered, traffic.ran)
    assert traffic.failures == []


@pytest.mark.parametrize(
    "broker_stage",
    [
        "rabbitmq-postgres",
        pytest.param("rabbitmq-sqlite", marks=pytest.mark.slow),
        pytest.param("rabbitmq-redis", marks=pytest.mark.slow),
    ],
    indirect=True,
)
def test_everything_about_a_job_leaves(broker_stage: Stage) -> None:
    leaving = broker_stage
    old = leaving.backend("old")
    dead, failed = Job(kind="d"), Job(kind="c", max_attempts=9)
    old.register(dead)
    until(lambda: [old.fail(each, "never", permanent=True) for each in old.claim()] != [])
    old.register(failed)
    until(lambda: [old.fail(each, "not yet", retry_in=HOUR) for each in old.claim()] != [])
    plain = Job(kind="a", input_ref={"text": "Straße", "n": 12345678901234567890}, headers={"trace": "1"})
    mail = Job(kind="b", priority=2, queue="mail")
    old.register_many([plain, mail])
    leaving.migrate()
    found = {UUID(job_id): each for job_id, each in all_jobs(leaving.store("new")).items()}
    assert found.keys() == {dead.id, failed.id, plain.id, mail.id}
    states = {job_id: (each.state, each.attempt, each.last_error) for job_id, each in found.items()}
    assert states == {
        dead.id: (State.DEAD, 1, "never"),
        failed.id: (State.READY, 1, "not yet"),
        plain.id: (State.READY, 0, None),
        mail.id: (State.READY, 0, None),
    }
    run_at = found[failed.id].record.run_at
    assert run_at is not None
    assert abs(run_at - datetime.now(UTC) - HOUR) < timedelta(minutes=5)
    for job_id, each in found.items():
        assert abs(each.created_at - created_at(str(job_id))) <= timedelta(milliseconds=1)
    assert (found[failed.id].record.max_attempts, found[mail.id].record.priority) == (9, 2)
    came = {claim.job.id: claim.job for claim in leaving.backend().claim(queues=["default", "mail"], limit=9)}
    for made in (plain, mail):
        assert came[made.id].model_copy(update={"run_at": None}) == made


def test_a_job_that_runs_at_the_broker_ends_there(leaving: Stage) -> None:
    backend = leaving.backend()
    ends, fails = Job(kind="a"), Job(kind="b")
    backend.register_many([ends, fails])
    claims = {claim.job.id: claim for claim in claim_when_there(backend, 2)}
    coordinator = leaving.coordinator()
    coordinator.begin("old", "new", {"first_source": "old"})
    coordinator.run(Phase.MOVING)
    backend.complete(claims[ends.id])
    backend.fail(claims[fails.id], "again", retry_in=timedelta())
    assert leaving.resume().state is Phase.SEALED
    assert [(each.job.id, each.attempt) for each in backend.claim(limit=10)] == [(fails.id, 2)]


@pytest.mark.parametrize(("point", "after"), [("hidden", 1), ("admitted", 2), ("buried", 1)])
def test_what_a_killed_mover_held_moves_once(leaving: Stage, point: str, after: int) -> None:
    made = [Job(kind="work", input_ref={"n": n}) for n in range(COUNT)]
    leaving.backend("old").register_many(made)
    run_and_die(leaving, "begin", point, after)
    backend = leaving.backend()
    ran: list[UUID] = []
    for claim in backend.claim(limit=3):  # what had arrived by then
        backend.complete(claim)
        ran.append(claim.job.id)
    assert leaving.resume(batch=7).state is Phase.SEALED
    drain(backend, ran, COUNT)
    assert_each_ran_once([job.id for job in made], ran)


@pytest.mark.parametrize("point", ["hidden", "admitted"])
def test_a_killed_move_can_be_turned_round(leaving: Stage, point: str) -> None:
    """What was on its way arrives first; then all of it goes back."""
    made = [Job(kind="work", input_ref={"n": n}) for n in range(COUNT)]
    leaving.backend("old").register_many(made)
    run_and_die(leaving, "begin", point, 2)
    assert leaving.reverse(batch=7).home == "old"
    assert leaving.coordinator().complete().state is Phase.COMPLETED
    ran: list[UUID] = []
    drain(leaving.backend(), ran, COUNT)
    assert_each_ran_once([job.id for job in made], ran)
    assert all_jobs(leaving.store("new")) == {}


@pytest.mark.parametrize("point", ["hidden", "admitted"])
def test_what_a_killed_mover_held_has_spent_no_attempt(leaving: Stage, point: str) -> None:
    """The broker counts what comes back to it as delivered, and can't know that nobody ran it."""
    made = [Job(kind="work", input_ref={"n": n}, max_attempts=2) for n in range(COUNT)]
    old = leaving.backend("old")
    old.register_many(made)
    until(lambda: [old.fail(each, "not yet", retry_in=timedelta()) for each in old.claim()] != [])
    run_and_die(leaving, "begin", point, 1)
    run_and_die(leaving, "resume", point, 1)
    assert leaving.resume(batch=7).state is Phase.SEALED
    attempts = sorted(each.attempt for each in all_jobs(leaving.store("new")).values())
    assert attempts == [0] * (COUNT - 1) + [1]


def test_a_worker_that_says_nothing_is_not_waited_for_and_its_job_is_not_lost(leaving: Stage) -> None:
    """It runs a job of the broker, and has not been heard of for longer than that is believed."""
    backend, silent = leaving.backend(), leaving.backend()
    made = Job(kind="work")
    backend.register(made)
    (claim,) = claim_when_there(silent)
    control = leaving.control()

    def known() -> bool:
        silent.claim(queues=["other"])
        return any(each.holds == ("old",) for each in control.clients())

    until(known)
    forget_for(control, timedelta(seconds=31))
    assert leaving.migrate().state is Phase.SEALED
    assert backend.claim(limit=10) == []
    silent.fail(claim, "not yet", retry_in=timedelta())
    assert leaving.coordinator().complete().state is Phase.COMPLETED
    (again,) = claim_when_there(backend)
    assert (again.job.id, again.attempt) == (made.id, 2)


def forget_for(control: Control, silence: timedelta) -> None:
    """As if nobody had said anything for so long."""
    with control.host.transaction() as transaction:
        table = control.host.table("move_clients")
        transaction.run(Statement(f"UPDATE {table} SET seen_at = seen_at - %s", (silence.total_seconds(),)))

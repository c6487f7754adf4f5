"""Jobs move to a broker, which knows none by its id: what runs there is counted, and each runs once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from jobcontract_migrate import Phase
from jobcontract_migrate.plan import make_plan

from jobcontract import Claim, Job, State, Unsupported
from jobcontract.side_doors import DeadLetters, Page
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
from tests.migrate.test_moving import in_milliseconds

COUNT = 25
SOON = timedelta(seconds=3)
HOUR = timedelta(hours=1)


@pytest.fixture
def bare(make_stage: MakeStage, postgres_url: str, broker_url: str) -> Stage:
    """From PostgreSQL to RabbitMQ."""
    return make_stage("old", old=postgres_url, new=broker_url)


@pytest.fixture
def behind(make_stage: MakeStage, postgres_url: str, broker_url: str) -> Stage:
    """The same, with an outbox in front of RabbitMQ."""
    stage = make_stage("old", outbox="old", old=postgres_url, new=broker_url)
    stage.backend("new").install()  # the relay looks for its table
    return stage


def test_jobs_move_while_producers_and_workers_go_on(bare: Stage) -> None:
    with Traffic(bare, keyed=False) as traffic:
        traffic.until_more(100)
        assert bare.migrate(batch=10).state is Phase.SEALED
        traffic.until_more(100)
        assert bare.coordinator().complete().state is Phase.COMPLETED
        traffic.until_more(100)
    drain(bare.backend(), traffic.ran, len(traffic.registered))
    assert_each_ran_once(traffic.registered, traffic.ran)
    assert traffic.failures == []
    assert all_jobs(bare.store("old")).keys() <= {str(each) for each in traffic.ran}


def test_what_the_store_can_not_do_is_said_of_the_store_in_which_jobs_live(bare: Stage) -> None:
    bare.migrate()
    with pytest.raises(Unsupported, match=r"RabbitMQ .* \(backend 'new'\) does not deduplicate"):
        bare.backend().register(Job(kind="work", idempotency_key="key"))
    with pytest.raises(Unsupported, match=r"\(backend 'new'\) has no stats"):
        bare.backend().stats()


def test_jobs_move_behind_an_outbox_and_every_key_is_one_job(behind: Stage) -> None:
    with behind.relaying():
        with Traffic(behind) as traffic:
            traffic.until_more(100)
            assert behind.migrate(batch=10).state is Phase.SEALED
            traffic.until_more(100)
            assert behind.coordinator().complete().state is Phase.COMPLETED
            traffic.until_more(100)
        drain(behind.backend(), traffic.ran, len(traffic.registered))
    assert_each_ran_once(traffic.registered, traffic.ran)
    assert traffic.failures == []


def test_jobs_come_back_from_behind_an_outbox_and_every_key_is_one_job(behind: Stage) -> None:
    """What waits in the outbox comes along, also for its time, and with what became of it in between."""
    with behind.relaying():
        with Traffic(behind) as traffic:
            traffic.until_more()
            behind.migrate(batch=10)
            traffic.until_more()
            later = Job(kind="later", queue="mail", run_at=datetime.now(UTC) + HOUR, idempotency_key="later")
            assert behind.backend().register(later).created
            assert behind.reverse(batch=10).home == "old"
            traffic.until_more()
        drain(behind.backend(), traffic.ran, len(traffic.registered))
    assert_each_ran_once(traffic.registered, traffic.ran)
    assert traffic.failures == []
    stored = behind.backend("old").get(later.id)
    assert stored is not None
    assert stored.job is not None
    assert (stored.state, stored.job.run_at) == (State.READY, later.run_at)
    again = Job(kind="later", queue="mail", idempotency_key="later")
    assert behind.backend().register(again).job_id == later.id


@pytest.mark.parametrize("host", ["postgres", "sqlite"])
def test_what_no_relay_published_moves_all_the_same(
    make_stage: MakeStage, request: pytest.FixtureRequest, broker_url: str, tmp_path: Path, host: str
) -> None:
    file = f"sqlite:///{tmp_path}/old.db"
    old = file if host == "sqlite" else str(request.getfixturevalue("postgres_url"))
    behind = make_stage("old", outbox="old", old=old, new=broker_url)
    behind.migrate()
    backend = behind.backend()
    made = [Job(kind="work", idempotency_key=f"key {n}") for n in range(COUNT)]
    backend.register_many(made)
    run_and_die(behind, "reverse", "admitted", 1)
    assert behind.resume(batch=7).home == "old"
    ran: list[UUID] = []
    drain(backend, ran, COUNT)
    assert_each_ran_once([job.id for job in made], ran)
    for job in made:
        assert backend.register(Job(kind="work", idempotency_key=job.idempotency_key)).job_id == job.id


from_every_store = pytest.mark.parametrize(
    "broker_stage",
    [
        "postgres-rabbitmq",
        pytest.param("sqlite-rabbitmq", marks=pytest.mark.slow),
        pytest.param("redis-rabbitmq", marks=pytest.mark.slow),
    ],
    indirect=True,
)


@from_every_store
def test_everything_about_a_job_arrives(broker_stage: Stage) -> None:
    bare = broker_stage
    old = bare.backend("old")
    failed, dead = Job(kind="c"), Job(kind="d")
    old.register(dead)
    old.fail(old.claim()[0], "never", permanent=True)
    old.register(failed)
    old.fail(old.claim()[0], "not yet", retry_in=timedelta())
    plain = Job(kind="a", input_ref={"text": "Straße", "n": 12345678901234567890}, headers={"trace": "1"})
    urgent = Job(kind="b", priority=7, max_attempts=9, queue="mail")
    soon = Job(kind="e", run_at=datetime.now(UTC) + SOON)
    old.register_many([plain, urgent, soon])
    bare.migrate()
    new = bare.backend("new")
    came: dict[UUID, Claim] = {}

    def all_came() -> bool:
        came.update({each.job.id: each for each in new.claim(queues=["default", "mail"], limit=10)})
        return len(came) == 4

    until(all_came)
    assert soon.run_at is not None
    assert datetime.now(UTC) >= soon.run_at
    for made in (plain, urgent, failed, soon):
        assert without_run_at(came[made.id].job) == without_run_at(made)
    assert {made: came[made].attempt for made in came} == {
        plain.id: 1,
        urgent.id: 1,
        soon.id: 1,
        failed.id: 2,
    }
    dead_letters = bare.store("new")
    assert isinstance(dead_letters, DeadLetters)
    (buried,) = dead_letters.dead(Page())
    assert (buried.record.id, buried.last_error, buried.attempt) == (str(dead.id), "never", 1)
    assert dead_letters.revive([str(dead.id)]) == [True]
    assert [claim.attempt for claim in claim_when_there(new)] == [2]


@from_every_store
def test_everything_about_a_job_goes_there_and_comes_back(broker_stage: Stage) -> None:
    """A broker can't be asked what it holds; what comes back is as it was when it went."""
    old = broker_stage.backend("old")
    dead, failed, plain = Job(kind="dead"), Job(kind="failed", max_attempts=9), Job(kind="plain")
    run_at = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    later = Job(kind="later", queue="mail", run_at=run_at, priority=7, headers={"trace": "1"})
    old.register(dead)
    old.fail(old.claim()[0], "never", permanent=True)
    old.register(failed)
    old.fail(old.claim()[0], "not yet", retry_in=HOUR)
    old.register_many([plain, later])
    before = all_jobs(broker_stage.store("old"))
    assert len(before) == 4
    broker_stage.migrate()
    assert all_jobs(broker_stage.store("old")) == {}
    broker_stage.reverse()
    after = all_jobs(broker_stage.store("old"))
    assert before.keys() == after.keys()
    for job_id, was in before.items():
        assert in_milliseconds(after[job_id]) == in_milliseconds(was)


@pytest.mark.parametrize(("point", "after"), [("hidden", 2), ("admitted", 1), ("admitted", 3), ("buried", 2)])
def test_what_was_sent_again_after_a_kill_runs_once(bare: Stage, point: str, after: int) -> None:
    """Killed with -9 between two effects of a batch of 7, and gone on with."""
    made = [Job(kind="work", input_ref={"n": n}) for n in range(COUNT)]
    bare.backend("old").register_many(made)
    run_and_die(bare, "begin", point, after)
    backend = bare.backend()
    ran: list[UUID] = []
    drain(backend, ran, 1)  # some of what came runs before the others come
    assert bare.resume(batch=7).state is Phase.SEALED
    drain(backend, ran, COUNT)
    assert bare.coordinator().complete().state is Phase.COMPLETED
    drain(backend, ran, COUNT)
    assert_each_ran_once([job.id for job in made], ran)


def test_a_second_copy_is_dropped_however_late_it_comes(bare: Stage) -> None:
    """A job failed at the broker and waits for its retry when its other copy is claimed."""
    made = Job(kind="work")
    bare.backend("old").register(made)
    run_and_die(bare, "begin", "admitted", 1)
    backend = bare.backend()
    (claim,) = claim_when_there(backend)
    assert bare.resume().state is Phase.SEALED
    backend.fail(claim, "again", retry_in=timedelta(seconds=1))
    assert bare.coordinator().complete().state is Phase.COMPLETED
    (again,) = claim_when_there(backend)
    assert (again.job.id, again.attempt) == (made.id, 2)
    backend.complete(again)
    assert backend.claim(limit=10) == []


def test_a_key_that_was_registered_before_is_one_job(behind: Stage) -> None:
    backend = behind.backend()
    ready, done = Job(kind="a", idempotency_key="ready"), Job(kind="b", idempotency_key="done")
    backend.register(done)
    backend.complete(backend.claim()[0])
    backend.register(ready)
    behind.migrate()
    behind.coordinator().complete()
    for made in (ready, done):
        again = Job(kind=made.kind, idempotency_key=made.idempotency_key)
        answer = backend.register(again)
        assert (answer.job_id, answer.created, answer.conflict) == (made.id, False, False)
    assert [claim.job.id for claim in backend.claim(limit=10)] == [ready.id]


def test_the_plan_says_what_a_broker_can_not_do(bare: Stage, behind: Stage) -> None:
    bare.backend("new").install()
    plan = make_plan(bare.settings, "old", "new", bare.control())
    assert plan.refusals == []
    assert any("idempotency key are refused" in each for each in plan.notes)
    assert any("run_at ahead are refused" in each for each in plan.notes)
    assert any("can't be looked at" in each for each in plan.notes)
    behind.backend("new").install()
    plan = make_plan(behind.settings, "old", "new", behind.control())
    assert not any("refused" in each for each in plan.notes)


def test_nothing_claims_that_stores_were_compared_which_were_not(bare: Stage) -> None:
    bare.backend("old").register_many([Job(kind="work") for _ in range(3)])
    there = bare.jobctl("migrate", "--from", "old", "--to", "new", "--yes")
    assert there.returncode == 0, there.stderr
    assert "The stores were not compared: jobs at new can't be looked up" in there.stdout
    assert "none differs" not in there.stdout
    report = json.loads(bare.jobctl("migrate", "report", "--json").stdout)
    assert (report["compared"], report["differences"]) == (None, None)
    assert "can't be looked up" in report["not_compared"]
    for verb in (["verify"], ["repair", "--yes"]):
        refused = bare.jobctl("migrate", *verb)
        assert (refused.returncode, "can't be looked up" in refused.stderr) == (2, True), refused.stdout
    back = bare.jobctl("migrate", "reverse", "--yes")
    assert back.returncode == 0, back.stderr
    assert "Compared 3 moved jobs; 0 differ." in back.stdout
    assert "The stores were not compared" not in back.stdout


def without_run_at(job: Job) -> Job:
    return job.model_copy(update={"run_at": None})

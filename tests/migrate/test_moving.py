"""Jobs move from one store to another, and back, while producers and workers go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from jobcontract_migrate import Phase
from jobcontract_migrate.coordinator import Interrupted

from jobcontract import Job, State
from jobcontract.side_doors import StoredJob
from tests.migrate.stage import Stage, Traffic, all_jobs, assert_each_ran_once, drain

HOUR = timedelta(hours=1)


def test_jobs_move_while_producers_and_workers_go_on(stage: Stage) -> None:
    with Traffic(stage) as traffic:
        traffic.until_more()
        assert stage.migrate().state is Phase.SEALED
        traffic.until_more()
    drain(stage.backend(), traffic.ran, len(traffic.registered))
    assert_each_ran_once(traffic.registered, traffic.ran)
    assert traffic.failures == []


def test_jobs_move_there_and_back_and_there_again(stage: Stage) -> None:
    with Traffic(stage) as traffic:
        traffic.until_more()
        stage.migrate()
        traffic.until_more()
        move = stage.reverse()
        assert (move.source, move.target, move.home) == ("new", "old", "old")
        traffic.until_more()
        move = stage.reverse()
        assert (move.source, move.target, move.home) == ("old", "new", "new")
        traffic.until_more()
        assert stage.coordinator().complete().state is Phase.COMPLETED
        traffic.until_more()
    drain(stage.backend(), traffic.ran, len(traffic.registered))
    assert_each_ran_once(traffic.registered, traffic.ran)
    assert traffic.failures == []


def test_everything_about_a_job_arrives(stage: Stage) -> None:
    old = stage.backend("old")
    run_at = datetime(2050, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    plain = Job(kind="a", input_ref={"text": "Straße", "n": 12345678901234567890}, headers={"trace": "1"})
    scheduled = Job(kind="b", queue="mail", run_at=run_at, priority=7, max_attempts=9, idempotency_key="k")
    failed = Job(kind="c")
    dead = Job(kind="d", idempotency_key="dead")
    cancelled = Job(kind="e", run_at=run_at)
    done = Job(kind="f", idempotency_key="done")
    old.register_many([failed])
    old.fail(old.claim()[0], "not yet", retry_in=HOUR)
    old.register(dead)
    old.fail(old.claim()[0], "never", permanent=True)
    old.register(done)
    old.complete(old.claim()[0])
    old.register_many([plain, scheduled, cancelled])
    old.cancel(cancelled.id)
    before = all_jobs(stage.store("old"))
    stage.migrate()
    after = all_jobs(stage.store("new"))
    assert before.keys() == after.keys()
    for job_id, was in before.items():
        assert in_milliseconds(after[job_id]) == in_milliseconds(was)
    assert all_jobs(stage.store("old")).keys() == {str(done.id)}
    new = stage.backend("new")
    for holder in (scheduled, dead, done):
        again = Job(kind="x", queue=holder.queue, idempotency_key=holder.idempotency_key)
        answer = new.register(again)
        assert (answer.job_id, answer.created, answer.conflict) == (holder.id, False, True)
    assert new.requeue(dead.id) is State.READY
    assert {claim.job.id for claim in new.claim(limit=10)} == {plain.id, dead.id}


def test_a_job_that_runs_at_the_source_ends_there(stage: Stage) -> None:
    backend = stage.backend()
    ends, fails = Job(kind="a", idempotency_key="a"), Job(kind="b", idempotency_key="b")
    backend.register_many([ends, fails])
    claims = {claim.job.id: claim for claim in backend.claim(limit=2, lease=HOUR)}
    coordinator = stage.coordinator()
    coordinator.begin("old", "new", {"first_source": "old"})
    coordinator.run(Phase.MOVING)
    for key, holder in (("a", ends), ("b", fails)):  # while they run there, their keys are held
        answer = backend.register(Job(kind="x", idempotency_key=key))
        assert (answer.job_id, answer.created) == (holder.id, False)
    backend.complete(claims[ends.id])
    backend.fail(claims[fails.id], "again", retry_in=timedelta())
    assert stage.resume().state is Phase.SEALED
    assert [(claim.job.id, claim.attempt) for claim in backend.claim(limit=10)] == [(fails.id, 2)]
    answer = stage.backend("new").register(Job(kind="x", idempotency_key="a"))
    assert (answer.job_id, answer.state) == (ends.id, State.DONE)


def test_a_key_conflict_is_reported_and_swallows_nothing(stage: Stage) -> None:
    stage.backend("new").install()
    theirs, ours = Job(kind="theirs", idempotency_key="k"), Job(kind="ours", idempotency_key="k")
    stage.backend("new").register(theirs)
    stage.backend("old").register(ours)
    move = stage.migrate()
    (conflict,) = stage.control().conflicts(move)
    assert (conflict.job_id, conflict.holder_id) == (str(ours.id), str(theirs.id))
    assert {claim.job.id for claim in stage.backend().claim(limit=10)} == {theirs.id, ours.id}


def test_nothing_to_move_is_a_move(stage: Stage) -> None:
    assert stage.migrate().state is Phase.SEALED
    assert stage.reverse().state is Phase.SEALED
    assert stage.backend().claim() == []


def test_a_paused_queue_stays_paused(stage: Stage) -> None:
    backend = stage.backend()
    backend.pause("mail")
    backend.register(Job(kind="a", queue="mail"))
    stage.migrate()
    assert backend.claim(queues=["mail"]) == []
    backend.resume("mail")
    assert len(backend.claim(queues=["mail"])) == 1


def in_milliseconds(stored: StoredJob) -> StoredJob:
    """As Redis keeps instants; a run_at it keeps exactly."""

    def cut(at: datetime | None) -> datetime | None:
        return None if at is None else at.replace(microsecond=at.microsecond // 1000 * 1000)

    created_at, finished_at, run_at = (
        cut(stored.created_at),
        cut(stored.finished_at),
        cut(stored.record.run_at),
    )
    assert created_at is not None
    record = stored.record._replace(run_at=run_at)
    return stored._replace(record=record, created_at=created_at, finished_at=finished_at)


def test_a_stop_is_heeded_between_two_batches(files: Stage) -> None:
    """And what was hidden has arrived by then: nobody could claim it, for as long as nobody goes on."""
    files.backend("old").register_many([Job(kind="a") for _ in range(50)])

    def reach(point: str) -> None:
        if point == "buried":
            coordinator.stop()

    coordinator = files.coordinator(reach=reach, batch=7)
    coordinator.begin("old", "new", {"first_source": "old"})
    with pytest.raises(Interrupted):
        coordinator.run(Phase.SEALED)
    assert files.movable("old").hidden(50) == []
    left, arrived = (len(all_jobs(files.store(name))) for name in ("old", "new"))
    assert (left + arrived, left > 0, arrived > 0) == (50, True, True)
    coordinator.close()
    assert files.resume().state is Phase.SEALED
    assert len(all_jobs(files.store("new"))) == 50

"""What happened behind our back is found, named, and mended where it can be."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest
from jobcontract_migrate import Phase
from jobcontract_migrate.coordinator import VerificationFailed

from jobcontract import Job
from jobcontract.contract import MovedJob, State
from tests.migrate.stage import Stage, all_jobs


@pytest.fixture
def spoilt(files: Stage) -> tuple[Stage, list[Job]]:
    """A move up to the comparison, with one job missing, one altered and one added at the target."""
    made = [Job(kind="work", input_ref={"n": n}, idempotency_key=f"key {n}") for n in range(12)]
    files.backend("old").register_many(made)
    coordinator = files.coordinator(batch=5)
    coordinator.begin("old", "new", {"first_source": "old"})
    coordinator.run(Phase.VERIFYING)
    path = files.settings.store("new").url.path.removeprefix("/")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM jobcontract_jobs WHERE id = ?", (str(made[3].id),))
        connection.execute(
            "UPDATE jobcontract_jobs SET input_ref = '{}', priority = 9 WHERE id = ?", (str(made[7].id),)
        )
    added = Job(kind="planted")
    record = added.to_record()._replace(run_at=datetime(2020, 1, 1, tzinfo=UTC))
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    epoch = files.movable("new").gate().epoch
    files.movable("new").admit(epoch, [MovedJob(record, State.READY, 0, 0, long_ago, None, None)])
    return files, [made[3], made[7], added]


def test_planted_differences_are_found_and_named(spoilt: tuple[Stage, list[Job]]) -> None:
    stage, (missing, altered, added) = spoilt
    with pytest.raises(VerificationFailed) as caught:
        stage.resume()
    found = {each.job_id: (each.finding, each.detail) for each in caught.value.differences}
    assert found == {
        str(missing.id): ("missing", "a ready job of 'default'"),
        str(altered.id): ("altered", "priority, input_ref"),
        str(added.id): ("added", "a ready job of 'default' that never was at the source"),
    }
    assert stage.move().state is Phase.VERIFYING


def test_a_missing_job_is_restored(spoilt: tuple[Stage, list[Job]]) -> None:
    stage, (missing, altered, added) = spoilt
    restored, left = stage.coordinator().repair()
    assert restored == 1
    assert {each.job_id for each in left} == {str(altered.id), str(added.id)}
    stored = all_jobs(stage.store("new"))[str(missing.id)]
    assert stored.record.idempotency_key == missing.idempotency_key


def test_the_command_says_so_with_exit_code_3(spoilt: tuple[Stage, list[Job]]) -> None:
    stage, (missing, _, _) = spoilt
    ran = stage.jobctl("migrate", "resume")
    assert ran.returncode == 3, ran.stderr
    assert f"{missing.id} missing" in ran.stdout
    assert stage.jobctl("migrate", "verify", "--json").returncode == 3
    ran = stage.jobctl("migrate", "repair", "--yes")
    assert (ran.returncode, "1 jobs were restored" in ran.stdout) == (3, True)


def test_jobs_that_go_on_at_the_target_are_no_difference(stage: Stage) -> None:
    """They run, fail, are cancelled and requeued while the stores are compared."""
    stage.backend("old").register_many([Job(kind="work") for _ in range(6)])
    coordinator = stage.coordinator()
    coordinator.begin("old", "new", {"first_source": "old"})
    coordinator.run(Phase.VERIFYING)
    backend = stage.backend()
    done, failed, dead, running = backend.claim(limit=4)
    backend.complete(done)
    backend.fail(failed, "again")
    backend.fail(dead, "never", permanent=True)
    backend.register(Job(kind="new"))
    assert running.attempt == 1
    assert list(coordinator.verify(stage.move())) == []
    assert stage.resume().state is Phase.SEALED

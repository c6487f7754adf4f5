"""What happened behind our back is found, named, and mended where it can be."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from uuid import UUID

import psycopg
import pytest
from jobcontract_migrate import Phase
from jobcontract_migrate.coordinator import VerificationFailed
from jobcontract_migrate.verify import LAST_ID

from jobcontract import Job
from jobcontract.contract import State
from jobcontract.side_doors import MovedJob
from jobcontract.url import StoreURL
from tests.migrate.conftest import MakeStage
from tests.migrate.stage import Stage, all_jobs, claim_when_there
from tests.servers.redis import RedisServer

KINDS = ["sqlite", "postgres", "redis"]


def spoil_sqlite(url: str, missing: UUID, altered: UUID) -> None:
    with closing(sqlite3.connect(StoreURL.parse(url).path.removeprefix("/"))) as connection, connection:
        connection.execute("DELETE FROM jobcontract_jobs WHERE id = ?", (str(missing),))
        connection.execute("UPDATE jobcontract_jobs SET input_ref = '{}' WHERE id = ?", (str(altered),))


def spoil_postgres(url: str, missing: UUID, altered: UUID) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM jobcontract.live_jobs WHERE id = %s", (missing,))
        connection.execute("UPDATE jobcontract.live_jobs SET input_ref = '{}' WHERE id = %s", (altered,))


def spoil_redis(server: RedisServer, url: str, missing: UUID, altered: UUID) -> None:
    namespace = url.partition("?namespace=")[2]
    for each in server.ask("KEYS", f"*{namespace}*"):
        key = each.decode()
        if key.endswith(f":{missing}"):
            server.ask("DEL", key)
        elif server.ask("TYPE", key) in (b"zset", "zset"):
            server.ask("ZREM", key, str(missing))
        elif key.endswith(f"b:{altered}"):
            body = server.ask("GET", key).decode()
            assert "as it was" in body
            server.ask("SET", key, body.replace("as it was", "otherwise"))


@pytest.fixture(params=KINDS)
def spoilt(request: pytest.FixtureRequest, make_stage: MakeStage, tmp_path: Path) -> tuple[Stage, list[Job]]:
    """A move up to the comparison, with one job missing, one altered and one added at the target."""
    spoil: Callable[[str, UUID, UUID], None]
    match request.param:
        case "sqlite":
            spoil, target = spoil_sqlite, f"sqlite:///{tmp_path}/new.db"
        case "postgres":
            spoil, target = spoil_postgres, str(request.getfixturevalue("postgres_url"))
        case _:
            server: RedisServer = request.getfixturevalue("redis_server")
            spoil, target = partial(spoil_redis, server), f"{server.url()}?namespace={token_hex(8)}"
    stage = make_stage("old", old=f"sqlite:///{tmp_path}/old.db", new=target)
    made = [
        Job(kind="work", input_ref={"n": n, "text": "as it was"}, idempotency_key=f"key {n}")
        for n in range(12)
    ]
    stage.backend("old").register_many(made)
    coordinator = stage.coordinator(batch=5)
    coordinator.begin("old", "new", {"first_source": "old"})
    coordinator.run(Phase.VERIFYING)
    spoil(target, made[3].id, made[7].id)
    added = Job(kind="planted")
    record = added.to_record()._replace(run_at=datetime(2020, 1, 1, tzinfo=UTC))
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    epoch = stage.movable("new").gate().epoch
    stage.movable("new").admit(epoch, [MovedJob(record, State.READY, 0, 0, long_ago, None, None)])
    coordinator.close()
    return stage, [made[3], made[7], added]


def test_planted_differences_are_found_and_named(spoilt: tuple[Stage, list[Job]]) -> None:
    stage, (missing, altered, added) = spoilt
    with pytest.raises(VerificationFailed) as caught:
        stage.resume()
    found = {each.job_id: (each.finding, each.detail) for each in caught.value.differences}
    assert found == {
        str(missing.id): ("missing", "a ready job of 'default'"),
        str(altered.id): ("altered", "input_ref"),
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


def test_what_ended_elsewhere_before_a_reversal_is_not_missed_later(stage: Stage) -> None:
    """It left a trace that never comes back to life: stored again by `repair`, it would run twice."""
    backend = stage.backend()
    made = [Job(kind="work", idempotency_key=key) for key in ("one", None)]
    backend.register_many(made)
    stage.migrate()
    backend.complete_many(claim_when_there(backend, 2))
    stage.reverse()
    stage.coordinator().complete()
    source = stage.movable("old")
    assert source.buried(LAST_ID, 10) == []
    assert {stored.state for stored in all_jobs(stage.store("old")).values()} <= {State.DONE}
    again = backend.register(Job(kind="work", idempotency_key="one"))
    assert (again.created, again.job_id) == (False, made[0].id)


def test_a_target_that_holds_other_jobs_keeps_them(stage: Stage) -> None:
    """They are no difference, they run with the others, and they stay when it is reversed."""
    new, old = stage.backend("new"), stage.backend("old")
    new.install()
    theirs = {name: Job(kind="theirs") for name in ("done", "dead", "ready")}
    new.register(theirs["done"])
    new.complete(new.claim()[0])
    new.register(theirs["dead"])
    new.fail(new.claim()[0], "no", permanent=True)
    new.register(theirs["ready"])
    ours = [Job(kind="ours", run_at=datetime.now(UTC) + timedelta(hours=1) if n else None) for n in range(3)]
    old.register_many(ours)
    assert stage.migrate().state is Phase.SEALED
    assert list(stage.coordinator().verify(stage.move())) == []
    found = {job_id: each.state for job_id, each in all_jobs(stage.store("new")).items()}
    assert found == {
        str(theirs["done"].id): State.DONE,
        str(theirs["dead"].id): State.DEAD,
        str(theirs["ready"].id): State.READY,
    } | {str(job.id): State.READY for job in ours}
    assert {claim.job.id for claim in stage.backend().claim(limit=10)} == {theirs["ready"].id, ours[0].id}


def test_there_is_nothing_to_find_in_empty_stores(files: Stage) -> None:
    before = files.jobctl("migrate", "verify")
    assert (before.returncode, "no migration is under way" in before.stderr) == (2, True)
    files.migrate()
    for _ in range(2):
        ran = files.jobctl("migrate", "verify")
        assert (ran.returncode, ran.stdout) == (0, "no differences\n"), ran.stderr
    ran = files.jobctl("migrate", "repair", "--yes")
    assert (ran.returncode, ran.stdout) == (0, "0 jobs were restored\nno differences\n"), ran.stderr

"""Short runs of the laboratory: all of it works, and the promises hold. `make faults` has the long ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.__main__ import again
from tests.faults.laboratory import Laboratory, Report, Scenario
from tests.faults.moving_stages import FilesToFiles
from tests.faults.plan import Plan, now
from tests.faults.stages import PostgresStage, RedisStage, SQLiteStage
from tests.servers.binaries import Programs, Service

Run = Callable[[Scenario], Report]


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    """Runs a scenario with a fixed seed."""

    def programs(service: Service) -> Programs:
        found = request.getfixturevalue(f"{service}_programs")
        assert isinstance(found, Programs)
        return found

    def run(scenario: Scenario) -> Report:
        return Laboratory(scenario, 7, tmp_path, programs).run()

    return run


def assert_kept(report: Report) -> None:
    """No promise was broken by a run in which something happened."""
    assert [str(violation) for violation in report.violations] == []
    assert report.thin == []
    assert report.lost == 0
    assert report.acknowledged > 50
    assert report.executions > 50


def test_workers_on_a_file_are_killed_and_frozen(run: Run) -> None:
    faults = ("kill a worker", "freeze a worker")
    report = run(Scenario(name="short", stage=SQLiteStage, faults=faults, jobs=60, workers=2, schedulers=1))
    assert_kept(report)
    assert report.faults == {"freeze a worker": 1, "kill a worker": 1}


def test_connections_to_postgresql_are_cut_and_its_clients_thrown_out(
    run: Run, postgres_programs: Programs
) -> None:
    faults = ("lost replies", "throw out the clients", "kill a worker")
    report = run(Scenario(name="short", stage=PostgresStage, faults=faults, jobs=60, workers=2, schedulers=1))
    assert_kept(report)
    assert report.rolled_back > 0


def test_redis_is_killed_and_its_replies_are_lost(run: Run, redis_programs: Programs) -> None:
    faults = ("kill the server", "lost replies", "forget the scripts", "reset connections")
    assert_kept(
        run(
            Scenario(
                name="short", stage=RedisStage, faults=faults, jobs=100, producers=1, workers=2, schedulers=1
            )
        )
    )


def test_jobs_move_though_the_coordinator_is_killed(run: Run) -> None:
    report = run(
        Scenario(
            name="short",
            stage=FilesToFiles,
            faults=("kill the coordinator",),
            jobs=100,
            producers=1,
            pace=0.2,
            workers=2,
            schedulers=1,
            odd=False,
            back=False,
        )
    )
    assert_kept(report)
    assert report.moved > 0
    assert report.refused > 0


def test_a_seed_decides_the_plan() -> None:
    plan, other = Plan("1/producer-1", 200), Plan("2/producer-1", 200)
    assert list(plan.batches()) == list(plan.batches())
    assert list(plan.batches()) != list(other.batches())
    jobs = [job for batch in plan.batches() for job in batch.jobs(now())]
    assert len({job.id for job in jobs}) == 200
    assert {job.id.version for job in jobs} == {7}


def test_the_command_that_is_printed_makes_the_same_plan() -> None:
    assert again("sqlite", 42, None, None) == "python -m tests.faults sqlite --seed 42"
    assert again("sqlite", 42, 5000, 2) == "python -m tests.faults sqlite --seed 42 --jobs 5000 --rounds 2"

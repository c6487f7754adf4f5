"""A coordinator is killed with -9 at each named point, and another one goes on: nothing is lost, nothing runs
twice.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from jobcontract_migrate import Phase

from jobcontract import Job
from tests.migrate.stage import Stage, all_jobs, assert_each_ran_once, drain, run_and_die

COUNT = 25


class Killed(BaseException):
    """The coordinator ends where it is: as after a kill, nothing of its own runs any more."""


def killing_at(number: int, names: list[str]) -> Callable[[str], None]:
    """What raises `Killed` at the `number`-th point that is reached, and writes down their names."""

    def reach(point: str) -> None:
        names.append(point)
        if len(names) == number:
            raise Killed(point)

    return reach


def begin_and_die(stage: Stage, number: int, names: list[str]) -> bool:
    """Whether it came to its end before the `number`-th point."""
    coordinator = stage.coordinator(reach=killing_at(number, names), batch=7)
    try:
        coordinator.begin("old", "new", {"first_source": "old"})
        coordinator.run(Phase.SEALED)
    except Killed:
        stage.forget_owner()  # in this process it is alive for whoever asks the machine
        return False
    return True


def fill(stage: Stage) -> list[Job]:
    """Ready, dead and running jobs, with keys and without, at the old store; one of them runs."""
    old = stage.backend("old")
    made = [
        Job(kind="work", input_ref={"n": n}, idempotency_key=f"key {n}" if n % 2 else None)
        for n in range(COUNT)
    ]
    old.register_many(made)
    return made


@pytest.mark.slow
def test_every_point_can_be_the_last(make_files: Callable[[], Stage]) -> None:
    """One after the other, until there is no further point. In one process: what a kill leaves is what the
    stores hold; see the next test for processes.
    """
    points: list[str] = []
    number = 0
    finished = False
    while not finished:
        number += 1
        stage = make_files()
        made = fill(stage)
        names: list[str] = []
        finished = begin_and_die(stage, number, names)
        points = max(points, names, key=len)
        assert stage.resume(batch=7).state is Phase.SEALED, names
        ran: list[UUID] = []
        drain(stage.backend(), ran, COUNT)
        assert_each_ran_once([job.id for job in made], ran)
        assert all_jobs(stage.store("old")) == {}
        for job in made:
            if job.idempotency_key is not None:
                again = Job(kind="work", idempotency_key=job.idempotency_key)
                assert stage.backend("new").register(again).job_id == job.id
        stage.close()
    assert set(points) >= {
        "begun", "installed", "canary", "fencing", "now fencing", "gates of fencing", "fenced", "crossed",
        "keys copied", "all keys copied", "hidden", "admitted", "buried", "drained", "verified", "now sealed",
        "gates of sealed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("point", "after"),
    [
        ("begun", 1),
        ("now fencing", 1),
        ("gates of fencing", 1),
        ("crossed", 1),
        ("hidden", 2),
        ("admitted", 1),
        ("buried", 3),
        ("now sealed", 1),
    ],
)
def test_a_killed_process_is_gone_on_from_at_once(files: Stage, point: str, after: int) -> None:
    _killed_and_gone_on_from(files, point, after)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["gates of fencing", "crossed", "hidden", "admitted", "buried", "now sealed"]
)
def test_it_is_the_same_for_every_pair(stage: Stage, point: str) -> None:
    _killed_and_gone_on_from(stage, point, 1)


def _killed_and_gone_on_from(stage: Stage, point: str, after: int) -> None:
    made = fill(stage)
    run_and_die(stage, "begin", point, after)
    assert stage.resume(batch=7).state is Phase.SEALED
    ran: list[UUID] = []
    drain(stage.backend(), ran, COUNT)
    assert_each_ran_once([job.id for job in made], ran)


@pytest.mark.parametrize(("point", "after"), [("reversing", 1), ("now dual_read", 1), ("admitted", 2)])
def test_a_reverse_that_was_killed_is_gone_on_with(files: Stage, point: str, after: int) -> None:
    made = fill(files)
    files.migrate(batch=7)
    run_and_die(files, "reverse", point, after)
    move = files.move()
    if move.source == "old":  # it had not turned round yet
        assert files.reverse().state is Phase.SEALED
    else:
        assert files.resume().state is Phase.SEALED
    assert files.move().home == "old"
    ran: list[UUID] = []
    drain(files.backend(), ran, COUNT)
    assert_each_ran_once([job.id for job in made], ran)


def test_a_completion_that_was_killed_is_gone_on_with(files: Stage) -> None:
    fill(files)
    files.migrate(batch=7)
    run_and_die(files, "complete", "forgotten", 1)
    assert files.move().state is Phase.SEALED
    assert files.coordinator().complete().state is Phase.COMPLETED
    assert all_jobs(files.store("old")) == {}
    assert len(all_jobs(files.store("new"))) == COUNT

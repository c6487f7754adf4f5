"""A run in which nothing was broken, because nothing happened, is no pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.facts import Facts
from tests.faults.history import Outcome
from tests.faults.laboratory import Scenario, measure, too_little
from tests.faults.moving_stages import FilesToFiles
from tests.faults.stages import PostgresStage, SQLiteStage, Stage
from tests.faults.story import Story


def told(story: Story, stage: type[Stage], *faults: str, jobs: int = 2) -> list[str]:
    """What is said about a run of one producer."""
    scenario = Scenario(name="short", stage=stage, faults=faults, jobs=jobs, producers=1)
    facts = Facts(story.history)
    return list(too_little(facts, measure(facts, "short", 1), scenario))


def enough(story: Story) -> None:
    """Two jobs that ran, and one that waits."""
    for job in ("j", "k"):
        story.register(job)
        story.tell("start", {"id": job, "wall": story.now})
        story.tell("end", {"id": job})
    story.register("waits")


def test_enough_is_enough() -> None:
    story = Story()
    enough(story)
    story.fault("kill the server")
    assert told(story, PostgresStage, "kill the server") == []


def nobody_registered(story: Story) -> None:
    story.finish("j")


def nothing_ran(story: Story) -> None:
    story.register("j")
    story.register("k")


def struck_nobody(story: Story) -> None:
    enough(story)
    story.tell("fault", {"name": "kill the server"}, by="nemesis", outcome=Outcome.FAIL)


def nothing_to_lose(story: Story) -> None:
    story.fault("kill the server")
    enough(story)


@pytest.mark.parametrize(
    ("tell", "says"),
    [
        (nobody_registered, "only 0 jobs of 2 were acknowledged"),
        (nothing_ran, "only 0 executions of 2 jobs"),
        (struck_nobody, "kill the server: struck nobody"),
        (nothing_to_lose, "nothing was there to be lost when it came to kill the server"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_too_little_is_said(tell: Callable[[Story], None], says: str) -> None:
    story = Story()
    tell(story)
    assert says in told(story, PostgresStage, "kill the server")


@pytest.mark.parametrize(
    ("outcome", "lasts", "thin"),
    [
        (Outcome.OK, 0.1, ["fill a disk: nobody felt it"]),
        (Outcome.OK, 1.0, []),
        (Outcome.UNKNOWN, 0.1, []),
        (Outcome.FAIL, 0.1, []),
    ],
    ids=["answered at once", "waited", "no answer", "refused"],
)
def test_somebody_has_to_feel_that_something_is_short(
    outcome: Outcome, lasts: float, thin: list[str]
) -> None:
    story = Story()
    enough(story)
    story.fault("fill a disk")
    story.now -= 0.5
    story.tell("register", {"jobs": []}, [], by="producer-1", outcome=outcome, lasts=lasts)
    assert told(story, SQLiteStage, "fill a disk") == thin


@pytest.mark.parametrize(("wall", "thin"), [(0.0, ["nothing ran where the clock was shifted"]), (3600.0, [])])
def test_a_shifted_clock_has_to_have_run_something(wall: float, thin: list[str]) -> None:
    story = Story()
    enough(story)
    story.fault("shift a clock")
    story.tell("start", {"id": "waits", "wall": story.now + wall}, by="worker-2")
    assert told(story, SQLiteStage, "shift a clock") == thin


def test_a_move_has_to_move_something_and_to_refuse_somebody() -> None:
    story = Story()
    enough(story)
    assert told(story, FilesToFiles) == ["only 0 jobs were moved", "nobody was refused by the fence"]
    story.tell("admit", {"epoch": 3, "jobs": [{"id": "j"}]}, [], by="coordinator-1")
    story.register("q", by="stale-1", outcome=Outcome.FAIL)
    assert told(story, FilesToFiles) == []

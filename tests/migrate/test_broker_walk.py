"""A coordinator ends at every named point of a move to and from a broker, and another one goes on, or turns
round: nothing is lost, nothing runs twice. Some jobs run in between, and what was sent twice is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from jobcontract_migrate import Phase
from jobcontract_migrate.states import BEHIND_THE_FENCE

from jobcontract import Job
from tests.migrate.conftest import MakeStage
from tests.migrate.stage import Stage, assert_each_ran_once, drain
from tests.migrate.test_killing import Killed, killing_at

pytestmark = pytest.mark.slow

COUNT = 12
BATCH = 5
SHARES = 6
"""The walk is taken in so many parts, each of every sixth point."""


@pytest.mark.parametrize("share", range(1, SHARES + 1))
@pytest.mark.parametrize("turns_round", [False, True], ids=["goes on", "turns round"])
@pytest.mark.parametrize("leaves", [False, True], ids=["to the broker", "from the broker"])
def test_every_point_can_be_the_last(
    make_stage: MakeStage, broker_url: str, tmp_path: Path, leaves: bool, turns_round: bool, share: int
) -> None:
    number = share
    names: list[str] = []
    finished = False
    while not finished:
        file = f"sqlite:///{tmp_path}/{number}.db"
        urls = {"old": broker_url, "new": file} if leaves else {"old": file, "new": broker_url}
        stage = make_stage("new" if leaves else "old", **urls)
        made = [Job(kind="work", input_ref={"n": n}) for n in range(COUNT)]
        stage.backend("old").register_many(made)
        names.clear()
        finished = begin_and_die(stage, killing_at(number, names))
        backend = stage.backend()
        ran: list[UUID] = []
        for claim in backend.claim(limit=2):
            backend.complete(claim)
            ran.append(claim.job.id)
        if turns_round and stage.move().state in BEHIND_THE_FENCE:
            assert stage.reverse(batch=BATCH).state is Phase.SEALED, names
        else:
            assert stage.resume(batch=BATCH).state is Phase.SEALED, names
        assert stage.coordinator().complete().state is Phase.COMPLETED
        drain(backend, ran, COUNT)
        assert_each_ran_once([job.id for job in made], ran)
        stage.close()
        number += SHARES
    assert set(names) >= {
        "begun", "installed", "canary", "fencing", "now fencing", "gates of fencing", "fenced", "crossed",
        "all keys copied", "hidden", "admitted", "buried", "drained", "verified", "now sealed",
        "gates of sealed",
    }  # fmt: skip


def begin_and_die(stage: Stage, reach: Callable[[str], None]) -> bool:
    """Whether it came to its end before `reach` raised."""
    coordinator = stage.coordinator(reach=reach, batch=BATCH)
    try:
        coordinator.begin("old", "new", {"first_source": "old"})
        coordinator.run(Phase.SEALED)
    except Killed:
        coordinator.close()  # what it held comes back, as after a kill
        stage.forget_owner()  # in this process it is alive for whoever asks the machine
        return False
    return True

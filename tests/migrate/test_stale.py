"""Those who were stopped and continue: a client that goes by an old route, and a coordinator that is over."""

from __future__ import annotations

import pytest
from jobcontract_migrate import Coordinator, Phase
from jobcontract_migrate.coordinator import Busy, Superseded

from jobcontract import Job
from jobcontract.errors import StoreClosed, StoreError
from tests.migrate.stage import Stage, all_jobs


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

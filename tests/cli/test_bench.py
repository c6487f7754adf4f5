"""`jobctl bench`."""

from __future__ import annotations

import pytest

from jobcontract import Backend, State
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def few_paced_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobcontract.cli.bench._PACED", 3)


def test_it_measures_and_every_job_of_it_is_done(run: Run, backend: Backend) -> None:
    found = run("bench", "--jobs", "250", "--json").json()
    assert found["drain"]["jobs"] == found["register_in_bulk"]["jobs"] == 250
    assert found["from_register_to_start"]["jobs"] == 3
    for name in ("register_in_bulk", "drain"):
        assert found[name]["jobs_per_second"] > 0
    for name in ("register_one", "from_register_to_start"):
        assert 0 < found[name]["median_seconds"] <= found[name]["p99_seconds"]
    jobs = backend.jobs(limit=1000)
    assert len(jobs) == 250 + 1 + 3
    assert {job.state for job in jobs} == {State.DONE}
    assert {job.job.queue for job in jobs if job.job is not None} == {found["queue"]}


def test_it_leaves_the_jobs_of_others_alone(run: Run, backend: Backend) -> None:
    run("register", "jobctl.bench", "--input-ref", '{"sent": 1}')
    assert "drain" in run("bench", "--jobs", "10").out
    assert [job.state for job in backend.jobs(queue="default")] == [State.READY]

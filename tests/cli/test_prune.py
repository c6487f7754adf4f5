"""`jobctl prune`."""

from __future__ import annotations

import pytest

from jobcontract import Backend, State
from tests.cli.conftest import Ran, Run, put


def test_it_shows_the_store_and_asks(run: Run, backend: Backend) -> None:
    put(backend, State.DONE)
    assert run("prune", "--older-than", "0s", stdin="\n") == Ran(
        1,
        "",
        "Forget the cancelled and done jobs of sqlite:///jobcontract.db that ended longer than 0ms ago, "
        "for good, and their idempotency keys? [y/N] Error: nothing was changed\n",
    )
    assert len(backend.jobs()) == 1
    assert run("prune", "--older-than", "0s", stdin="yes\n").out == "pruned 1 job\n"
    assert backend.jobs() == []


def test_dead_jobs_wait_to_be_named(run: Run, backend: Backend) -> None:
    put(backend, State.DONE, idempotency_key="a")
    put(backend, State.CANCELLED)
    put(backend, State.DEAD)
    put(backend, State.READY)
    assert run("prune", "--older-than", "0s", "--yes", "--json").json() == {"pruned": 2}
    assert {job.state for job in backend.jobs()} == {State.DEAD, State.READY}
    assert run("prune", "--older-than", "0s", "--state", "dead", "--yes").out == "pruned 1 job\n"
    assert {job.state for job in backend.jobs()} == {State.READY}
    put(backend, State.READY, idempotency_key="a")  # the key is free again


def test_what_ended_lately_is_kept(run: Run, backend: Backend) -> None:
    put(backend, State.DONE)
    assert run("prune", "--older-than", "1h", "--yes").out == "pruned 0 jobs\n"
    assert len(backend.jobs()) == 1


def test_it_goes_on_until_all_is_pruned(run: Run, backend: Backend) -> None:
    run("register", "--from-file", "-", stdin='{"kind": "k"}\n' * 2100)
    while claims := backend.claim(limit=1000):
        backend.complete_many(claims)
    assert run("prune", "--older-than", "0s", "--yes").out == "pruned 2,100 jobs\n"


@pytest.mark.parametrize(
    "arguments", [[], ["--older-than", "soon"], ["--older-than", "1d", "--state", "ready"]], ids=len
)
def test_bad_usage(run: Run, backend: Backend, arguments: list[str]) -> None:
    assert run("prune", *arguments, "--yes").code == 2

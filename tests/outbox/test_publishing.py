"""From `register` to the target: what is committed arrives once, what is rolled back never."""

from __future__ import annotations

import pytest

from tests.outbox.conftest import MakeStage
from tests.outbox.stage import Stage, drain, drain_until, ids, jobs


@pytest.fixture(params=["redis", "rabbitmq"])
def any_target(request: pytest.FixtureRequest, make_stage: MakeStage, host_url: str) -> Stage:
    """Each SQL store with each target."""
    url = str(request.getfixturevalue("redis_url" if request.param == "redis" else "rabbit_url"))
    return make_stage(host_url, **{request.param: url})


def test_a_registered_job_arrives_when_the_relay_ran(any_target: Stage) -> None:
    backend, made = any_target.backend(), jobs(3)
    registered = backend.register_many(made)
    assert [(each.job_id, each.created) for each in registered] == [(job.id, True) for job in made]
    assert drain(backend) == []
    assert any_target.publish() == 3
    claims = drain_until(backend, 3)
    assert sorted(ids(claims)) == sorted(job.id for job in made)
    assert [claim.job.input_ref for claim in claims] == [
        {"number": [job.id for job in made].index(claim.job.id)} for claim in claims
    ]
    assert any_target.publish() == 0

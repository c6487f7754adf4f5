"""From `register` to the target: what is committed arrives once, what is rolled back never."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from jobcontract_outbox import ORDERING_KEY

from jobcontract import Job, State
from tests.outbox.conftest import MakeStage
from tests.outbox.stage import Stage, drain, drain_until, ids, jobs
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgres import PostgresServer


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


def test_an_outbox_in_a_schema_with_an_odd_name(
    make_stage: MakeStage, postgres_url: str, redis_url: str
) -> None:
    stage = make_stage(f"{postgres_url}?schema=100%25%20%22odd%22".replace('"', ""), redis=redis_url)
    job = Job(kind="work", headers={ORDERING_KEY: "a"})
    stage.backend().register_many([job, *jobs(2)])
    assert stage.publish() == 3
    assert not stage.backend().register(job).created
    assert stage.backend().install() == []


def test_an_outbox_behind_a_pooler_in_transaction_mode(
    make_stage: MakeStage, pgbouncer_server: PgBouncerServer, postgres_server: PostgresServer, redis_url: str
) -> None:
    name = postgres_server.create_database()
    stage = make_stage(pgbouncer_server.url(name), redis=redis_url)
    relay = stage.relay(batch=10)
    relay.start()
    made = jobs(100)
    stage.backend().register_many(made)
    assert sorted(ids(drain_until(stage.backend(), 100))) == sorted(job.id for job in made)
    stage.close()
    postgres_server.drop_database(name)


def test_a_job_that_a_relay_is_publishing_is_not_cancelled(
    make_stage: MakeStage, postgres_url: str, redis_url: str
) -> None:
    stage = make_stage(postgres_url, redis=redis_url)
    backend, job = stage.backend(), Job(kind="work")
    backend.register(job)
    with psycopg.connect(postgres_url) as relay:
        relay.execute("SELECT seq FROM jobcontract.outbox FOR UPDATE")
        assert backend.cancel(job.id) is State.READY
    assert backend.cancel(job.id) is State.CANCELLED


def test_a_key_and_headers_travel_to_a_store_that_does_not_deduplicate(
    make_stage: MakeStage, postgres_url: str, rabbit_url: str
) -> None:
    """The worker's once() goes by the key."""
    stage = make_stage(postgres_url, rabbitmq=rabbit_url)
    job = Job(kind="work", idempotency_key="k", headers={"tenant": "7"}, max_attempts=3)
    stage.backend().register(job)
    stage.publish()
    (claim,) = drain_until(stage.backend(), 1)
    assert (claim.job.idempotency_key, claim.job.headers, claim.job.max_attempts) == ("k", {"tenant": "7"}, 3)


def test_a_sql_store_can_be_a_target_too(make_stage: MakeStage, postgres_url: str, tmp_path: Path) -> None:
    stage = make_stage(f"sqlite:///{tmp_path}/outbox.db", central=postgres_url)
    made = [Job(kind="work", idempotency_key=str(number)) for number in range(20)]
    backend = stage.backend()
    backend.register_many(made)
    backend.register_many([Job(kind="work", idempotency_key=str(number)) for number in range(20)])
    assert stage.publish() == 20
    assert sorted(ids(drain_until(backend, 20))) == sorted(job.id for job in made)
    assert [queue.queue for queue in backend.stats()] in ([], ["default"])

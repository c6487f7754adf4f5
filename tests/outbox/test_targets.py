"""Targets that fail, as a whole or for a row: what counts an attempt, what is parked, and who goes on."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator

import pytest
from jobcontract_rabbitmq.topology import Address, Topology

from jobcontract import Backend, Claim, Job, State, StoreUnavailable
from tests.outbox.conftest import MakeStage
from tests.outbox.stage import Stage, drain, drain_until, ids, jobs, until
from tests.servers.binaries import Programs
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer


@pytest.fixture
def stage(make_stage: MakeStage, postgres_url: str, proxied_rabbit_url: str) -> Stage:
    """RabbitMQ, behind a proxy, behind an outbox in PostgreSQL."""
    return make_stage(postgres_url, rabbitmq=proxied_rabbit_url)


def queue_of(name: str) -> str:
    """The RabbitMQ queue of the jobs of `name`."""
    return Topology("jobcontract", 1).ready_queue(Address(name, 0))


def untouched(stage: Stage) -> bool:
    """Whether no row has counted an attempt or is parked."""
    found = stage.sql("SELECT count(*) FROM {outbox} WHERE attempts > 0 OR parked_at IS NOT NULL")
    return found == [(0,)]


def test_an_outage_burns_no_attempt_and_loses_no_job(stage: Stage, rabbit_proxy: Proxy) -> None:
    made = jobs(10_000)
    stage.backend().register_many(made)
    rabbit_proxy.refuse()
    rabbit_proxy.reset_all()
    relay = stage.relay(attempts=1)
    (loop,) = relay.loops
    relay.start()
    until(lambda: loop.faults >= 4)
    assert loop.fault
    assert untouched(stage)
    assert stage.status().pending == 10_000
    rabbit_proxy.accept()
    claims = drain_until(stage.backend(), 10_000)
    assert sorted(ids(claims)) == sorted(job.id for job in made)
    until(lambda: stage.status().pending == 0)
    assert loop.fault == ""
    assert stage.status().parked == 0


@pytest.mark.slow
def test_a_broker_that_is_down_for_a_minute_costs_nothing_but_the_minute(
    make_stage: MakeStage, postgres_url: str, rabbitmq_programs: Programs
) -> None:
    with RabbitServer(programs=rabbitmq_programs) as server:
        stage = make_stage(postgres_url, rabbitmq=f"{server.url()}?priority_levels=1")
        relay = stage.relay(attempts=1)
        (loop,) = relay.loops
        relay.start()
        first = jobs(100)
        stage.backend().register_many(first)
        until(lambda: stage.status().pending == 0)
        server.flush_metadata()
        server.stop()
        made = jobs(10_000)
        stage.backend().register_many(made)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert untouched(stage)
            assert stage.status().pending == 10_000
            time.sleep(1)
        assert loop.fault
        server.start()
        until(lambda: stage.status().pending == 0)
        messages = _messages(server, len(first) + len(made))
        assert all(envelope["id"] == message_id for message_id, envelope in messages)
        assert sorted(message_id for message_id, _ in messages) == sorted(
            str(job.id) for job in (*first, *made)
        ), "a job is missing, or was published twice"
        stage.close()


def _messages(server: RabbitServer, count: int) -> list[tuple[str, dict[str, object]]]:
    """The message id and the body of each message of the default queue, which has at least so many."""
    found: list[tuple[str, dict[str, object]]] = []
    with contextlib.closing(server.connect()) as connection:
        channel = connection.channel()
        for _, properties, body in channel.consume(queue_of("default"), auto_ack=True, inactivity_timeout=5):
            if properties is None:
                break
            found.append((properties.message_id, json.loads(body)))
            if len(found) >= count:
                connection.process_data_events(time_limit=1)  # whether there are more
                found += [("one too many", {})] * channel.get_waiting_message_count()
                break
    return found


def test_each_message_has_the_id_of_its_job(
    stage: Stage, rabbitmq_server: RabbitServer, rabbit_vhost: str
) -> None:
    made = jobs(3)
    stage.backend().register_many(made)
    stage.publish()
    until(lambda: len(_message_ids(rabbitmq_server, rabbit_vhost)) == 3)
    assert _message_ids(rabbitmq_server, rabbit_vhost) == {str(job.id) for job in made}


def _message_ids(server: RabbitServer, vhost: str) -> set[str]:
    found = server.api(
        "POST",
        f"/queues/{vhost}/{queue_of('default')}/get",
        {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"},
    )
    return {message["properties"]["message_id"] for message in found}


def test_jobs_can_be_registered_by_a_new_process_while_the_broker_is_away(
    stage: Stage, rabbit_proxy: Proxy
) -> None:
    rabbit_proxy.refuse()
    rabbit_proxy.reset_all()
    backend, job = stage.backend(), Job(kind="work")
    assert backend.register(job).created
    with pytest.raises(StoreUnavailable):
        backend.claim()
    rabbit_proxy.accept()
    stage.publish()
    assert ids(drain_until(stage.backend(), 1)) == [job.id]


def test_a_cut_between_publish_and_confirm_repeats_at_most_what_was_unconfirmed(
    stage: Stage, rabbit_proxy: Proxy
) -> None:
    made = jobs(1000)
    stage.backend().register_many(made)
    relay = stage.relay(batch=200)
    halfway = str(made[500].id).encode()
    cut = rabbit_proxy.cut_next_reply(lambda sent: halfway in sent)
    relay.start()
    cut.wait()
    claims = drain_until(stage.backend(), 1000)
    until(lambda: stage.status().pending == 0)
    claims += drain(stage.backend())
    assert {claim.job.id for claim in claims} == {job.id for job in made}
    assert len(claims) <= 1400  # two batches were under way
    assert untouched(stage)


def test_a_memory_alarm_stops_the_relay_and_costs_nothing(
    stage: Stage, rabbitmq_server: RabbitServer
) -> None:
    made = jobs(50)
    stage.backend().register_many(made)
    relay = stage.relay(attempts=1)
    (loop,) = relay.loops
    with _memory_alarm(rabbitmq_server):
        relay.start()
        until(lambda: loop.faults >= 2)
        assert untouched(stage)
    claims = drain_until(stage.backend(), 50)
    assert {claim.job.id for claim in claims} == {job.id for job in made}


@contextlib.contextmanager
def _memory_alarm(server: RabbitServer) -> Generator[None]:
    server.rabbitmqctl("set_vm_memory_high_watermark", "0.000001")
    try:
        until(lambda: bool(server.api("GET", "/nodes")[0]["mem_alarm"]))
        yield
    finally:
        server.rabbitmqctl("set_vm_memory_high_watermark", "0.9")
        until(lambda: not server.api("GET", "/nodes")[0]["mem_alarm"])


def test_jobs_for_a_deleted_queue_are_parked_with_the_reason_and_the_others_flow(
    stage: Stage, rabbitmq_server: RabbitServer, rabbit_vhost: str
) -> None:
    stage.publish()
    rabbitmq_server.api("DELETE", f"/queues/{rabbit_vhost}/{queue_of('mail')}")
    lost, found = jobs(20, queue="mail"), jobs(20)
    backend = stage.backend()
    backend.register_many([each for pair in zip(lost, found, strict=True) for each in pair])
    assert stage.publish(attempts=2) == 20
    assert {claim.job.id for claim in drain_until(backend, 20)} == {job.id for job in found}
    status = stage.status()
    assert (status.due, status.held_up, status.parked) == (0, 20, 0)
    until(lambda: stage.publish(attempts=2) == 0 and stage.status().parked == 20)
    reasons = stage.sql("SELECT last_error FROM {outbox}")
    assert len(reasons) == 20
    assert all("has no queue for jobs of 'mail'" in reason for (reason,) in reasons)

    stage.install()
    with stage.process("relay", "parked", "retry", *(str(job.id) for job in lost)) as retried:
        assert retried.wait() == 0
    assert stage.publish() == 20
    assert {claim.job.id for claim in drain_until(backend, 20, "mail")} == {job.id for job in lost}


def test_jobs_for_a_full_queue_wait_and_the_others_flow(
    stage: Stage, rabbitmq_server: RabbitServer, rabbit_vhost: str
) -> None:
    rabbitmq_server.api(
        "PUT",
        f"/policies/{rabbit_vhost}/full",
        {"pattern": "ready.mail", "definition": {"max-length": 1}, "apply-to": "queues"},
    )
    until(lambda: _policy(rabbitmq_server, rabbit_vhost) == "full")
    backend, taken = stage.backend(), 0

    def refuses() -> bool:  # a quorum queue takes some more than its limit
        nonlocal taken
        backend.register_many(jobs(10, queue="mail"))
        taken += stage.publish()
        return stage.status().held_up > 0

    until(refuses)
    assert stage.sql("SELECT DISTINCT attempts FROM {outbox}") == [(1,)]
    backend.register_many(jobs(50))
    stage.publish()
    assert len(drain_until(backend, 50)) == 50
    rabbitmq_server.api("DELETE", f"/policies/{rabbit_vhost}/full")
    until(lambda: stage.publish() == 0 and stage.status().pending == 0)
    assert len(drain_until(backend, taken, "mail")) > taken


def _policy(server: RabbitServer, vhost: str) -> object:
    return server.api("GET", f"/queues/{vhost}/{queue_of('mail')}").get("policy")


def test_a_target_that_is_down_does_not_hold_up_another(
    make_stage: MakeStage, postgres_url: str, proxied_rabbit_url: str, redis_url: str, rabbit_proxy: Proxy
) -> None:
    stage = make_stage(postgres_url, rabbitmq=proxied_rabbit_url, redis=redis_url)
    stage.backend("rabbitmq").register_many(jobs(100))
    rabbit_proxy.blackhole()
    relay = stage.relay()
    relay.start()
    stage.backend("redis").register_many(jobs(100))
    assert len(drain_until(stage.backend("redis"), 100)) == 100
    assert stage.status("rabbitmq").pending == 100
    rabbit_proxy.pass_all()
    until(lambda: stage.status("rabbitmq").pending == 0)


def test_a_row_that_is_no_job_is_parked_and_the_others_flow(stage: Stage) -> None:
    made = jobs(5)
    stage.backend().register_many(made)
    stage.sql("UPDATE {outbox} SET envelope = '{{\"v\": 9}}' WHERE job_id = %s", str(made[2].id))
    assert stage.publish(attempts=1) == 4
    assert stage.status().parked == 1
    ((reason,),) = stage.sql("SELECT last_error FROM {outbox}")
    assert reason == "the envelope has version 9; this jobcontract reads version 1"


@pytest.mark.parametrize("relays", [2, 10])
def test_several_relays_publish_each_job_once(stage: Stage, relays: int) -> None:
    made = jobs(1500)
    backend = stage.backend()
    running = [stage.relay(batch=50) for _ in range(relays)]
    for relay in running:
        relay.start()
    for start in range(0, 1500, 100):
        backend.register_many(made[start : start + 100])
    claims = drain_until(backend, 1500)
    until(lambda: stage.status().pending == 0)
    claims += drain(backend)
    assert sorted(ids(claims)) == sorted(job.id for job in made)
    assert sum(relay.loops[0].published for relay in running) == 1500


def test_the_dead_behind_an_outbox_are_listed_and_sent_back(stage: Stage) -> None:
    job, waiting = Job(kind="work"), Job(kind="work")
    backend = stage.backend()
    backend.register(job)
    stage.publish()
    (claim,) = until_claimed(backend)
    backend.fail(claim, "for good", permanent=True)
    backend.register(waiting)
    until(lambda: bool(backend.dead_jobs()))
    (dead,) = backend.dead_jobs()
    assert (dead.id, dead.state, dead.last_error) == (job.id, State.DEAD, "for good")
    with stage.process("dead", "show", str(job.id), "--backend", "rabbitmq") as shown:
        assert "for good" in shown.communicate()[0]
        assert shown.returncode == 0
    assert backend.revive_many([job.id]) == [State.READY]
    (again,) = until_claimed(backend)
    assert again.job.id == job.id


def until_claimed(backend: Backend) -> list[Claim]:
    """The next job that arrives."""
    found: list[Claim] = []

    def claimed() -> bool:
        found.extend(backend.claim())
        return bool(found)

    until(claimed)
    return found


def test_a_dropped_job_is_cancelled(stage: Stage, rabbitmq_server: RabbitServer, rabbit_vhost: str) -> None:
    rabbitmq_server.api("DELETE", f"/queues/{rabbit_vhost}/{queue_of('mail')}")
    job = Job(kind="work", queue="mail", idempotency_key="k")
    stage.backend().register(job)
    stage.publish(attempts=1)
    with stage.process("relay", "parked", "drop", str(job.id)) as dropped:
        assert dropped.wait() == 0
    with stage.process("relay", "parked", "drop", str(job.id)) as dropped:
        assert dropped.wait() == 3
    assert stage.status().parked == 0
    assert stage.backend().cancel(job.id) is State.CANCELLED

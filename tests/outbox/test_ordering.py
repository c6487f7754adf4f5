"""The header ``ordering-key``: its jobs go one after the other, whatever happens to one of them."""

from __future__ import annotations

import random
import threading

import pytest
from jobcontract_outbox import ORDERING_KEY
from jobcontract_rabbitmq.topology import Address, Topology

from jobcontract import Claim, Job
from tests.outbox.conftest import MakeStage
from tests.outbox.stage import Stage, drain, drain_until, until
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer


def ordered(key: str, numbers: range, queue: str = "default") -> list[Job]:
    headers = {ORDERING_KEY: key}
    return [
        Job(kind="work", input_ref={"number": number}, headers=headers, queue=queue) for number in numbers
    ]


def numbers_of(claims: list[Claim], key: str) -> list[object]:
    return [claim.job.input_ref["number"] for claim in claims if claim.job.headers.get(ORDERING_KEY) == key]


def test_order_is_kept_per_key_with_three_relays_and_a_slow_broker(
    make_stage: MakeStage, postgres_url: str, rabbit_url: str, proxied_rabbit_url: str, rabbit_proxy: Proxy
) -> None:
    stage = make_stage(postgres_url, rabbitmq=proxied_rabbit_url)
    reader = make_stage(postgres_url, install=False, rabbitmq=rabbit_url).backend()
    backend, keys = stage.backend(), [f"account {number}" for number in range(5)]
    stop = threading.Event()

    def disturb() -> None:
        while not stop.wait(0.05):
            rabbit_proxy.delay(random.choice([0, 0.005, 0.03]))

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        for _ in range(3):
            stage.relay(batch=7).start()
        for start in range(0, 60, 10):
            batch = [job for key in keys for job in ordered(key, range(start, start + 10))]
            backend.register_many(batch)
            backend.register_many([Job(kind="work") for _ in range(20)])
        # Read when all is there: what a reader that dawdles has fetched ahead goes back behind what is new.
        until(lambda: stage.status().pending == 0)
    finally:
        stop.set()
        disturbing.join()
    claims = drain_until(reader, 420)
    for key in keys:
        assert numbers_of(claims, key) == list(range(60))


def test_a_key_stops_at_the_first_job_that_is_refused(
    make_stage: MakeStage,
    postgres_url: str,
    rabbit_url: str,
    rabbitmq_server: RabbitServer,
    rabbit_vhost: str,
) -> None:
    stage = make_stage(postgres_url, rabbitmq=rabbit_url)
    queue = Topology("jobcontract", 1).ready_queue(Address("mail", 0))
    rabbitmq_server.api("DELETE", f"/queues/{rabbit_vhost}/{queue}")
    backend = stage.backend()
    before, refused, after = (
        ordered("a", range(10)),
        ordered("a", range(10, 11), queue="mail"),
        ordered("a", range(11, 20)),
    )
    backend.register_many([*before, *refused, *after, *ordered("b", range(30))])
    for _ in range(3):
        stage.relay(attempts=2).start()
    claims = drain_until(backend, 40)
    until(lambda: stage.status().parked == 1)
    claims += drain(backend)
    assert numbers_of(claims, "a") == list(range(10))
    assert numbers_of(claims, "b") == list(range(30))
    status = stage.status()
    assert (status.held_up, status.due) == (9, 0)
    with stage.process("relay", "--check", "--max-age", "0s") as probe:
        assert probe.wait() == 1

    stage.install()
    with stage.process("relay", "parked", "retry", str(refused[0].id)) as retried:
        assert retried.wait() == 0
    assert numbers_of(drain_until(backend, 1, "mail"), "a") == [10]
    assert numbers_of(drain_until(backend, 9), "a") == list(range(11, 20))


def test_a_dropped_job_lets_its_key_go_on(stage: Stage) -> None:
    backend, (first, second) = stage.backend(), ordered("a", range(2))
    backend.register_many([first, second])
    spoiled = "UPDATE {outbox} SET envelope = 'no job' WHERE job_id = "
    stage.sql(spoiled + ("%s" if stage.host_url.startswith("postgresql") else "?"), str(first.id))
    assert stage.publish(attempts=1) == 0
    with stage.process("relay", "parked", "drop", str(first.id)) as dropped:
        assert dropped.wait() == 0
    assert stage.publish() == 1
    assert numbers_of(drain_until(backend, 1), "a") == [1]


@pytest.mark.parametrize("blocked", [1, 3])
def test_keys_that_stand_still_do_not_hide_others(stage: Stage, blocked: int) -> None:
    backend = stage.backend()
    for number in range(blocked):
        backend.register_many(ordered(f"blocked {number}", range(30)))
    stage.sql(
        "UPDATE {outbox} SET parked_at = created_at WHERE seq IN (SELECT min(seq) FROM {outbox} "
        "GROUP BY ordering_key)"
    )
    backend.register_many(ordered("free", range(30)))
    assert stage.publish(batch=5) == 30
    assert numbers_of(drain_until(backend, 30), "free") == list(range(30))
    assert stage.status().held_up == blocked * 29

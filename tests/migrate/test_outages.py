"""A store goes away in the middle of a move, and comes back: the state stays legal, and the same command goes
on. Each is behind a proxy that turns it off at a named point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from jobcontract_migrate import Phase

from jobcontract import Backend, Job, StoreUnavailable
from jobcontract.url import StoreURL
from tests.migrate.conftest import MakeStage
from tests.migrate.stage import Stage, Traffic, assert_each_ran_once, drain, until
from tests.servers.binaries import Programs
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer

COUNT = 30


@pytest.fixture
def broker(rabbitmq_server: RabbitServer) -> Iterator[Proxy]:
    with Proxy(rabbitmq_server.address) as proxy:
        yield proxy


@pytest.fixture
def to_broker(
    make_stage: MakeStage, rabbitmq_server: RabbitServer, broker_url: str, broker: Proxy, tmp_path: Path
) -> Stage:
    """From a SQLite file to RabbitMQ behind a proxy."""
    host, port = broker.address
    vhost = StoreURL.parse(broker_url).path.removeprefix("/")
    url = f"{rabbitmq_server.url(vhost, host=host, port=port)}?timeout=2s"
    return make_stage("old", old=f"sqlite:///{tmp_path}/old.db", new=url)


def turning_off(proxy: Proxy, point: str) -> Callable[[str], None]:
    """What turns `proxy` off the first time that `point` is reached."""
    seen: list[str] = []

    def reach(name: str) -> None:
        if name == point and point not in seen:
            seen.append(name)
            turn_off(proxy)

    return reach


def turn_off(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.reset_all()


def turn_on(proxy: Proxy) -> None:
    proxy.accept()


def fill(stage: Stage) -> list[Job]:
    made = [Job(kind="work", input_ref={"n": n}) for n in range(COUNT)]
    stage.backend("old").register_many(made)
    return made


@pytest.mark.parametrize("point", ["hidden", "admitted", "buried"])
def test_the_target_dies_while_jobs_move(to_broker: Stage, broker: Proxy, point: str) -> None:
    made = fill(to_broker)
    coordinator = to_broker.coordinator(reach=turning_off(broker, point), batch=7)
    coordinator.begin("old", "new", {"first_source": "old"})
    with pytest.raises(StoreUnavailable):
        coordinator.run(Phase.SEALED)
    coordinator.close()
    to_broker.forget_owner()
    assert to_broker.move().home == "new"
    turn_on(broker)
    assert to_broker.resume(batch=7).state is Phase.SEALED
    ran: list[UUID] = []
    drain(to_broker.backend(), ran, COUNT)
    assert_each_ran_once([job.id for job in made], ran)


def test_the_target_dies_while_the_source_is_fenced(to_broker: Stage, broker: Proxy) -> None:
    """Whoever registers lifts the fence when its time is over; the coordinator need not live for it."""
    made = fill(to_broker)
    producer = to_broker.backend()
    more = Job(kind="work")
    producer.register(more)
    coordinator = to_broker.coordinator(
        reach=turning_off(broker, "now fencing"), cutover_timeout=timedelta(seconds=2)
    )
    coordinator.begin("old", "new", {"first_source": "old"})
    with pytest.raises(StoreUnavailable):
        coordinator.run(Phase.SEALED)
    assert to_broker.move().home == "old"
    late = Job(kind="work")
    assert producer.register(late).created  # waits for the fence to run out
    assert to_broker.move().state is Phase.DUAL_READ
    coordinator.close()
    to_broker.forget_owner()
    turn_on(broker)
    assert to_broker.resume().state is Phase.SEALED
    ran: list[UUID] = []
    drain(to_broker.backend(), ran, COUNT + 2)
    assert_each_ran_once([*(job.id for job in made), more.id, late.id], ran)


@pytest.mark.parametrize("point", ["hidden", "admitted"])
def test_the_source_dies_while_jobs_move(
    make_stage: MakeStage, postgres_server: PostgresServer, postgres_url: str, tmp_path: Path, point: str
) -> None:
    """Jobs are registered and run at the target meanwhile."""
    with Proxy(postgres_server.address) as proxy:
        host, port = proxy.address
        database = StoreURL.parse(postgres_url).path.removeprefix("/")
        url = postgres_server.url(database, host=host, port=port)
        stage = make_stage("new", old=url, new=f"sqlite:///{tmp_path}/new.db")
        made = fill(stage)
        coordinator = stage.coordinator(reach=turning_off(proxy, point), batch=7)
        coordinator.begin("old", "new", {"first_source": "old"})
        with pytest.raises(StoreUnavailable):
            coordinator.run(Phase.SEALED)
        coordinator.close()
        stage.forget_owner()
        backend = stage.backend()
        meanwhile = Job(kind="work")
        assert backend.register(meanwhile).created
        ran: list[UUID] = []
        until(lambda: run_some(backend, ran))
        turn_on(proxy)
        assert stage.resume(batch=7).state is Phase.SEALED
        drain(backend, ran, COUNT + 1)
    assert_each_ran_once([*(job.id for job in made), meanwhile.id], ran)


def run_some(backend: Backend, ran: list[UUID]) -> bool:
    """Whether any job has run by now."""
    for claim in backend.claim(limit=3):
        backend.complete(claim)
        ran.append(claim.job.id)
    return bool(ran)


@pytest.mark.parametrize("point", ["fenced", "all keys copied"])
def test_the_control_store_restarts(
    make_stage: MakeStage, postgres_programs: Programs, tmp_path: Path, point: str
) -> None:
    """It is neither the source nor the target. Who knows where jobs live goes on meanwhile; who was refused
    by the source and can't ask where they went has to wait for it.
    """
    with PostgresServer(programs=postgres_programs, fsync=False) as server:
        urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("old", "new")}
        stage = make_stage("third", third=server.url(), **urls)
        made = fill(stage)
        seen: list[str] = []

        with Traffic(stage, keyed=False) as traffic:

            def reach(name: str) -> None:
                if name == point and not seen:
                    seen.append(name)
                    if point != "fenced":
                        traffic.until_more(5)  # the producer knows that jobs are registered at "new" now
                    server.kill()

            traffic.until_more(5)
            coordinator = stage.coordinator(reach=reach, batch=7, cutover_timeout=timedelta(seconds=2))
            coordinator.begin("old", "new", {"first_source": "old"})
            with pytest.raises(StoreUnavailable):
                coordinator.run(Phase.SEALED)
            coordinator.close()
            if point != "fenced":
                traffic.until_more(5)  # jobs are registered and run without it
            server.start()
            traffic.until_more(5)  # a fence that nobody could lift is lifted
            stage.forget_owner()
            assert stage.resume(batch=7).state is Phase.SEALED
            traffic.until_more(5)
        drain(stage.backend(), traffic.ran, len(made) + len(traffic.registered))
    assert_each_ran_once([*(job.id for job in made), *traffic.registered], traffic.ran)

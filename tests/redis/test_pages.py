"""Pages of jobs among thousands: complete, in order, and without a look at every job."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from jobcontract_redis import RedisDriver

from jobcontract.contract import JobRecord, State
from jobcontract.side_doors import Page
from tests.redis.stores import HOUR, QUEUE, failure, leases_of, new_namespace, open_store, records
from tests.servers.redis import RedisServer

RARE_KIND = "rare"


@pytest.fixture(scope="module")
def crowd(redis_server: RedisServer) -> Generator[tuple[RedisDriver, dict[State, list[str]]]]:
    """A store with thousands of jobs in each state but two; by state, their ids from the newest on."""
    store = open_store(redis_server.url(), namespace=new_namespace())
    made: list[JobRecord] = records(6000)
    made[50] = made[50]._replace(kind=RARE_KIND, idempotency_key="a")
    made[5900] = made[5900]._replace(kind=RARE_KIND)
    for start in range(0, len(made), 2000):
        store.register(made[start : start + 2000])
    leases = leases_of(store.claim([QUEUE], 4510, HOUR))
    store.complete(leases[:3000])
    store.fail([failure(lease, permanent=True) for lease in leases[3000:4500]])
    store.cancel([each.id for each in made[4510:4515]])
    ids = [each.id for each in made]
    yield (
        store,
        {
            State.DONE: ids[:3000][::-1],
            State.DEAD: ids[3000:4500][::-1],
            State.RUNNING: ids[4500:4510][::-1],
            State.CANCELLED: ids[4510:4515][::-1],
            State.READY: ids[4515:][::-1],
        },
    )
    store.close()


@pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.RUNNING, State.CANCELLED, State.READY])
def test_all_jobs_of_a_state_come_once_and_from_the_newest_on(crowd: Any, state: State) -> None:
    """Some states have more jobs than one script looks at, and some fewer."""
    store, expected = crowd
    assert ids_of_all_pages(store, Page(state=state, limit=700)) == expected[state]


def test_all_jobs_come_once_and_from_the_newest_on(crowd: Any) -> None:
    store, expected = crowd
    everything = sorted((job_id for ids in expected.values() for job_id in ids), reverse=True)
    assert ids_of_all_pages(store, Page(limit=1000)) == everything


def test_a_rare_kind_is_found_however_old(crowd: Any) -> None:
    store, expected = crowd
    found = store.jobs(Page(kind=RARE_KIND))
    assert [job.state for job in found] == [State.READY, State.DONE]
    assert [job.record.kind for job in found] == [RARE_KIND] * 2
    assert store.jobs(Page(kind="no such kind")) == []
    assert store.jobs(Page(kind=RARE_KIND, state=State.DEAD)) == []
    assert found[1].record.id in expected[State.DONE]


@pytest.mark.parametrize("state", [State.MOVING, State.MOVED])
def test_a_state_that_nothing_is_in_costs_no_search(
    crowd: Any, redis_server: RedisServer, state: State
) -> None:
    store, _ = crowd
    assert scripts_for(redis_server, lambda: store.jobs(Page(state=state))) == 1


def test_a_page_of_few_among_many_costs_one_script(crowd: Any, redis_server: RedisServer) -> None:
    store, expected = crowd

    def find() -> None:
        assert [job.record.id for job in store.jobs(Page(state=State.RUNNING))] == expected[State.RUNNING]

    assert scripts_for(redis_server, find) == 1


def test_a_job_by_its_key_costs_one_script(crowd: Any, redis_server: RedisServer) -> None:
    store, _ = crowd

    def find() -> None:
        assert [job.record.kind for job in store.jobs(Page(idempotency_key="a"))] == [RARE_KIND]

    assert scripts_for(redis_server, find) == 1


def test_the_numbers_agree_with_the_pages(crowd: Any) -> None:
    store, expected = crowd
    (row,) = store.stats()
    assert (row.done, row.dead, row.running, row.cancelled, row.ready) == tuple(
        len(expected[state])
        for state in (State.DONE, State.DEAD, State.RUNNING, State.CANCELLED, State.READY)
    )


def ids_of_all_pages(store: RedisDriver, page: Page) -> list[str]:
    """The ids of `page` and of all that follow it."""
    found: list[str] = []
    while jobs := store.jobs(page):
        assert len(jobs) <= page.limit
        found += [job.record.id for job in jobs]
        page = page._replace(cursor=jobs[-1].cursor)
    return found


def scripts_for(server: RedisServer, call: Any) -> int:
    """How many scripts `call` runs."""
    call()  # so that the server knows them
    server.ask("CONFIG RESETSTAT")
    call()
    return int(server.information("commandstats")["cmdstat_evalsha"]["calls"])

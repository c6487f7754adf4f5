"""What is registered, failed and released in one order comes in one order, whatever the store is.

Beyond what the suite asks of a driver (an order that is its best effort), our four agree: the same calls give
the same sequence of claims, within the priorities that all of them have.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from jobcontract import Backend, Claim, Job, get_backend
from jobcontract.config import Settings
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

LEVELS = 3
"""What RabbitMQ has, as it is delivered."""
PATIENCE = 60.0
TICK = 0.003
"""Redis orders by the millisecond; what shares one goes by its id."""


@pytest.fixture(params=["postgresql", "sqlite", "redis", "rabbitmq"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Each of the four."""
    name = f"order_{secrets.token_hex(6)}"
    match request.param:
        case "postgresql":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            url = server.url(schema=name)
        case "redis":
            redis: RedisServer = request.getfixturevalue("redis_server")
            url = f"{redis.url()}?namespace={name}"
        case "rabbitmq":
            rabbit: RabbitServer = request.getfixturevalue("rabbitmq_server")
            url = rabbit.url(rabbit.create_vhost())
        case _:
            url = f"sqlite:///{tmp_path}/jobs.db"
    with get_backend(url, settings=Settings()) as backend:
        backend.install()
        yield backend


def next_claim(store: Backend) -> Claim:
    """The next job, when there is one."""
    deadline = time.monotonic() + PATIENCE
    while not (claims := store.claim(limit=1)):
        assert time.monotonic() < deadline, "no job came"
        store.wait(timeout=timedelta(seconds=1))
    return claims[0]


def number_of(claim: Claim) -> int:
    number = claim.job.input_ref["number"]
    assert isinstance(number, int)
    return number


def test_priorities_and_what_comes_back(store: Backend) -> None:
    """By priority, and within one in the order of registration; what comes back stands at the end."""
    chance = random.Random(7)
    priorities = [chance.randrange(LEVELS) for _ in range(40)]
    returns = {number: chance.choice(["fail", "release"]) for number in chance.sample(range(40), 15)}
    store.register_many(
        [Job(kind="work", input_ref={"number": n}, priority=priorities[n]) for n in range(40)]
    )
    seen: list[tuple[int, int]] = []
    for _ in range(40 + len(returns)):
        claim = next_claim(store)
        seen.append((number_of(claim), claim.attempt))
        match returns.get(number_of(claim)) if claim.attempt == 1 else None:
            case "fail":
                store.fail(claim, "again", retry_in=timedelta())
            case "release":
                store.release([claim])
            case _:
                store.complete(claim)
        time.sleep(TICK)
    expected: list[tuple[int, int]] = []
    for level in reversed(range(LEVELS)):
        first = [number for number in range(40) if priorities[number] == level]
        expected += [(number, 1) for number in first]
        expected += [(number, 2) for number in first if number in returns]
    assert seen == expected
    assert store.claim() == []


def test_retries_after_a_delay(store: Backend) -> None:
    """By the time at which they are due, and what is due in the same second in the order of the failures."""
    delays = [4, 2, 3, 2, 4, 3]
    store.register_many([Job(kind="work", input_ref={"number": number}) for number in range(len(delays))])
    claims = [next_claim(store) for _ in delays]
    assert [number_of(claim) for claim in claims] == [0, 1, 2, 3, 4, 5]
    for claim, delay in zip(claims, delays, strict=True):
        store.fail(claim, "later", retry_in=timedelta(seconds=delay))
        time.sleep(TICK)
    assert [number_of(next_claim(store)) for _ in delays] == [1, 3, 2, 5, 0, 4]

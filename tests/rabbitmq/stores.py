"""What these tests do all the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar
from urllib.parse import urlencode

from jobcontract_rabbitmq import RabbitDriver

from jobcontract import Backend, Claim, Job, get_backend
from jobcontract.config import Settings
from tests.servers.rabbitmq import RabbitServer

Result = TypeVar("Result")

PATIENCE = 60.0
"""Seconds to wait for what has to happen."""
NOTHING = timedelta()
SECOND = timedelta(seconds=1)


def connect(url: str, **options: object) -> Backend:
    """A client of the store at `url`, whatever is there."""
    query = f"?{urlencode(options)}" if options else ""
    return get_backend(f"{url}{query}", settings=Settings())


def opened(url: str, **options: object) -> Backend:
    """A client of the store at `url`, which is installed if it was not."""
    backend = connect(url, **options)
    backend.install()
    return backend


def driver_of(backend: Backend) -> RabbitDriver:
    """The driver behind `backend`."""
    driver = backend.driver
    assert isinstance(driver, RabbitDriver)
    return driver


def jobs(count: int, **fields: object) -> list[Job]:
    """So many, numbered."""
    return [Job(**{"kind": "work", "input_ref": {"number": number}, **fields}) for number in range(count)]


def until(
    condition: Callable[[], Result | None], failed: str | Callable[[], str], patience: float = PATIENCE
) -> Result:
    """The first true answer of `condition`, within `patience` seconds."""
    deadline = time.monotonic() + patience
    while not (result := condition()):
        assert time.monotonic() < deadline, failed if isinstance(failed, str) else failed()
        time.sleep(0.02)
    return result


def claim_all(backend: Backend, count: int, *, queues: Iterable[str] = ("default",)) -> list[Claim]:
    """Exactly `count` jobs, which may be none."""
    claims: list[Claim] = []
    if not count:
        return claims

    def enough() -> bool:
        claims.extend(backend.claim(queues=list(queues), limit=min(1000, count - len(claims))))
        return len(claims) == count

    until(enough, lambda: f"{len(claims)} of {count} jobs could be claimed")
    return claims


def claim_one(backend: Backend) -> Claim:
    """One job of the default queue."""
    return claim_all(backend, 1)[0]


def numbers(claims: Iterable[Claim]) -> list[object]:
    """Which of `jobs` were claimed."""
    return [claim.job.input_ref["number"] for claim in claims]


def kill_connections(server: RabbitServer, vhost: str) -> None:
    """Have the broker close every connection to a virtual host."""
    names: list[str] = []

    def found() -> bool:
        names[:] = [each["name"] for each in server.api("GET", f"/vhosts/{vhost}/connections")]
        return bool(names)

    until(found, "the server shows no connection")
    for name in names:
        with suppress(RuntimeError):  # one that is listed and gone already is not found
            server.api("DELETE", f"/connections/{name.replace(' ', '%20').replace('>', '%3E')}")

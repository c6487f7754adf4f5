"""How much of its scripts' rate the Redis driver keeps: register, claim, complete in batches, one client.

    python -m benchmarks.redis_rates [--jobs 40000] [--batch 100] [--url redis://...]

Two ways to do the same work, in this process, on one server:

- *scripts*: the driver's own Lua scripts through a plain redis-py client, arguments ready, answers read and
  not looked at. It is the ceiling.
- *driver*: `RedisDriver`, from `JobRecord`s and `Lease`s to `Registration`s, `ClaimedRecord`s and `Verdict`s.

They take turns batch by batch, so that whatever else the machine does slows both of them. The figure to look
at is the ratio; absolute rates tell about the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import Any, cast

import redis
from jobcontract_redis import RedisDriver, open_driver
from jobcontract_redis.bodies import registration_words
from jobcontract_redis.scripts import CLAIM, COMPLETE, REGISTER, Script
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from jobcontract import Job
from jobcontract.config import StoreSettings
from jobcontract.contract import JobRecord
from jobcontract.url import StoreURL

REQUIRED = 0.7
REQUIRED_OF = ("claim", "complete")
VERBS = ("register", "claim", "complete")
QUEUE = "default"
PREFIX = f"{{jobcontract:{QUEUE}}}:"
LEASE = timedelta(minutes=2)
LEASE_MS = LEASE // timedelta(milliseconds=1)
RETENTION_MS = 24 * 3600 * 1000


def main() -> None:
    """Run both ways and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=40_000, help="how many jobs each way handles")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--url", help="an empty, otherwise idle server; default: a private one")
    arguments = parser.parse_args()
    with server(arguments.url) as url:
        driver = open_driver(StoreSettings("benchmark", StoreURL.parse(url)))
        client = cast(Any, redis.Redis).from_url(url, retry=Retry(NoBackoff(), 0), protocol=2)
        with contextlib.closing(driver), contextlib.closing(client):
            driver.install()
            print(
                f"{driver.capabilities.store}, {driver.capabilities.durability}, batches of {arguments.batch}"
            )
            ways = {"scripts": Scripts(client, arguments.batch), "driver": Itself(driver, arguments.batch)}
            run(ways, 10)  # connections, scripts, imports
            for way in ways.values():
                way.seconds.clear()
            rounds = arguments.jobs // arguments.batch
            run(ways, rounds)
    report(ways, rounds * arguments.batch)


def run(ways: Mapping[str, Way], rounds: int) -> None:
    """Register everything, then claim and complete everything; the ways take turns."""
    for _ in range(rounds):
        for way in ways.values():
            way.register()
    for _ in range(rounds):
        for way in ways.values():
            way.claim_and_complete()


def report(ways: Mapping[str, Way], jobs: int) -> None:
    """The rates, and the verdict."""
    slow: list[str] = []
    print(f"{'verb':<10} {'scripts/s':>11} {'driver/s':>11} {'ratio':>6}")
    for verb in VERBS:
        scripts, driver = (jobs / ways[way].seconds[verb] for way in ("scripts", "driver"))
        needed = f"  (at least {REQUIRED})" if verb in REQUIRED_OF else ""
        print(f"{verb:<10} {scripts:>11,.0f} {driver:>11,.0f} {driver / scripts:>6.2f}{needed}")
        if verb in REQUIRED_OF and driver / scripts < REQUIRED:
            slow.append(verb)
    if slow:
        raise SystemExit(f"slower than they may be: {', '.join(slow)}")


class Way(ABC):
    """A way to do the work; adds up the seconds that each verb took."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.seconds: dict[str, float] = defaultdict(float)

    @abstractmethod
    def register(self) -> None:
        """Register a batch."""

    @abstractmethod
    def claim_and_complete(self) -> None:
        """Claim a batch, and complete it."""

    @contextlib.contextmanager
    def timing(self, verb: str) -> Generator[None]:
        started = time.perf_counter()
        yield
        self.seconds[verb] += time.perf_counter() - started

    def records(self) -> list[JobRecord]:
        """A batch of new jobs with an input of 200 bytes, made before anything is timed."""
        text = "x" * (200 - len('{"document":""}'))
        return [
            Job(kind="embed_document", input_ref={"document": text}).to_record() for _ in range(self.batch)
        ]


class Scripts(Way):
    """Each verb by EVALSHA, on arguments that are ready."""

    def __init__(self, client: redis.Redis, batch: int) -> None:
        super().__init__(batch)
        self._execute = cast(Any, client).execute_command  # its answer depends on the script

    def register(self) -> None:
        words = [word for record in self.records() for word in registration_words(record)]
        with self.timing("register"):
            self._evaluate(REGISTER, PREFIX, *words)

    def claim_and_complete(self) -> None:
        nonce = secrets.token_hex(16)
        with self.timing("claim"):
            answer = self._evaluate(CLAIM, PREFIX, self.batch, LEASE_MS, nonce)
        ids = [found[:36] for found in answer[1:]]
        words = [word for at, job_id in enumerate(ids, start=1) for word in (job_id, f"{nonce}:{at}")]
        with self.timing("complete"):
            answer = self._evaluate(COMPLETE, PREFIX, RETENTION_MS, *words)
        assert sum(answer) == self.batch, "a script did less than it was asked"

    def _evaluate(self, script: Script, *arguments: object) -> Any:
        keys = [PREFIX + name for name in script.keys]
        try:
            return self._execute("EVALSHA", script.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return self._execute("EVAL", script.source, len(keys), *keys, *arguments)


class Itself(Way):
    """Each verb as `Backend` calls it."""

    def __init__(self, driver: RedisDriver, batch: int) -> None:
        super().__init__(batch)
        self._driver = driver

    def register(self) -> None:
        records = self.records()
        with self.timing("register"):
            self._driver.register(records)

    def claim_and_complete(self) -> None:
        with self.timing("claim"):
            claimed = self._driver.claim((QUEUE,), self.batch, LEASE)
        leases = [each.lease for each in claimed]
        with self.timing("complete"):
            verdicts = self._driver.complete(leases)
        assert sum(verdict.applied for verdict in verdicts) == self.batch, (
            "the driver did less than it was asked"
        )


@contextlib.contextmanager
def server(url: str | None) -> Generator[str]:
    """The given server, or one of our own."""
    if url is not None:
        yield url
        return
    from tests.servers.redis import RedisServer

    with RedisServer() as private:
        yield private.url()


if __name__ == "__main__":
    main()

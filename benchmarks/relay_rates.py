"""How much of its target's bare rate the relay keeps, and what an outbox costs in time.

    python -m benchmarks.relay_rates [--jobs 20000] [--rounds 3] [--backlog 2000000]

All on private servers, ways in turns, in this process:

- *relay to RabbitMQ*, beside a bare `SelectConnection` that publishes ready-made messages with at most 1000
  unconfirmed, and beside a loop that waits for the confirm of each message;
- *relay to Redis*, beside the Redis driver's own script with the arguments ready, one call per job in
  pipelines as long as the relay's batches (and, for who wants to know, one call per batch);
- *relay to Redis under a pinned horizon*: another session holds an old snapshot while jobs come and go,
  beside the relay's own rate before;
- *from commit to start*: one job at a time on an idle system, beside the PostgreSQL backend without an
  outbox;
- *behind a backlog*: what taking a batch costs while many rows wait for a target that is down, beside an
  empty table.

The figures to look at are the ratios; absolute rates tell about the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pika
import psycopg
import redis
from jobcontract_outbox import Relay, RelayOptions
from jobcontract_outbox.ends import find_ends
from jobcontract_outbox.locking import LockingSource
from jobcontract_outbox.statements import Statements
from jobcontract_rabbitmq.topology import Address, Topology
from jobcontract_redis.bodies import registration_words
from jobcontract_redis.scripts import REGISTER
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks.rabbitmq_rates import BarePika
from benchmarks.redis_rates import PREFIX, Scripts
from jobcontract import Backend, Job, get_backend
from jobcontract.config import Settings, load_settings
from jobcontract.records import to_envelope
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

BATCH = 500
CONFIRMED_ONE_BY_ONE = 1000
LATENCIES = 300
TAKES = 100
REQUIRED = {
    "RabbitMQ, of the bare windowed publisher": 0.6,
    "RabbitMQ, of a loop that confirms each": 10.0,
    "Redis, of the bare script in pipelines": 0.6,
    "pinned horizon, of its own fresh rate": 0.8,
}


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000, help="per round and way")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backlog", type=int, default=2_000_000, help="rows for a target that is down")
    arguments = parser.parse_args()
    with (
        PostgresServer() as postgres,
        RedisServer() as redis_server,
        RabbitServer() as rabbit,
        tempfile.TemporaryDirectory() as folder,
        contextlib.ExitStack() as stack,
    ):
        bench = Bench(Path(folder), stack, postgres, redis_server, rabbit)
        ratios = bench.rates(arguments.jobs, arguments.rounds)
        ratios |= bench.pinned(arguments.jobs, arguments.rounds)
        for name, ratio in ratios.items():
            short = f"  less than {REQUIRED[name]}" if ratio < REQUIRED[name] else ""
            print(f"{name:<44}{ratio:>8.2f}{short}")
        bench.latencies()
        bench.backlog(arguments.backlog)


class Bench:
    """The stores, and the ways to use them."""

    def __init__(
        self,
        folder: Path,
        stack: contextlib.ExitStack,
        postgres: PostgresServer,
        redis_server: RedisServer,
        rabbit: RabbitServer,
    ) -> None:
        self._stack = stack
        self._postgres = postgres
        self._rabbit = rabbit
        file = folder / "jobcontract.toml"
        file.write_text(
            f'[backends.postgres]\nurl = "{postgres.url()}?timeout=60"\n'
            f'[backends.redis]\nurl = "{redis_server.url()}"\noutbox = "postgres"\n'
            f'[backends.rabbitmq]\nurl = "{rabbit.url()}"\noutbox = "postgres"\n'
        )
        self._settings: Settings = load_settings(file, environment={})
        for name in ("redis", "rabbitmq"):
            self.backend(name).install()
        print(
            f"PostgreSQL {postgres.version() // 10000}, {self.backend('redis').capabilities.store}, "
            f"{self.backend('rabbitmq').capabilities.store}; batches of {BATCH}"
        )
        client = cast(Any, redis.Redis).from_url(redis_server.url(), retry=Retry(NoBackoff(), 0), protocol=2)
        self._stack.enter_context(contextlib.closing(client))
        self._redis = client
        self._scripts = Scripts(client, BATCH)
        self._bare = BarePika(rabbit)

    def backend(self, name: str) -> Backend:
        """A client of its own."""
        return self._stack.enter_context(get_backend(name, settings=self._settings))

    def relay(self, name: str) -> Relay:
        """One that is not started."""
        relay = Relay(find_ends(self._settings, (name,)), RelayOptions(batch=BATCH))
        self._stack.callback(relay.close)
        return relay

    # -- Rates -----------------------------------------------------------------------------------------

    def rates(self, count: int, rounds: int) -> dict[str, float]:
        """The ratios of the relay's rates to the bare ones, the median of the rounds."""
        relays = {name: self.relay(name) for name in ("rabbitmq", "redis")}
        seen: dict[str, list[float]] = {}
        for number in range(rounds + 1):
            bodies = [to_envelope(job.to_record()).encode() for job in jobs(count)]
            bare = count / seconds(partial(self._bare.publish, bodies))
            single = CONFIRMED_ONE_BY_ONE / seconds(partial(self._confirm_each, bodies))
            relayed = self._drain("rabbitmq", relays["rabbitmq"], count)
            script = self._script_rate(count)
            pipelined = self._pipeline_rate(count)
            to_redis = self._drain("redis", relays["redis"], count)
            if number == 0:  # connections, prepared statements, imports
                continue
            print(
                f"  to RabbitMQ: bare {bare:,.0f}/s, each confirmed {single:,.0f}/s, relay {relayed:,.0f}/s;"
                f" to Redis: script {script:,.0f}/s, pipelined {pipelined:,.0f}/s, relay {to_redis:,.0f}/s",
                flush=True,
            )
            seen.setdefault("RabbitMQ, of the bare windowed publisher", []).append(relayed / bare)
            seen.setdefault("RabbitMQ, of a loop that confirms each", []).append(relayed / single)
            seen.setdefault("Redis, of the bare script in pipelines", []).append(to_redis / pipelined)
        return {name: statistics.median(each) for name, each in seen.items()}

    def pinned(self, count: int, rounds: int) -> dict[str, float]:
        """The rate with dead rows that can't be removed, as a ratio of the fresh one; the rounds' median."""
        relay = self.relay("redis")
        self._drain("redis", relay, count)
        ratios: list[float] = []
        for _ in range(rounds):
            self._vacuum()
            fresh = self._drain("redis", relay, count)
            with psycopg.connect(self._postgres.url()) as holder:
                holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                holder.execute("SELECT pg_current_xact_id()")
                for _ in range(3):
                    self._drain("redis", relay, count)
                pinned = self._drain("redis", relay, count)
            print(f"  fresh {fresh:,.0f}/s, behind {3 * count:,} dead rows {pinned:,.0f}/s", flush=True)
            ratios.append(pinned / fresh)
        return {"pinned horizon, of its own fresh rate": statistics.median(ratios)}

    def _drain(self, name: str, relay: Relay, count: int) -> float:
        with get_backend(name, settings=self._settings) as backend:
            backend.register_many(jobs(count))
        before = relay.loops[0].published
        rate = count / seconds(relay.run_once)
        assert relay.loops[0].published - before == count
        return rate

    def _script_rate(self, count: int) -> float:
        """One call per batch."""
        self._scripts.seconds.clear()
        for _ in range(count // BATCH):
            self._scripts.register()
        return count / self._scripts.seconds["register"]

    def _pipeline_rate(self, count: int) -> float:
        """One call per job."""
        keys = [PREFIX + name for name in REGISTER.keys]
        calls = [
            ("EVALSHA", REGISTER.digest, len(keys), *keys, PREFIX, *registration_words(job.to_record()))
            for job in jobs(count)
        ]

        def send() -> None:
            for start in range(0, count, BATCH):
                pipeline = self._redis.pipeline(transaction=False)
                for call in calls[start : start + BATCH]:
                    pipeline.execute_command(*call)
                pipeline.execute()

        return count / seconds(send)

    def _confirm_each(self, bodies: Sequence[bytes]) -> None:
        route = Topology("jobcontract", 3).to_ready(Address("default", 0))
        parameters = pika.URLParameters(self._rabbit.url())
        with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=2, message_id="0" * 36, type="benchmark.work")
            for body in bodies[:CONFIRMED_ONE_BY_ONE]:
                channel.basic_publish(*route, body, properties, mandatory=True)

    def _vacuum(self) -> None:
        with psycopg.connect(self._postgres.url(), autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE) jobcontract.outbox, jobcontract.outbox_jobs")

    # -- Time ------------------------------------------------------------------------------------------

    def latencies(self) -> None:
        """From the commit to the claim by a waiting worker, one job at a time."""
        print("from commit to start, idle           p50        p99")
        for name in ("postgres", "redis", "rabbitmq"):
            relay = None if name == "postgres" else self.relay(name)
            if relay is not None:
                relay.start()
            self._empty(name)
            found = sorted(self._latency(name))
            if relay is not None:
                relay.stop()
            middle, late = found[len(found) // 2], found[int(len(found) * 0.99)]
            way = name if relay is None else f"outbox, {name}"
            print(f"  {way:<30}{middle * 1000:>7.1f} ms{late * 1000:>8.1f} ms", flush=True)

    def _empty(self, name: str) -> None:
        with get_backend(name, settings=self._settings) as backend:
            while claims := backend.claim(limit=1000):
                backend.complete_many(claims)

    def _latency(self, name: str) -> list[float]:
        started: dict[str, float] = {}
        stop = threading.Event()
        worker, producer = self.backend(name), self.backend(name)

        def work() -> None:
            while not stop.is_set():
                claims = worker.claim(limit=10)
                now = time.perf_counter()
                started.update((str(claim.job.id), now) for claim in claims)
                if claims:
                    worker.complete_many(claims)
                else:
                    worker.wait()

        thread = threading.Thread(target=work)
        thread.start()
        found: list[float] = []
        for job in jobs(LATENCIES + 20):
            producer.register(job)
            committed = time.perf_counter()
            while str(job.id) not in started:
                time.sleep(0.0005)
            found.append(max(0.0, started[str(job.id)] - committed))
            time.sleep(0.02)
        stop.set()
        thread.join()
        return found[20:]

    # -- A target that is down -------------------------------------------------------------------------

    def backlog(self, rows: int) -> None:
        """What taking a batch costs, with and without rows of another target."""
        self._vacuum()
        empty = self._takes()
        with psycopg.connect(self._postgres.url(), autocommit=True) as connection:
            connection.execute(
                "INSERT INTO jobcontract.outbox (target, job_id, queue, due_at, available_at, envelope)"
                " SELECT 'down', gen_random_uuid(), 'default', now(), now(), repeat('x', 200)"
                " FROM generate_series(1, %s)",
                (rows,),
            )
        behind = self._takes()
        for title, found in (("an empty outbox", empty), (f"{rows:,} rows of another target", behind)):
            late = found[int(len(found) * 0.99)]
            print(
                f"take {BATCH} beside {title:<40} p50 {found[len(found) // 2] * 1000:6.1f} ms"
                f"  p99 {late * 1000:6.1f} ms",
                flush=True,
            )

    def _takes(self) -> list[float]:
        (ends,) = find_ends(self._settings, ("redis",))
        opened = ends.open()
        with contextlib.closing(opened.driver):
            source = LockingSource(
                opened.tables, opened.driver.schema, Statements(opened.tables), "redis", attempts=10
            )
            with get_backend("redis", settings=self._settings) as backend:
                backend.register_many(jobs(BATCH * TAKES))
            found: list[float] = []
            for _ in range(TAKES):
                begun = time.perf_counter()
                with source.take(BATCH) as batch:
                    batch.published += batch.rows
                    assert batch.size == BATCH
                found.append(time.perf_counter() - begun)
        return sorted(found)


def jobs(count: int) -> list[Job]:
    """With an input of about 200 bytes."""
    return [
        Job(kind="benchmark.work", input_ref={"number": number, "document": "d" * 160})
        for number in range(count)
    ]


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

"""Workers that come and go beside a steady feed: stopping one spends nobody's attempt."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from datetime import timedelta

from jobcontract import Backend, Handlers, JobContext
from jobcontract.worker import Worker, WorkerOptions
from tests.rabbitmq.stores import claim_all, connect, jobs

STOPS = 100
"""Each worker is stopped idle, busy, or with credit open, as it comes. When credit that was open was simply
closed, and what was given back was acknowledged message by message, 32 jobs of 300 stops were dead, unrun.
"""
SIDE_BY_SIDE = 5
"""Alone, a worker that stops is always the first to take again what came back."""


class Fleet:
    """Workers whose lives are short. A job that runs is counted, by the id of it."""

    def __init__(self, url: str, seed: int) -> None:
        self.runs: Counter[str] = Counter()
        self._url = url
        self._random = random.Random(seed)
        self._stops = iter(range(STOPS))
        self._lock = threading.Lock()
        self._handlers = Handlers()
        self._handlers.handler("work")(self._handle)

    def run(self) -> None:
        """Return after `STOPS` stops."""
        lives = [threading.Thread(target=self._live) for _ in range(SIDE_BY_SIDE)]
        for life in lives:
            life.start()
        for life in lives:
            life.join()

    def _handle(self, input: dict[str, object], context: JobContext) -> None:
        with self._lock:
            self.runs[str(context.job.id)] += 1
            busy = self._random.choice([0, 0, 0.005, 0.05])
        time.sleep(busy)

    def _live(self) -> None:
        while next(self._stops, None) is not None:
            with self._lock:
                concurrency, length = self._random.randint(1, 8), self._random.uniform(0, 0.4)
            options = WorkerOptions(concurrency=concurrency, grace=timedelta(seconds=5))
            with connect(self._url) as backend:
                worker = Worker(backend, self._handlers, options)
                stopper = threading.Timer(length, worker.stop)
                stopper.start()
                worker.run()
                stopper.join()


def test_stopping_workers_beside_a_steady_feed_burns_no_attempt(url: str, store: Backend) -> None:
    """Each job has one attempt, and is dead, unrun, when that is spent without a handler."""
    fleet = Fleet(url, seed=3)
    over = threading.Event()
    registered: list[str] = []

    def feed() -> None:
        choose = random.Random(4)
        while not over.is_set():
            burst = jobs(
                choose.choice([1, 1, 1, 2, 5, 20]), max_attempts=1, priority=choose.choice([0, 0, 1])
            )
            store.register_many(burst)
            registered.extend(str(job.id) for job in burst)
            over.wait(choose.expovariate(60))

    feeder = threading.Thread(target=feed)
    feeder.start()
    fleet.run()
    over.set()
    feeder.join()
    left = len(registered) - len(fleet.runs)
    dead = [str(each.id) for each in store.dead_jobs(limit=1000)]
    assert dead == []
    assert set(fleet.runs.values()) == {1}
    assert {claim.spent for claim in claim_all(store, left)} <= {1}

"""What a store and a worker do here: the measurements of ``jobctl bench``, on a queue of their own.

Jobs do nothing, so that what is measured is everything else. The worker is `Worker` with its defaults, in
this process. For a comparison with others see the folder benchmarks in the repository.
"""

from __future__ import annotations

import secrets
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobcontract.backend import Backend
from jobcontract.contract import Job
from jobcontract.errors import JobContractError
from jobcontract.handlers import Handlers

if TYPE_CHECKING:
    from collections.abc import Generator

    from jobcontract.worker import Worker

KIND = "jobctl.bench"
PACED_RATE = 20.0
_BULK = 1000
_LOOK = 0.02
_STALLED = 60.0
"""Seconds without a single job after which a worker is given up."""


class BenchFailed(JobContractError):
    """The worker did not do the jobs. The message says how far it came."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Many jobs, one after the other."""

    jobs: int
    seconds: float
    processor_seconds: float
    """Of this process, the worker's or the producer's."""

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds


@dataclass(frozen=True, slots=True)
class Delays:
    """How long each of some jobs took, in seconds."""

    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """Half of them took longer."""
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        """One in a hundred took longer."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


@dataclass
class _Marks:
    """What the handler has seen. It runs in the hands of one worker; the lock is the cost of a mark."""

    started: int = 0
    first: float = 0.0
    last: float = 0.0
    waits: list[float] = field(default_factory=list[float])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def mark(self, sent: float) -> None:
        now = time.monotonic()
        with self._lock:
            if not self.started:
                self.first = now
            self.started += 1
            self.last = now
            self.waits.append(now - sent)


class Bench:
    """The measurements on one backend. Each blocks, and raises what the store raises."""

    def __init__(self, backend: Backend, queue: str | None = None) -> None:
        self._backend = backend
        self.queue = queue or f"bench-{secrets.token_hex(4)}"
        """Nobody else's; what is left in it after an interruption can be looked at by this name."""

    def register_in_bulk(self, jobs: int, advance: Callable[[int], None]) -> Throughput:
        """`register_many` of `jobs` jobs, a thousand at a time."""
        begun, used = time.monotonic(), time.process_time()
        for start in range(0, jobs, _BULK):
            batch = [self._job() for _ in range(min(_BULK, jobs - start))]
            self._backend.register_many(batch)
            advance(len(batch))
        return Throughput(jobs, time.monotonic() - begun, time.process_time() - used)

    def drain(self, jobs: int, advance: Callable[[int], None]) -> Throughput:
        """One worker, from the start of the first handler to that of the last of `jobs` jobs.

        Raises:
            BenchFailed: it did not start all of them, or could not complete all.
        """
        with self._working() as (worker, marks, tally):
            used = time.process_time()
            self._wait(marks, jobs, advance)
            used = time.process_time() - used
            worker.stop()
        if tally() != jobs:
            raise BenchFailed(f"{jobs} jobs were registered, and {tally()} completed")
        return Throughput(jobs, max(marks.last - marks.first, 1e-9), used)

    def one_by_one(self, jobs: int, advance: Callable[[int], None]) -> tuple[Delays, Delays]:
        """`register` 20 times a second beside an idle worker: what each call took, and how long after its
        beginning the handler started.
        """
        calls: list[float] = []
        with self._working() as (worker, marks, _):
            self._backend.register(self._job())  # connections are opened, and the worker is awake
            self._wait(marks, 1)
            begun = time.monotonic()
            for number in range(1, jobs + 1):
                time.sleep(max(0.0, begun + number / PACED_RATE - time.monotonic()))
                before = time.monotonic()
                self._backend.register(self._job())
                calls.append(time.monotonic() - before)
                advance(1)
            self._wait(marks, jobs + 1)
            worker.stop()
        return Delays(calls), Delays(marks.waits[1:])

    def _job(self) -> Job:
        return Job(kind=KIND, queue=self.queue, input_ref={"sent": time.monotonic()})

    @contextmanager
    def _working(self) -> Generator[tuple[Worker, _Marks, Callable[[], int]]]:
        """A worker in a thread, which has ended when the block has."""
        from jobcontract.worker import Worker, WorkerOptions

        marks = _Marks()
        handlers = Handlers()

        @handlers.handler(KIND)
        def handle(input_ref: dict[str, float]) -> None:
            marks.mark(input_ref["sent"])

        completed: list[int] = []
        worker = Worker(self._backend, handlers, WorkerOptions(queues=(self.queue,)))
        thread = threading.Thread(target=lambda: completed.append(worker.run().completed), daemon=True)
        thread.start()
        try:
            yield worker, marks, lambda: sum(completed)
        except BaseException:
            worker.stop_now()
            raise
        finally:
            thread.join()

    def _wait(self, marks: _Marks, jobs: int, advance: Callable[[int], None] | None = None) -> None:
        shown, moved_at = 0, time.monotonic()
        while (started := marks.started) < jobs:
            if started > shown:
                if advance is not None:
                    advance(started - shown)
                shown, moved_at = started, time.monotonic()
            elif time.monotonic() > moved_at + _STALLED:
                raise BenchFailed(f"the worker started {started} of {jobs} jobs, and no other for a minute")
            time.sleep(_LOOK)
        if advance is not None:
            advance(jobs - shown)

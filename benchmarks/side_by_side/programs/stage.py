"""What the contestants' programs share: how they are called, what they are timed by, and how they count.

A peer's program runs in an environment of its own, which holds nothing of this repository. So this module
needs the standard library only, and peers find it on their path, without the packages around it.

::

    PROGRAM prepare  URL                                 create what the contestant needs in an empty store
    PROGRAM register URL --jobs N --way one|many|paced   register jobs; prints a line of JSON about it
    PROGRAM register URL --jobs N --way future           the same, of a better priority, and due in a day
    PROGRAM work     URL --marks FILE                    run one worker process until SIGTERM

A job's input is ``{"number": n, "sent": t}``: t is the instant before its registration began, in nanoseconds
of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import mmap
import os
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BULK = 1000
"""How many jobs one bulk call registers."""

_HEADER = struct.Struct("<qqqq")
_WAIT = struct.Struct("<q")
CAPACITY = 20_000
"""How many waiting times one worker keeps."""

Input = Mapping[str, int]


class Seen(NamedTuple):
    """What a worker has marked so far. Instants are nanoseconds of the monotonic clock."""

    started: int
    """How many handlers were started."""
    first: int
    last: int
    used_before: int
    """Nanoseconds of processor time that the process had used when its first handler started."""
    waits: list[int]
    """Nanoseconds from before the registration to the start of the handler, of the first `CAPACITY` jobs."""


class Marks:
    """A file in which one worker process counts the handlers it starts, and in which others can look."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_HEADER.size + CAPACITY * _WAIT.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._lock = threading.Lock()
        self._count = self._first = self._used = 0

    def mark(self, sent: int) -> None:
        """A handler starts. All that a no-op handler does; costs well under a microsecond."""
        now = time.monotonic_ns()
        with self._lock:
            if self._count < CAPACITY:
                _WAIT.pack_into(self._map, _HEADER.size + self._count * _WAIT.size, now - sent)
            if not self._count:
                self._first, self._used = now, time.process_time_ns()
            self._count += 1
            _HEADER.pack_into(self._map, 0, self._count, self._first, now, self._used)

    def seen(self) -> Seen:
        """What the worker has marked."""
        started, first, last, used = _HEADER.unpack_from(self._map, 0)
        waits = struct.unpack_from(f"<{min(started, CAPACITY)}q", self._map, _HEADER.size)
        return Seen(started, first, last, used, list(waits))

    @property
    def started(self) -> int:
        """`Seen.started`, cheaply."""
        return int(_HEADER.unpack_from(self._map, 0)[0])


class Registering:
    """One call of ``register``: which jobs to register, in which way, and what it took."""

    def __init__(self, jobs: int, way: str, rate: float) -> None:
        self._jobs = jobs
        self._way = way
        self._rate = rate
        self.report: dict[str, float] = {}

    def run(
        self,
        *,
        one: Callable[[Input], object],
        many: Callable[[Sequence[Input]], object] | None,
        future: Callable[[Sequence[Input]], object] | None = None,
    ) -> None:
        """Register all jobs. `one` and `many` return when the jobs are acknowledged; `many` None is what a
        contestant says that knows no bulk: it gets its jobs one by one. `future` is `many`, of jobs that have
        a better priority and are due in a day; without it a contestant is not asked for such.
        """

        async def awaited_one(job: Input) -> None:
            one(job)

        async def awaited_many(jobs: Sequence[Input]) -> None:
            for job in jobs if many is None else ():
                one(job)
            if many is not None:
                many(jobs)

        async def awaited_future(jobs: Sequence[Input]) -> None:
            assert future is not None
            future(jobs)

        if self._way == "one":  # without the event loop's cost
            self._one_by_one(one)
        else:
            asyncio.run(self.run_async(one=awaited_one, many=awaited_many, future=awaited_future))

    def _one_by_one(self, one: Callable[[Input], object]) -> None:
        one(_input(0))  # connections, prepared statements, declarations
        begun, used = time.perf_counter(), time.process_time()
        for number in range(1, self._jobs):
            one(_input(number))
        self._took(begun, used, self._jobs - 1)

    async def run_async(
        self,
        *,
        one: Callable[[Input], Awaitable[object]],
        many: Callable[[Sequence[Input]], Awaitable[object]] | None,
        future: Callable[[Sequence[Input]], Awaitable[object]] | None = None,
    ) -> None:
        """`run` for a client that is awaited."""
        if self._way == "future":
            assert future is not None, "this contestant has no such jobs"
            one, many = _alone(future), future
        await one(_input(0))
        begun, used = time.perf_counter(), time.process_time()
        if self._way == "paced":
            for number in range(1, self._jobs):
                await asyncio.sleep(max(0.0, begun + number / self._rate - time.perf_counter()))
                await one(_input(number))
        elif self._way in ("many", "future") and many is not None:
            for start in range(1, self._jobs, BULK):
                await many([_input(number) for number in range(start, min(start + BULK, self._jobs))])
        else:
            for number in range(1, self._jobs):
                await one(_input(number))
        self._took(begun, used, self._jobs - 1)

    def _took(self, begun: float, used: float, jobs: int) -> None:
        self.report = {
            "jobs": jobs,
            "seconds": time.perf_counter() - begun,
            "processor_seconds": time.process_time() - used,
        }


def _alone(many: Callable[[Sequence[Input]], Awaitable[object]]) -> Callable[[Input], Awaitable[object]]:
    return lambda job: many([job])


def _input(number: int) -> Input:
    return {"number": number, "sent": time.monotonic_ns()}


Prepare = Callable[[str], Any]
Register = Callable[[str, Registering], Any]
Work = Callable[[str, Callable[[int], None]], Any]


def main(prepare: Prepare, register: Register, work: Work) -> None:
    """The program. Each of the three may be a coroutine function.

    Args:
        prepare: is given the URL.
        register: is given the URL and a `Registering`, whose `run` or `run_async` it calls once.
        work: is given the URL and what each handler calls with its job's ``sent``; returns at SIGTERM.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["prepare", "register", "work"])
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--way", choices=["one", "many", "paced", "future"], default="many")
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--marks", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "prepare":
        _call(prepare, arguments.url)
    elif arguments.verb == "register":
        registering = Registering(arguments.jobs, arguments.way, arguments.rate)
        _call(register, arguments.url, registering)
        print(json.dumps(registering.report), flush=True)
    else:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        marks = Marks(arguments.marks)
        _call(work, arguments.url, marks.mark)
        os._exit(0)  # whatever threads a contestant leaves behind


def _end_with(parent: int) -> None:
    """A harness that is killed can't stop its workers: they look once a second whether it is there."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _call(function: Callable[..., Any], *arguments: object) -> None:
    result = function(*arguments)
    if inspect.iscoroutine(result):
        asyncio.run(result)

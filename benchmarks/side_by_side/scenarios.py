"""What is measured. Each scenario takes a contestant through one piece of work and gives figures.

A figure has a unit and a direction; the first one of a scenario is what contestants are ranked by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.side_by_side.contestants import Contestant, Store
from benchmarks.side_by_side.running import (
    ContestantFailed,
    WorkerProcess,
    prepare,
    register,
    wait_for,
    workers,
)
from benchmarks.side_by_side.stores import Arena, Place
from benchmarks.side_by_side.wire import Wire

Figures: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Sizes:
    """How much of everything. The defaults are those of a real run."""

    jobs: int = 20_000
    singles: int = 2_000
    bulk: int = 50_000
    churn: int = 200_000
    backlog: int = 1_000_000
    future: int = 1_000_000
    paced: int = 200
    rate: float = 20.0
    idle: float = 30.0

    def patience(self, jobs: int) -> float:
        """Seconds within which any contestant must have done so many jobs, on a busy machine too."""
        return 60 + jobs / 30


@dataclass(frozen=True)
class Unit:
    """How a figure is written."""

    text: str
    lower_is_better: bool = False
    digits: int = 0


RATE = Unit("/s")
MICROSECONDS = Unit("us/job", lower_is_better=True, digits=1)
MILLISECONDS = Unit("ms", lower_is_better=True, digits=2)
MEBIBYTES = Unit("MiB", lower_is_better=True)
ROUND_TRIPS = Unit("/1,000 jobs", lower_is_better=True)
PER_MINUTE = Unit("/min", lower_is_better=True)
BYTES = Unit("B/job", lower_is_better=True)

Measure = Callable[[Arena, Contestant, Sizes], Figures]


@dataclass(frozen=True)
class Scenario:
    """One thing that is measured."""

    name: str
    title: str
    units: Mapping[str, Unit]
    measure: Measure
    stores: frozenset[Store] = frozenset(Store)
    """Where it makes sense."""


_ACKNOWLEDGING = 1.0
"""Seconds in which the last handlers' acknowledgements reach a store that can't be watched."""


_COMING_TO_REST = 5.0
"""Seconds in which a worker that has run out of jobs finds its pace of asking for others."""


def _drain(arena: Arena, contestant: Contestant, sizes: Sizes, processes: int) -> Figures:
    """From the start of the first handler until the store holds no unfinished job.

    Where the store can't tell while somebody works, the start of the last handler is the end, and the store
    has to be empty once the workers have stopped.
    """
    with arena.place(contestant) as place:
        prepare(contestant, place.url)
        return _drain_place(place, contestant, sizes, sizes.jobs // contestant.share, processes)


def _drain_place(
    place: Place, contestant: Contestant, sizes: Sizes, jobs: int, processes: int = 1
) -> Figures:
    register(contestant, place.url, jobs, "many", timeout=sizes.patience(jobs))
    with workers(contestant, place.url, processes) as started:
        wait_for(started, jobs, sizes.patience(jobs))
        seen = [each.marks.seen() for each in started]
        ended = max(one.last for one in seen) / 1e9
        if not place.counts_at_rest:
            ended = _wait_until_settled(place, started, sizes.patience(0))
        used = sum(each.processor_seconds for each in started) - sum(one.used_before for one in seen) / 1e9
        memory = sum(each.memory for each in started)
        if place.counts_at_rest:
            time.sleep(_ACKNOWLEDGING)
    if place.counts_at_rest and (left := place.unsettled()) > 0:
        raise ContestantFailed(f"{left} jobs came back after the workers had stopped")
    begun = min(one.first for one in seen if one.started) / 1e9
    return {
        "jobs": jobs / (ended - begun),
        "processor": used / jobs * 1e6,
        "memory": memory / 2**20,
    }


def _wait_until_settled(place: Place, started: list[WorkerProcess], patience: float) -> float:
    """Block until the store holds no unfinished job; when that was, by the monotonic clock."""
    deadline = time.monotonic() + patience
    while (left := place.unsettled()) > 0:
        for each in started:
            each.check()
        if time.monotonic() > deadline:
            raise ContestantFailed(f"every handler was started, and {left} jobs are still not finished")
        time.sleep(0.005)
    return time.monotonic()


def _pinned(arena: Arena, contestant: Contestant, sizes: Sizes) -> Figures:
    """The drain once `churn` jobs have come and gone while another session held its snapshot."""
    with arena.place(contestant) as place:
        prepare(contestant, place.url)
        with place.snapshot():
            _drain_place(place, contestant, sizes, sizes.churn)
            return _drain_place(place, contestant, sizes, sizes.jobs)


def _backlog(arena: Arena, contestant: Contestant, sizes: Sizes) -> Figures:
    """From the start of the first handler to that of the `jobs`-th, in front of `backlog` ready jobs."""
    with arena.place(contestant) as place:
        prepare(contestant, place.url)
        backlog = max(sizes.backlog, sizes.jobs)
        register(contestant, place.url, backlog, "many", timeout=sizes.patience(backlog))
        with workers(contestant, place.url) as started:
            wait_for(started, sizes.jobs, sizes.patience(sizes.jobs))
            seen = started[0].marks.seen()
    return {"jobs": (seen.started - 1) / ((seen.last - seen.first) / 1e9)}


def _future(arena: Arena, contestant: Contestant, sizes: Sizes) -> Figures:
    """The same, of `jobs` that are due, behind `future` of a better priority that are not."""
    with arena.place(contestant) as place:
        prepare(contestant, place.url)
        register(contestant, place.url, sizes.future, "future", timeout=sizes.patience(sizes.future))
        register(contestant, place.url, sizes.jobs, "many", timeout=sizes.patience(sizes.jobs))
        with workers(contestant, place.url) as started:
            wait_for(started, sizes.jobs, sizes.patience(sizes.jobs))
            seen = started[0].marks.seen()
    return {"jobs": (seen.started - 1) / ((seen.last - seen.first) / 1e9)}


def _register(arena: Arena, contestant: Contestant, jobs: int, way: str, sizes: Sizes) -> Figures:
    with arena.place(contestant) as place:
        prepare(contestant, place.url)
        effort = register(contestant, place.url, jobs, way, timeout=sizes.patience(jobs))
        stored = place.unsettled()
        if stored != jobs:
            raise ContestantFailed(f"{jobs} jobs were acknowledged, and the store holds {stored}")
    return {"jobs": effort.jobs / effort.seconds, "processor": effort.processor_seconds / effort.jobs * 1e6}


def _latency(arena: Arena, contestant: Contestant, sizes: Sizes) -> Figures:
    """From before the registration to the start of the handler, on a worker that has nothing else to do."""
    with arena.place(contestant) as place:
        prepare(contestant, place.url)
        with workers(contestant, place.url) as started:
            # The worker is ready, and warm, once it has run a few jobs.
            register(contestant, place.url, 20, "paced", rate=sizes.rate, timeout=sizes.patience(20))
            wait_for(started, 20, sizes.patience(20))
            register(
                contestant,
                place.url,
                sizes.paced,
                "paced",
                rate=sizes.rate,
                timeout=sizes.patience(sizes.paced),
            )
            wait_for(started, 20 + sizes.paced, sizes.patience(sizes.paced))
            waits = sorted(started[0].marks.seen().waits[21:])  # the producer's first opens its connection
    return {"median": _quantile(waits, 0.5) / 1e6, "p99": _quantile(waits, 0.99) / 1e6}


def _traffic(arena: Arena, contestant: Contestant, sizes: Sizes) -> Figures:
    """What one worker process asks the store for a drain, and what it asks when there is nothing to do."""
    with arena.place(contestant) as place, Wire(place.url) as wire:
        prepare(contestant, place.url)
        register(contestant, place.url, sizes.jobs, "many", timeout=sizes.patience(sizes.jobs))
        with workers(contestant, wire.url) as started:
            wait_for(started, 1, sizes.patience(0))
            before, had = wire.round_trips, sum(each.marks.started for each in started)
            wait_for(started, sizes.jobs, sizes.patience(sizes.jobs))
            busy = (wire.round_trips - before) / (sizes.jobs - had + 1) * 1000
            time.sleep(_COMING_TO_REST)
            before = wire.round_trips
            time.sleep(sizes.idle)
            idle = (wire.round_trips - before) / sizes.idle * 60
    return {"drain": busy, "idle": idle}


def _size(arena: Arena, contestant: Contestant, sizes: Sizes) -> Figures:
    """What a waiting job takes in the store, with the indexes, its share of free space, and its input."""
    with arena.place(contestant) as place:
        prepare(contestant, place.url)
        register(contestant, place.url, 1, "many", timeout=sizes.patience(1))  # what is made on demand
        empty = place.size()
        register(contestant, place.url, sizes.bulk, "many", timeout=sizes.patience(sizes.bulk))
        return {"bytes": (place.size() - empty) / sizes.bulk}


def _quantile(ordered: list[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


_DRAINED = {"jobs": RATE, "processor": MICROSECONDS, "memory": MEBIBYTES}
_REGISTERED = {"jobs": RATE, "processor": MICROSECONDS}

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "drain",
        "Drain of no-op jobs by one worker process",
        _DRAINED,
        lambda arena, contestant, sizes: _drain(arena, contestant, sizes, 1),
    ),
    Scenario(
        "drain-two",
        "Drain of no-op jobs by two worker processes",
        _DRAINED,
        lambda arena, contestant, sizes: _drain(arena, contestant, sizes, 2),
    ),
    Scenario(
        "drain-pinned",
        "Drain under a pinned horizon, one worker process",
        _DRAINED,
        _pinned,
        stores=frozenset({Store.POSTGRES}),
    ),
    Scenario("drain-backlog", "Drain at a large backlog, one worker process", {"jobs": RATE}, _backlog),
    Scenario(
        "drain-future",
        "Drain behind future jobs of a better priority, one worker process",
        {"jobs": RATE},
        _future,
        stores=frozenset({Store.POSTGRES, Store.REDIS}),
    ),
    Scenario(
        "register-one",
        "Register one by one",
        _REGISTERED,
        lambda arena, contestant, sizes: _register(arena, contestant, sizes.singles, "one", sizes),
    ),
    Scenario(
        "register-bulk",
        "Register in bulk, 1,000 at a time",
        _REGISTERED,
        lambda arena, contestant, sizes: _register(arena, contestant, sizes.bulk, "many", sizes),
    ),
    Scenario(
        "latency",
        "From register to the start of the handler, idle worker, 20 jobs a second",
        {"median": MILLISECONDS, "p99": MILLISECONDS},
        _latency,
    ),
    Scenario(
        "traffic",
        "Round trips of one worker process: for a drain, and without work",
        {"drain": ROUND_TRIPS, "idle": PER_MINUTE},
        _traffic,
    ),
    Scenario(
        "size",
        "Bytes of a waiting job in the store",
        {"bytes": BYTES},
        _size,
        stores=frozenset({Store.POSTGRES, Store.REDIS}),
    ),
)

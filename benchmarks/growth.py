"""Whether growth is a line: what a job costs when there are 1,000 jobs, and when there are a million.

    python -m benchmarks.growth [--sizes 1000 10000 100000 1000000] [--rounds 5]
        [--verbs register claim complete relay move] [--stores postgres sqlite redis]

- *register*, *claim*, *complete*: a store per size holds so many ready jobs. In each round, and on one size
  after the other, 2,000 more are registered in batches of 500, and as many claimed and completed in batches
  of 100. What a job costs is the median batch's time over its jobs.
- *relay*: so many rows are published from PostgreSQL to Redis by one relay, from the first to the last.
- *move*: so many jobs are moved from PostgreSQL to Redis by `jobctl migrate`, during its state "moving".
  Small moves pay for the state's beginning and end too.

To look at: the last column, the largest cost of a line over its smallest. A million jobs are registered
first, and moved at last, so a whole run takes long; `--sizes` and `--verbs` cut it.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from jobcontract_outbox import Relay, RelayOptions
from jobcontract_outbox.ends import find_ends

from benchmarks.migration_rates import configure, migrate, rate, url
from jobcontract import Backend, Job, get_backend
from jobcontract.config import Settings, load_settings

STEADY = ("register", "claim", "complete")
WHOLE = ("relay", "move")
SAMPLE = 2_000
REGISTERED, CLAIMED = 500, 100
_FILLING = 1000

Costs: TypeAlias = dict[str, list[float]]
"""By verb: microseconds a job, of each batch."""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--verbs", nargs="+", choices=[*STEADY, *WHOLE], default=[*STEADY, *WHOLE])
    kinds = ["postgres", "sqlite", "redis"]
    parser.add_argument("--stores", nargs="+", choices=kinds, default=kinds)
    arguments = parser.parse_args()
    sizes: list[int] = arguments.sizes
    print(f"{'us a job, of':<24}{''.join(f'{size:>12,}' for size in sizes)}{'largest/smallest':>18}")
    if set(STEADY) & set(arguments.verbs):
        for kind in arguments.stores:
            costs = steady(kind, sizes, arguments.rounds)
            for verb in STEADY:
                if verb in arguments.verbs:
                    _say(f"{verb}, {kind}", {size: statistics.median(costs[size][verb]) for size in sizes})
    ways: Mapping[str, Callable[[int], float]] = {"relay": relayed, "move": moved}
    for verb, way in ways.items():
        if verb in arguments.verbs:
            _say(f"{verb}, postgres to redis", {size: way(size) for size in sizes})


def _say(line: str, costs: Mapping[int, float]) -> None:
    ratio = max(costs.values()) / min(costs.values())
    print(f"{line:<24}{''.join(f'{cost:>12,.1f}' for cost in costs.values())}{ratio:>18.2f}", flush=True)


def steady(kind: str, sizes: Sequence[int], rounds: int) -> dict[int, Costs]:
    """What registering, claiming and completing cost beside a backlog of each size, in turns."""
    found: dict[int, Costs] = {size: {verb: [] for verb in STEADY} for size in sizes}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        backends: dict[int, Backend] = {}
        for size in sizes:
            where = url(stack, kind, f"s{size}", folder)
            backend = stack.enter_context(get_backend(where, settings=Settings()))
            backend.install()
            _fill(backend, size)
            _sample(backend, {verb: [] for verb in STEADY})  # connections, statements, the store's memory
            backends[size] = backend
        for _ in range(rounds):
            for size, backend in backends.items():
                _sample(backend, found[size])
    return found


def _sample(backend: Backend, costs: Costs) -> None:
    """As many in as out, so that the backlog stays as long as it was."""
    for _ in range(SAMPLE // REGISTERED):
        batch = _jobs(REGISTERED)
        begun = time.perf_counter()
        backend.register_many(batch)
        costs["register"].append((time.perf_counter() - begun) / REGISTERED * 1e6)
    for _ in range(SAMPLE // CLAIMED):
        begun = time.perf_counter()
        claims = backend.claim(limit=CLAIMED)
        claimed = time.perf_counter()
        backend.complete_many(claims)
        completed = time.perf_counter()
        assert len(claims) == CLAIMED, len(claims)
        costs["claim"].append((claimed - begun) / CLAIMED * 1e6)
        costs["complete"].append((completed - claimed) / CLAIMED * 1e6)


def relayed(size: int) -> float:
    """Microseconds a row, of an outbox with `size` rows that a relay empties."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "jobcontract.toml"
        file.write_text(
            f'[backends.postgres]\nurl = "{url(stack, "postgres", "outbox", folder)}"\n'
            f'[backends.redis]\nurl = "{url(stack, "redis", "target", folder)}"\noutbox = "postgres"\n'
        )
        settings = load_settings(file, environment={})
        backend = stack.enter_context(get_backend("redis", settings=settings))
        backend.install()
        relay = Relay(find_ends(settings, ("redis",)), RelayOptions())
        with contextlib.closing(relay):
            _fill(backend, _FILLING)
            relay.run_once()  # connections, statements
            _fill(backend, size)
            begun, before = time.perf_counter(), relay.loops[0].published
            relay.run_once()
            took = time.perf_counter() - begun
            assert relay.loops[0].published - before == size
    return took / size * 1e6


def moved(size: int) -> float:
    """Microseconds a job, of a migration that moves `size` of them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = configure(
            folder,
            {
                "old": url(stack, "postgres", "old", folder),
                "new": url(stack, "redis", "new", folder),
                "control": f"sqlite:///{folder}/control.db",
            },
        )
        with get_backend("old", settings=settings) as old, get_backend(settings=settings) as routed:
            old.install()
            routed.install()
            _fill(old, size)
        migrate(folder)
        return 1e6 / rate(settings, size)


def _fill(backend: Backend, size: int) -> None:
    for start in range(0, size, _FILLING):
        backend.register_many(_jobs(min(_FILLING, size - start)))


def _jobs(count: int) -> list[Job]:
    return [Job(kind="benchmark.work", input_ref={"number": number}) for number in range(count)]


if __name__ == "__main__":
    main()

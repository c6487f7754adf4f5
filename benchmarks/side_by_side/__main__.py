"""This product beside its peers, on the same private servers, in turns.

    python -m benchmarks.side_by_side [--stores postgres redis rabbitmq] [--scenarios drain latency ...]
        [--contestants jobcontract procrastinate ...] [--rounds 3] [--jobs 20000] [--output FILE [--add]]

What is compared and how is told in benchmarks/README.md. Writes the results as JSON (by default
benchmarks/results/<date>.json), and prints the tables.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.side_by_side.contestants import CONTESTANTS, Contestant, Store
from benchmarks.side_by_side.environments import NotInstallable, command
from benchmarks.side_by_side.plot import write_plots
from benchmarks.side_by_side.results import FOLDER, Results
from benchmarks.side_by_side.running import ContestantFailed
from benchmarks.side_by_side.scenarios import SCENARIOS, Scenario, Sizes
from benchmarks.side_by_side.stores import Arena, arena
from benchmarks.side_by_side.table import tables


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 1 when we failed somewhere ourselves (a peer that fails gets a dash)."""
    arguments = _parser().parse_args(words)
    sizes = Sizes(**{each.name: getattr(arguments, each.name) for each in fields(Sizes)})
    chosen = [
        one
        for one in CONTESTANTS
        if one.store in arguments.stores and (not arguments.contestants or one.name in arguments.contestants)
    ]
    scenarios = [one for one in SCENARIOS if not arguments.scenarios or one.name in arguments.scenarios]
    results = Results(sizes=asdict(sizes))
    output: Path = arguments.output or FOLDER / f"{results.date}.json"
    if arguments.add:
        earlier = Results.read(output)
        if (earlier.sizes, earlier.commit) != (results.sizes, results.commit):
            _say(f"{output} is of other sizes or of another commit: leave --add out\n")
            return 2
        results = earlier
    ready = [one for one in chosen if _install(one, results)]
    for store in dict.fromkeys(one.store for one in ready):
        with arena(store) as server:
            results.servers[store] = server.settings
            here = [one for one in ready if one.store is store]
            for round_ in range(1, arguments.rounds + 1):
                for scenario in scenarios:
                    for contestant in here if store in scenario.stores else ():
                        _say(f"{store}, round {round_}, {scenario.name}, {contestant.name}: ")
                        _measure(server, contestant, scenario, sizes, results)
                        results.write(output)
    plots = write_plots(results, output.parent)
    print(f"\n{tables(results)}\n\nwritten to {output}, with {len(plots)} plots")
    return any(entry.role != "peer" and entry.cannot for each in results.scenarios.values() for entry in each)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stores", nargs="+", type=Store, default=list(Store), choices=list(Store))
    parser.add_argument("--scenarios", nargs="+", choices=[one.name for one in SCENARIOS])
    parser.add_argument("--contestants", nargs="+", choices=sorted({one.name for one in CONTESTANTS}))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/<date>.json")
    parser.add_argument("--add", action="store_true", help="further rounds of the run in OUTPUT")
    for size in fields(Sizes):
        usual: int | float = getattr(Sizes, size.name)
        parser.add_argument(f"--{size.name}", type=type(usual), default=usual)
    return parser


def _install(contestant: Contestant, results: Results) -> bool:
    try:
        command(contestant)
    except NotInstallable as error:
        _say(f"{error}\n")
        return False
    results.contestants[contestant.key] = {
        "configuration": contestant.configuration,
        "requirements": list(contestant.requirements),
    }
    return True


def _measure(
    server: Arena, contestant: Contestant, scenario: Scenario, sizes: Sizes, results: Results
) -> None:
    entry = results.entry(scenario.name, contestant.name, contestant.store, contestant.role)
    if entry.cannot is None:
        entry.cannot = contestant.lacks.get(scenario.name)
    if entry.cannot is not None:
        _say(f"- ({entry.cannot})\n")
        return
    results.load.append(round(os.getloadavg()[0], 2))
    try:
        figures = scenario.measure(server, contestant, sizes)
    except ContestantFailed as error:
        entry.cannot = str(error)
        _say(f"failed: {error}\n")
        return
    for figure, value in figures.items():
        entry.values.setdefault(figure, []).append(round(value, 3))
    _say(
        ", ".join(f"{figure} {value:,.1f} {scenario.units[figure].text}" for figure, value in figures.items())
        + "\n"
    )


def _say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""The results as a table of text: medians, and the smallest and the largest value of the rounds."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.side_by_side.contestants import Store
from benchmarks.side_by_side.results import Entry, Results
from benchmarks.side_by_side.scenarios import SCENARIOS, Scenario, Unit


def tables(results: Results) -> str:
    """A table in Markdown for each scenario and store that has results."""
    parts: list[str] = []
    for scenario in SCENARIOS:
        for store in Store:
            entries = ranked(results, scenario, store)
            if entries:
                server = results.servers.get(store, str(store))
                parts.append(f"### {scenario.title}: {server}\n\n{_table(scenario, entries)}")
    return "\n\n".join(parts)


def ranked(results: Results, scenario: Scenario, store: Store) -> list[Entry]:
    """The entries of a scenario on a store, the best first, those without a value last."""
    figure, unit = next(iter(scenario.units.items()))

    def rank(entry: Entry) -> tuple[bool, float]:
        median = entry.median(figure)
        return median is None, (median or 0.0) * (1 if unit.lower_is_better else -1)

    return sorted(results.of(scenario.name, store), key=rank)


def written(value: float, unit: Unit) -> str:
    """A figure as people read it."""
    return f"{value:,.{unit.digits}f}"


def _table(scenario: Scenario, entries: Sequence[Entry]) -> str:
    heads = ["", *(f"{name}, {unit.text}" for name, unit in scenario.units.items())]
    rows = [heads, ["---", *("---:" for _ in scenario.units)]]
    for entry in entries:
        name = f"**{entry.contestant}**" if entry.role == "ours" else entry.contestant
        if entry.cannot is not None:
            rows.append([name, f"- ({entry.cannot})", *("" for _ in list(scenario.units)[1:])])
            continue
        rows.append([name, *(_cell(entry, figure, unit) for figure, unit in scenario.units.items())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(entry: Entry, figure: str, unit: Unit) -> str:
    median, spread = entry.median(figure), entry.spread(figure)
    if median is None or spread is None:
        return "-"
    low, high = spread
    return f"{written(median, unit)} ({written(low, unit)} to {written(high, unit)})"

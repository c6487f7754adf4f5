"""docs/guarantees.md, made of the promises, the scenarios and the figures of their last runs.

`python -m tests.faults.guarantees` writes it; `tests/docs/test_guarantees.py` fails when it is not current.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.faults.broken import BREAKS
from tests.faults.checker import PROMISES
from tests.faults.figures import read
from tests.faults.laboratory import Scenario
from tests.faults.scenarios import ATTACKS, COUNTED, HARD, RED_CONTROLS

DOCUMENT = Path(__file__).parents[2] / "docs" / "guarantees.md"

RUN_COLUMNS = (
    "scenario", "store", "declares", "faults", "acknowledged", "executions", "again", "lost", "violations"
)  # fmt: skip
TEMPLATE = Path(__file__).with_name("guarantees.template.md")


def render(figures: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    page = TEMPLATE.read_text()
    for place, table in {
        "promises": _promises(figures),
        "runs": _runs(figures, (*ATTACKS, *HARD)),
        "losses": _losses(figures),
        "red controls": _red_controls(figures),
    }.items():
        page = page.replace(f"<!-- {place} -->\n", table)
    return page


def _promises(figures: Sequence[dict[str, Any]]) -> str:
    judged = [each for each in figures if each["judged"] == "promises" and not each["must_break"]]
    stores = sorted({each["store"] for each in judged})
    rows: list[tuple[str, ...]] = []
    for promise in PROMISES:
        broken = sum(each["broken"].get(str(promise.number), 0) for each in judged)
        red = [
            each["scenario"].removeprefix("red-")
            for each in figures
            if each["must_break"] and str(promise.number) in each["broken"]
        ]
        # No scenario has a migration in it yet; the checker's own tests have.
        found = "no run yet" if promise.number == 9 else str(broken)
        rows.append((str(promise.number), promise.text, found, ", ".join(red) or "planted histories"))
    runs = f"Judged in {len(judged)} runs on {', '.join(stores)}.\n\n"
    return runs + _table(("", "promise", "violations", "seen when broken by"), rows)


def _runs(figures: Sequence[dict[str, Any]], scenarios: Sequence[Scenario]) -> str:
    rows = [
        (
            scenario.name,
            run["store"],
            run["durability"],
            _faults(run["faults"]),
            f"{run['acknowledged']:,}",
            f"{run['executions']:,}",
            f"{run['again']:,}",
            f"{run['lost']:,}",
            f"{run['violations']}{' (only loss is judged)' if run['judged'] == 'loss' else ''}",
        )
        for scenario in scenarios
        for run in _of(figures, scenario)
    ]
    return _table(RUN_COLUMNS, rows) + _not_run(figures, scenarios)


def _losses(figures: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            scenario.name,
            scenario.stage.__doc__.splitlines()[0] if scenario.stage.__doc__ else "",
            _faults(run["faults"]),
            f"{run['lost']:,} of {run['acknowledged']:,} ({run['lost'] / run['acknowledged']:.1%})",
        )
        for scenario in COUNTED
        for run in _of(figures, scenario)
    ]
    head = ("scenario", "setting", "faults", "acknowledged jobs that were lost")
    return _table(head, rows) + _not_run(figures, COUNTED)


def _red_controls(figures: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            scenario.name,
            (BREAKS[scenario.bad].__doc__ or "").splitlines()[0],
            ", ".join(f"{number} ({count} times)" for number, count in run["broken"].items()),
        )
        for scenario in RED_CONTROLS
        for run in _of(figures, scenario)
    ]
    head = ("scenario", "the product's fault", "promises that were found broken")
    return _table(head, rows) + _not_run(figures, RED_CONTROLS)


def _not_run(figures: Sequence[dict[str, Any]], scenarios: Sequence[Scenario]) -> str:
    """That figures are missing is said, too."""
    missing = [f"`{each.name}`" for each in scenarios if not _of(figures, each)]
    return f"\nNot run for this page: {', '.join(missing)}.\n" if missing else ""


def _of(figures: Sequence[dict[str, Any]], scenario: Scenario) -> list[dict[str, Any]]:
    return [each for each in figures if each["scenario"] == scenario.name]


def _faults(counts: dict[str, int]) -> str:
    told = (name if count == 1 else f"{name} ({count} times)" for name, count in counts.items())
    return ", ".join(told) or "none"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    DOCUMENT.write_text(render(read()))

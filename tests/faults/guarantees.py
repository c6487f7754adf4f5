"""docs/guarantees.md, made of the promises, the scenarios and the figures of their last runs.

`python -m tests.faults.guarantees` writes it; `tests/docs/test_guarantees.py` fails when it is not current.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.faults.broken import BREAKS
from tests.faults.checker import PROMISES, Promise
from tests.faults.figures import read
from tests.faults.laboratory import Scenario
from tests.faults.moving_stages import MovingStage
from tests.faults.scenarios import ATTACKS, COUNTED, HARD, MOVES, RED_CONTROLS, SCENARIOS
from tests.faults.stages import OutboxRabbitStage, OutboxStage, RabbitStage

DOCUMENT = Path(__file__).parents[2] / "docs" / "guarantees.md"

RUN_COLUMNS = (
    "scenario", "store", "declares", "faults", "acknowledged", "executions", "again", "lost", "violations"
)  # fmt: skip
LONG_FIGURES = ("acknowledged", "executions", "again", "lost", "violations")
MOVE_FIGURES = ("acknowledged", "executions", "again", "moved", "refused", "lost", "violations")
TEMPLATE = Path(__file__).with_name("guarantees.template.md")


def render(figures: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    page = TEMPLATE.read_text()
    for place, table in {
        "promises": _promises(figures),
        "settings": _settings(figures),
        "times": _times(figures),
        "runs": _runs(figures, (*ATTACKS, *HARD)),
        "moves": _moves(figures),
        "long runs": _long_runs(figures),
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
        seen = ", ".join(red) or "planted histories"
        rows.append((str(promise.number), promise.text, promise.holds, str(broken), seen))
    runs = f"Judged in {len(judged)} runs on {', '.join(stores)}.\n\n"
    return runs + _table(("", "promise", "holds on", "violations", "seen when broken by"), rows)


def _settings(figures: Sequence[dict[str, Any]]) -> str:
    """Each promise at each store and setting, with the faults there."""
    rows = [
        (
            setting,
            _faults(Counter(name for run in there for name in Counter[str](run["faults"]).elements())),
            f"{sum(run['acknowledged'] for run in there):,}",
            *(_broken(promise, there) for promise in PROMISES),
        )
        for setting, there in _by_setting(figures).items()
    ]
    numbers = (str(promise.number) for promise in PROMISES)
    return _table(("store and setting", "faults", "acknowledged", *numbers), rows)


def _by_setting(figures: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = {}
    for scenario in (*ATTACKS, *HARD, *MOVES):
        runs.setdefault(scenario.stage.setting, []).extend(
            each for each in figures if each["scenario"] == scenario.name
        )
    return runs


def _times(figures: Sequence[dict[str, Any]]) -> str:
    """The slowest of each kind, in seconds."""
    rows = [
        (
            setting,
            *(f"{max(run[figure] for run in there):.2f} s" for figure in ("claimed_after", "back_after")),
            f"{max(run['rescued_after'] for run in there):.1f} s of {orphans:,}" if orphans else "-",
        )
        for setting, there in _by_setting([run for run in figures if "orphans" in run]).items()
        if there
        for orphans in (sum(run["orphans"] for run in there),)
    ]
    head = ("store and setting", "a due job", "the first after the faults", "a job whose worker was killed")
    return _table(head, rows)


def _broken(promise: Promise, runs: Sequence[dict[str, Any]]) -> str:
    """How often; a dash where nothing of the kind was promised or could have been seen."""
    seen = [run for run in runs if _is_judged(promise.number, run)]
    return str(sum(run["broken"].get(str(promise.number), 0) for run in seen)) if seen else "-"


def _is_judged(promise: int, run: dict[str, Any]) -> bool:
    scenario = SCENARIOS[run["scenario"]]
    copies = issubclass(scenario.stage, RabbitStage)
    outbox = issubclass(scenario.stage, OutboxStage)
    if run["judged"] == "loss":
        return promise == 1
    match promise:
        case 2:
            return bool(run["rolled_back"])
        case 3 | 5 | 7:
            return not copies and scenario.stage is not OutboxRabbitStage
        case 4:
            return not copies
        case 8:
            return outbox
        case 9:
            return issubclass(scenario.stage, MovingStage)
        case 12:
            return scenario.odd
        case _:
            return True


def _long_runs(figures: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            f"`{run['command']}`",
            SCENARIOS[run["scenario"]].stage.setting,
            *(f"{run[figure]:,}" for figure in LONG_FIGURES),
        )
        for run in figures
        if _is_long(run)
    ]
    return _table(("command", "store and setting", *LONG_FIGURES), rows)


def _is_long(run: dict[str, Any]) -> bool:
    return "--jobs" in run.get("command", "")


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


def _moves(figures: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            scenario.name,
            scenario.stage.__doc__.splitlines()[0].rstrip(".") if scenario.stage.__doc__ else "",
            _faults(run["faults"]),
            *(f"{run[figure]:,}" for figure in MOVE_FIGURES),
        )
        for scenario in MOVES
        for run in _of(figures, scenario)
    ]
    return _table(("scenario", "jobs move", "faults", *MOVE_FIGURES), rows) + _not_run(figures, MOVES)


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
    return [each for each in figures if each["scenario"] == scenario.name and not _is_long(each)]


def _faults(counts: Mapping[str, int]) -> str:
    told = (name if count == 1 else f"{name} ({count} times)" for name, count in sorted(counts.items()))
    return ", ".join(told) or "none"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    DOCUMENT.write_text(render(read()))

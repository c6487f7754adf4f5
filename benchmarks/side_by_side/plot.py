"""The results as pictures: a bar per contestant for its median, a line from the least to the greatest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import svg

from benchmarks.side_by_side.contestants import Store
from benchmarks.side_by_side.results import Entry, Results
from benchmarks.side_by_side.scenarios import SCENARIOS, Scenario
from benchmarks.side_by_side.table import ranked, written

_COLOURS = {"ours": "#2f81f7", "bare": "#b7bec7", "peer": "#768390"}
_TEXT = "#768390"  # to be read on white and on black
_FONT = "system-ui, sans-serif"
_WIDTH, _LEFT, _RIGHT, _BAR, _GAP, _TOP = 720, 130, 170, 20, 8, 44


def write_plots(results: Results, folder: Path) -> list[Path]:
    """A file ``<scenario>-<store>.svg`` for each scenario and store that has values."""
    paths: list[Path] = []
    for scenario in SCENARIOS:
        for store in Store:
            figure = next(iter(scenario.units))
            entries = [one for one in ranked(results, scenario, store) if one.median(figure) is not None]
            if entries:
                path = folder / f"{scenario.name}-{store}.svg"
                subtitle = results.servers.get(store, str(store)).partition(":")[0]
                path.write_text(_plot(scenario, subtitle, entries).as_str() + "\n")
                paths.append(path)
    return paths


def _plot(scenario: Scenario, subtitle: str, entries: Sequence[Entry]) -> svg.SVG:
    figure, unit = next(iter(scenario.units.items()))
    longest = max(high for entry in entries if (spread := entry.spread(figure)) for high in spread)
    scale = (_WIDTH - _LEFT - _RIGHT) / longest
    better = "less is better" if unit.lower_is_better else "more is better"
    elements: list[svg.Element] = [
        _text(0, 14, scenario.title, weight="bold"),
        _text(0, 31, f"{subtitle}; {figure}, {unit.text}; {better}"),
    ]
    for row, entry in enumerate(entries):
        median, spread = entry.median(figure), entry.spread(figure)
        assert median is not None
        assert spread is not None
        top = _TOP + row * (_BAR + _GAP)
        low, high = (_LEFT + value * scale for value in spread)
        middle = top + _BAR / 2
        elements += [
            _text(_LEFT - 8, middle + 5, entry.contestant, anchor="end", weight=_weight(entry)),
            svg.Rect(
                x=_LEFT, y=top, width=round(median * scale, 1), height=_BAR, fill=_COLOURS[entry.role], rx=2
            ),
            svg.Line(
                x1=round(low, 1), x2=round(high, 1), y1=middle, y2=middle, stroke="#f0883e", stroke_width=2
            ),
            _text(
                max(high, _LEFT + median * scale) + 8,
                middle + 5,
                written(median, unit),
                weight=_weight(entry),
            ),
        ]
    height = _TOP + len(entries) * (_BAR + _GAP)
    return svg.SVG(
        width=_WIDTH, height=height, viewBox=svg.ViewBoxSpec(0, 0, _WIDTH, height), elements=elements
    )


def _weight(entry: Entry) -> str:
    return "bold" if entry.role == "ours" else "normal"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> svg.Text:
    bold = weight == "bold"
    return svg.Text(
        x=round(x, 1),
        y=y,
        text=text,
        fill=_TEXT,
        font_family=_FONT,
        font_size=14,
        font_weight="bold" if bold else "normal",
        text_anchor="end" if anchor == "end" else "start",
    )

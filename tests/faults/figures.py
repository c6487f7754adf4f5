"""The figures of runs, kept beside the code: what docs/guarantees.md is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.faults.laboratory import Report

FIGURES = Path(__file__).with_name("figures.json")


def keep(path: Path, report: Report) -> None:
    """Put the figures of a run in the place of an earlier one of the same scenario and seed."""
    found = read(path) if path.exists() else []
    key = (report.scenario, report.seed)
    others = [each for each in found if (each["scenario"], each["seed"]) != key]
    lines = (json.dumps(each) for each in (*others, report.figures))
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def read(path: Path = FIGURES) -> list[dict[str, Any]]:
    """All that were kept."""
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found

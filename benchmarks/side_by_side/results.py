"""The results of a run: collected, written as JSON, and read back for tables and plots."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "results"


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(words, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _machine() -> dict[str, Any]:
    return {
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": [round(value, 2) for value in os.getloadavg()],
    }


@dataclass
class Entry:
    """What one contestant did in one scenario."""

    contestant: str
    store: str
    role: str
    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """For each figure, one value per round."""
    cannot: str | None = None
    """Why there are no values: the contestant lacks it, or failed."""

    def median(self, figure: str) -> float | None:
        """The median over the rounds, or None when there is no value."""
        values = self.values.get(figure)
        return statistics.median(values) if values else None

    def spread(self, figure: str) -> tuple[float, float] | None:
        """The smallest and the largest value."""
        values = self.values.get(figure)
        return (min(values), max(values)) if values else None


@dataclass
class Results:
    """One run."""

    date: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d"))
    commit: str = field(default_factory=_commit)
    machine: dict[str, Any] = field(default_factory=_machine)
    sizes: dict[str, float] = field(default_factory=dict[str, float])
    servers: dict[str, str] = field(default_factory=dict[str, str])
    contestants: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By key: configuration and requirements."""
    load: list[float] = field(default_factory=list[float])
    """The machine's one-minute load average before each measurement: what else ran on it, and this."""
    scenarios: dict[str, list[Entry]] = field(default_factory=dict[str, list[Entry]])

    def entry(self, scenario: str, contestant: str, store: str, role: str) -> Entry:
        """The entry of a contestant in a scenario, a new one at the first call."""
        entries = self.scenarios.setdefault(scenario, [])
        for entry in entries:
            if (entry.contestant, entry.store) == (contestant, store):
                return entry
        entries.append(Entry(contestant, store, role))
        return entries[-1]

    def of(self, scenario: str, store: str) -> Iterator[Entry]:
        """The entries of a scenario on a store."""
        return (entry for entry in self.scenarios.get(scenario, []) if entry.store == store)

    def write(self, path: Path) -> None:
        """As JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Results:
        """What `write` wrote."""
        data = json.loads(path.read_text())
        scenarios = {
            name: [Entry(**entry) for entry in entries] for name, entries in data.pop("scenarios").items()
        }
        return cls(**data, scenarios=scenarios)

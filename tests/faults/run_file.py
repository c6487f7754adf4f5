"""What the processes of a run share: a folder with the configuration and the settings of the run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from jobcontract.config import Settings, load_settings

STORE = "store"
"""The backend that producers and workers use."""
OLD, NEW = "old", "new"
"""The backends of a migration."""
OUTBOX = "outbox"
"""The backend whose database holds the outbox, and the history's name for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """Written by the runner, read by the programs."""

    seed: int
    jobs: int
    """For each producer, at least."""
    pace: float
    """Seconds between two batches of a producer."""
    lease: float
    rescue: float
    keys: bool
    future: bool
    transactions: str
    """The URL of the database where producers have their transactions, or nothing."""
    hold: float
    hold_share: float
    slow: float
    slow_share: float
    outbox: bool
    bad: str
    """The name of the fault that the product is built with: see `tests.faults.broken`."""
    moves: bool = False
    """Whether jobs move from `OLD` to `NEW` meanwhile: clients follow the control store."""

    def write(self, folder: Path) -> None:
        (folder / "run.json").write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Self:
        return cls(**json.loads((folder / "run.json").read_text()))


def enough(folder: Path) -> Path:
    """A file that is there when producers have produced for long enough."""
    return folder / "enough"


def read_settings(folder: Path) -> Settings:
    """The configuration of the run, as an application has it."""
    return load_settings(folder / "jobcontract.toml", environment={})


TICKING = """
[schedules.tick]
every = "1s"
kind = "work"
max_attempts = 20
"""
"""Work that recurs, for the schedulers of a run."""


def write_settings(folder: Path, store: str, *, outbox: str = "", options: str = "") -> None:
    """The backend `STORE` at a URL, behind an outbox at another if there is one."""
    behind = f'outbox = "{OUTBOX}"\n' if outbox else ""
    host = f'[backends.{OUTBOX}]\nurl = "{outbox}"\n' if outbox else ""
    text = f'default = "{STORE}"\n\n[backends.{STORE}]\nurl = "{store}"\n{options}{behind}\n{host}{TICKING}'
    (folder / "jobcontract.toml").write_text(text)

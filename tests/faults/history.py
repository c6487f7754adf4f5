"""What happened, as each process saw it: a file of JSON lines per process, written as it happens.

An operation is two lines: what was asked, before it was sent, and what was answered. A process that is killed
in between leaves the first one, and the outcome of the operation is unknown::

    {"n": 7, "at": 81.203, "verb": "complete", "store": "postgres", "asked": {...}}
    {"n": 7, "at": 81.207, "outcome": "ok", "answered": [...]}

Times are `time.monotonic`, which all processes of a host share, whatever their wall clocks say.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

Fields: TypeAlias = Mapping[str, Any]  # Any: what a line of JSON holds


class Outcome(StrEnum):
    """What is known about an operation."""

    OK = "ok"
    """It was answered. (A verdict of "lost" is an answer, too.)"""
    FAIL = "fail"
    """It had no effect, for certain."""
    UNKNOWN = "unknown"
    """It may have happened, or may yet happen, or not."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that a process did, or tried to."""

    process: str
    number: int
    verb: str
    store: str
    invoked: float
    returned: float
    """`math.inf` when the process did not live to see it."""
    outcome: Outcome
    asked: Fields
    answered: Any
    """None unless the outcome is OK."""

    @property
    def items(self) -> list[dict[str, Any]]:
        """The answers, one for each thing that was asked or found; empty where there was none."""
        return list(self.answered or ())

    def __str__(self) -> str:
        return f"{self.process}#{self.number} {self.verb}"


@dataclass(slots=True)
class Answer:
    """Filled in by who carries an operation out."""

    answered: Any = None
    outcome: Outcome = Outcome.OK


class Recorder:
    """The file of one process. Safe to use from several threads. A line is one write, so that a kill leaves
    whole ones, but for the last.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self._lock = threading.Lock()
        self._number = 0
        self._file = os.open(folder / f"{process}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @contextmanager
    def operation(self, verb: str, asked: Fields, *, store: str = "") -> Generator[Answer]:
        """Record the block. What it raises is recorded as unknown, unless the block has set an outcome."""
        with self._lock:
            self._number += 1
            number = self._number
        self._write({"n": number, "at": time.monotonic(), "verb": verb, "store": store, "asked": dict(asked)})
        answer = Answer()
        try:
            yield answer
        except BaseException:
            if answer.outcome is Outcome.OK:
                answer.outcome = Outcome.UNKNOWN
            raise
        finally:
            self._write(
                {
                    "n": number,
                    "at": time.monotonic(),
                    "outcome": answer.outcome,
                    "answered": answer.answered if answer.outcome is Outcome.OK else None,
                }
            )

    def note(self, verb: str, **asked: Any) -> None:
        """Something that just is so."""
        with self.operation(verb, asked):
            pass

    def sync(self) -> None:
        """Block until all that was written is on the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, (json.dumps(line, separators=(",", ":")) + "\n").encode())


@dataclass(slots=True)
class History:
    """All operations of a run, by the time they were invoked."""

    operations: list[Operation] = field(default_factory=list[Operation])

    @classmethod
    def read(cls, folder: Path) -> History:
        """From the files of all processes in `folder`."""
        found: list[Operation] = []
        for path in sorted(folder.glob("*.jsonl")):
            found += parse(path.stem, path.read_text().splitlines(keepends=True))
        return cls(sorted(found, key=lambda each: each.invoked))

    def of(self, *verbs: str) -> list[Operation]:
        """The operations with one of these verbs."""
        return [each for each in self.operations if each.verb in verbs]


def parse(process: str, lines: Iterable[str]) -> list[Operation]:
    """The operations of one process. A last line that a kill cut off does not count."""
    asked: dict[int, dict[str, Any]] = {}
    done: dict[int, dict[str, Any]] = {}
    for text in lines:
        if not text.endswith("\n"):
            continue
        line: dict[str, Any] = json.loads(text)
        (asked if "verb" in line else done)[line["n"]] = line
    nothing: dict[str, Any] = {"at": math.inf, "outcome": Outcome.UNKNOWN, "answered": None}
    return [
        Operation(
            process,
            number,
            begun["verb"],
            begun["store"],
            begun["at"],
            ended["at"],
            Outcome(ended["outcome"]),
            begun["asked"],
            ended["answered"],
        )
        for number, begun in asked.items()
        for ended in (done.get(number, nothing),)
    ]

"""The indexes of an installation: which there have to be, and those that are missing or broken.

They are read from the migrations, so that each is written once.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_CREATE = re.compile(
    r"^CREATE INDEX (?:IF NOT EXISTS )?(\w+) ON (?:ONLY )?\{schema\}\.(\w+) ([^;]+);", re.MULTILINE
)
_DROP = re.compile(r"^DROP INDEX (?:IF EXISTS )?\{schema\}\.(\w+);", re.MULTILINE)


class Index(NamedTuple):
    """One index, as its migration makes it."""

    name: str
    table: str
    definition: str
    """What follows the table's name."""


@cache
def indexes() -> tuple[Index, ...]:
    """Every index that is no constraint, in the order of the migrations."""
    found: dict[str, Index] = {}
    directory = files("jobcontract_postgres").joinpath("schema")
    for entry in sorted(directory.iterdir(), key=lambda each: each.name):
        text = entry.read_text(encoding="utf-8") if entry.name.endswith(".sql") else ""
        found |= {match[1]: Index(match[1], match[2], match[3]) for match in _CREATE.finditer(text)}
        for match in _DROP.finditer(text):
            found.pop(match[1], None)
    return tuple(found.values())

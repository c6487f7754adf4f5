"""The Lua scripts: each file is one verb, and its header says which keys it is given.

A header is read, not only written: ``KEYS[n] name`` lines make the key names of a call, and ``USES`` names
the files of ``lua/parts`` whose text stands in front of the script's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha1
from importlib import resources

_KEY = re.compile(r"^-- KEYS\[(\d+)\] +(\w+) ", re.MULTILINE)
_USES = re.compile(r"^-- USES ([a-z ]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One verb as the server runs it."""

    name: str
    source: bytes
    digest: bytes
    """SHA-1 of `source` in hexadecimal: the name under which the server caches it."""
    keys: tuple[str, ...]
    """Which keys of a queue it is given, in order."""


def _load(name: str) -> Script:
    folder = resources.files("jobcontract_redis") / "lua"
    text = (folder / f"{name}.lua").read_text(encoding="utf-8")
    numbered = _KEY.findall(text)
    if [int(number) for number, _ in numbered] != list(range(1, len(numbered) + 1)) or not numbered:
        raise AssertionError(f"the header of {name}.lua does not number its keys from 1 on")
    uses = _USES.search(text)
    parts = [
        (folder / "parts" / f"{part}.lua").read_text(encoding="utf-8")
        for part in (uses[1].split() if uses else ())
    ]
    source = "\n".join([*parts, text]).encode()
    return Script(name, source, sha1(source).hexdigest().encode(), tuple(key for _, key in numbered))


REGISTER = _load("register")
CLAIM = _load("claim")
COMPLETE = _load("complete")
FAIL = _load("fail")
EXTEND = _load("extend")
RELEASE = _load("release")
RESCUE = _load("rescue")
REPAIR = _load("repair")
DUE = _load("due")
GET = _load("get")
JOBS = _load("jobs")
STATS = _load("stats")
CANCEL = _load("cancel")
REQUEUE = _load("requeue")
PRUNE = _load("prune")
PAUSE = _load("pause")
RESUME = _load("resume")
READ_NOTES = _load("read_notes")
WRITE_NOTE = _load("write_note")
GATE_SET = _load("gate_set")
HIDE = _load("hide")
HIDDEN = _load("hidden")
REVEAL = _load("reveal")
BURY = _load("bury")
BURIED = _load("buried")
KEYED = _load("keyed")
RECALL = _load("recall")
FORGET_BURIED = _load("forget_buried")
ADMIT = _load("admit")

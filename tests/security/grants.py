"""The grants of docs/security.md, as the tests give them to roles of their own."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
_BLOCK = re.compile(r"^```(\w+) ([\w-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def grants(store: str) -> dict[str, str]:
    """What the document gives each role on `store` (sql, acl, rabbitmq)."""
    return {role: text.strip() for kind, role, text in _BLOCK.findall(DOCUMENT.read_text()) if kind == store}

"""The real input of the demo: the text files of a folder."""

from __future__ import annotations

import os
import re
import sysconfig
from collections import Counter
from pathlib import Path

from jobcontract.errors import ConfigError

MAX_DOCUMENT_BYTES = 1024 * 1024
_SKIPPED_FOLDERS = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})
_WORD = re.compile(r"[^\W\d_]{3,40}")


def default_folder() -> Path:
    """The standard library of the running Python: real text that every machine with Python has."""
    return Path(sysconfig.get_paths()["stdlib"])


def find_documents(folder: Path) -> list[Path]:
    """The text files below `folder`, in order. Raises `ConfigError` when there are none. Follows no links."""
    if not folder.is_dir():
        raise ConfigError(f"DOCUMENTS: {folder} is not a folder")
    found: list[Path] = []
    for directory, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")
        )
        found += (path for name in sorted(files) if _is_text(path := Path(directory, name)))
    if not found:
        raise ConfigError(
            f"DOCUMENTS: {folder} holds no text files of at most {MAX_DOCUMENT_BYTES // 1024} KiB"
        )
    return found


def extract_terms(text: str, most: int = 20) -> dict[str, int]:
    """The most frequent words of `text` with their counts: the slow work that a real application would do
    with a model.
    """
    return dict(Counter(word.lower() for word in _WORD.findall(text)).most_common(most))


def _is_text(path: Path) -> bool:
    try:
        if path.is_symlink() or not 0 < path.stat().st_size <= MAX_DOCUMENT_BYTES:
            return False
        str(path).encode()  # a name that is not UTF-8 could not be stored
        return "\x00" not in path.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return False

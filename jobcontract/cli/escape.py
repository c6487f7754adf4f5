"""Text of strangers, made harmless: payloads, errors and names come from anybody who can register a job.

A terminal obeys control characters, and bidirectional ones make a line read otherwise than it is written.
People get both as visible escapes; programs get JSON that is plain ASCII.
"""

from __future__ import annotations

import json
import re
import unicodedata

_URL_PASSWORD = re.compile(r"(?<=://)([^\s:/@?#]*):\S*@")


def escape(text: str, *, keep: str = "") -> str:
    r"""`text` with everything that is not printable, but the characters in `keep`, as ``\x1b``, ``\u202e``.

    Spaces of all widths stay. For people to read, not to be read back: a backslash is not doubled.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep or unicodedata.category(character) == "Zs"
        else _visible(character)
        for character in text
    )


def one_line(text: str) -> str:
    """`text` as a single line, escaped, passwords of URLs hidden."""
    return escape(without_url_passwords(" ".join(text.splitlines())))


def brief(text: str | None, most: int = 200) -> str:
    """The line of `text` that says what happened, `most` characters at most.

    That is the first one, as the worker writes its errors; of a traceback that an application stored, the
    last.
    """
    text = (text or "").strip()
    # Cut before splitting: megabytes for one line are not worth it.
    end = slice(-4 * most, None) if text.startswith("Traceback") else slice(4 * most)
    lines = text[end].splitlines()
    line = (lines[0 if end.start is None else -1] if lines else "").strip()
    return escape(line if len(line) <= most else f"{line[: most - 3]}...")


def ascii_json(value: object, *, indent: int | None = None) -> str:
    """`value` as JSON in printable ASCII."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent).replace("\x7f", "\\u007f")


def without_url_passwords(text: str) -> str:
    """`text` with the password of every URL in it as ``***``."""
    return _URL_PASSWORD.sub(r"\1:***@", text)


def _visible(character: str) -> str:
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

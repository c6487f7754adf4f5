"""JSON as jobcontract writes it: text that every store can hold and every reader gets back unchanged.

What a store could refuse, change or choke on is refused here, once, before any I/O:

- NaN and infinities are not JSON;
- NUL (U+0000) can't be stored in PostgreSQL text, and a lone surrogate can't be encoded as UTF-8;
- integers are kept exactly, up to `MAX_INTEGER_DIGITS`: beyond it Python's own reader refuses the text (its
  ``int_max_str_digits``), so that the job could be written and never be read;
- deep nesting overflows the stack of recursive readers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from hashlib import blake2b
from typing import TypeAlias, cast

from pydantic_core import PydanticSerializationError, to_json

JsonObject: TypeAlias = "dict[str, JsonData]"
JsonData: TypeAlias = "JsonObject | list[JsonData] | str | int | float | bool | None"

MAX_INTEGER_DIGITS = 4300
MAX_DEPTH = 64
# json.dumps makes an encoder for every call that has options; these are made once.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode
_FLAT = frozenset((str, int, bool, type(None)))
_INTEGER_BOUND = 10**MAX_INTEGER_DIGITS


class UnstorableText(ValueError):
    """The value holds something that not every store can keep. The message says where and what."""


def dump_json(value: object) -> str:
    """`value` as compact JSON text, non-ASCII characters unescaped.

    Raises `UnstorableText` for anything that would not come back from every store exactly as it is.
    """
    try:
        text = _encode(value)
    except (ValueError, RecursionError):
        _refuse(value, "", 0)
        raise UnstorableText("can't be written as JSON") from None
    # The fast path of a good value ends here: the escaped NUL is the only bad thing that json.dumps lets pass
    # beside lone surrogates, and nesting shows as brackets.
    if (
        "\\u0000" in text
        or not is_encodable(text)
        or text.count("{") + text.count("[") > MAX_DEPTH
        or not 0 < sys.get_int_max_str_digits() <= MAX_INTEGER_DIGITS  # the application lifted Python's limit
    ):
        _refuse(value, "", 0)
    return text


def dump_flat_json(value: Mapping[str, object]) -> str:
    """`dump_json` for an object that is known to be JSON. Where it is of strings, integers, truths and nulls,
    as most inputs are, pydantic writes the same text in a fifth of the time. (Of a float it would write
    another: 1e16, not 1e+16.)
    """
    for each in value.values():
        if type(each) not in _FLAT:
            return dump_json(value)
    try:
        text = to_json(value).decode()
    except PydanticSerializationError:  # a lone surrogate
        return dump_json(value)
    if len(text) > MAX_INTEGER_DIGITS or "\\u0000" in text:
        return dump_json(value)
    return text


def check_text(text: str) -> str:
    """`text` itself, or `UnstorableText` when it holds NUL or a lone surrogate."""
    if "\x00" in text:
        raise UnstorableText(f"holds NUL (U+0000) at position {text.index(chr(0))}, which can't be stored")
    if not is_encodable(text):
        raise UnstorableText("holds a lone surrogate, which can't be encoded as UTF-8")
    return text


def is_encodable(text: str) -> bool:
    """Whether `text` can be encoded as UTF-8 (it can't with a lone surrogate in it)."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def storable(text: str, *, max_bytes: int) -> str:
    """The nearest text to `text` that can be stored: for error texts, whose write must never fail.

    NUL and lone surrogates become U+FFFD; what is longer than `max_bytes` in UTF-8 keeps its head and its
    tail, for a traceback ends with what matters. Cuts before it encodes, so that 50 MB cost nothing.
    """
    if len(text) > max_bytes:
        text = text[: max_bytes // 2] + "\n[...]\n" + text[-(max_bytes // 2) :]
    text = text.replace("\x00", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    encoded = text.encode("utf-8")
    if len(encoded) <= max_bytes:
        return text
    half = (max_bytes - len(b"\n[...]\n")) // 2
    return encoded[:half].decode("utf-8", "ignore") + "\n[...]\n" + encoded[-half:].decode("utf-8", "ignore")


def fingerprint(kind: str, value: object) -> bytes:
    """16 bytes that differ when kind or input of two jobs differ, whatever the order of their keys."""
    canonical = _encode_sorted(value)
    return blake2b(f"{kind}\n{canonical}".encode(), digest_size=16).digest()


def _refuse(value: object, path: str, depth: int) -> None:
    """Raise `UnstorableText` for the first bad part of `value`, naming its path, if there is one."""
    where = path if len(path) <= 80 else f"{path[:77]}..."
    where = where or "the value"
    if depth > MAX_DEPTH:
        raise UnstorableText(f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        try:
            check_text(value)
        except UnstorableText as error:
            raise UnstorableText(f"{where} {error}") from None
    elif isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            _refuse(key, f"a key of {where}", depth)
            _refuse(item, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(cast("list[object]", value)):
            _refuse(item, f"{path}[{position}]", depth + 1)
    elif isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise UnstorableText(f"{where} is {value}, which is not JSON")
    elif isinstance(value, int) and abs(value) >= _INTEGER_BOUND:
        raise UnstorableText(f"{where} is an integer of more than {MAX_INTEGER_DIGITS} digits")

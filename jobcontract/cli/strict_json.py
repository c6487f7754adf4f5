"""JSON read strictly: what is doubtful in it is an error, for it would not be stored as it was written."""

from __future__ import annotations

import json
from typing import NoReturn

from jobcontract.jsontext import JsonData, JsonObject


class NotJson(ValueError):
    """The text is not a JSON object. The message says what is wrong, and where."""


def read_object(text: str) -> JsonObject:
    """`text` as a JSON object. Raises `NotJson`, also for NaN and for a name that an object has twice."""
    try:
        found: JsonData = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise NotJson(f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at {where}") from None
    except RecursionError:
        raise NotJson("is JSON that is nested too deeply") from None
    except NotJson:
        raise
    except ValueError as error:  # an integer of more digits than Python reads
        raise NotJson(f"is not JSON that can be read: {error}") from None
    if not isinstance(found, dict):
        raise NotJson(f'is not a JSON object such as {{"name": 1}}, but {_name_of(found)}')
    return found


def _object(pairs: list[tuple[str, JsonData]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotJson(f"has {twice[:80]!r} twice in one object")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise NotJson(f"has {text}, which is not JSON")


def _name_of(value: JsonData) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "a number"

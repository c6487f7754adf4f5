"""Text of the command line, checked and turned into values.

Functions for the `callback` of an option, and not subclasses of `click.ParamType`, which is generic in some
versions of click and not in others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import click

from jobcontract.cli.strict_json import NotJson, read_object
from jobcontract.contract import State
from jobcontract.durations import parse_duration
from jobcontract.jsontext import JsonObject

Value = TypeVar("Value")

STATES = click.Choice([state.value for state in State])


def converted(
    convert: Callable[[str], Value],
) -> Callable[[click.Context, click.Parameter, str | None], Value | None]:
    """The callback of an option whose text `convert` reads, raising `ValueError` with a sentence."""

    def callback(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Value | None:
        if text is None:
            return None
        try:
            return convert(text)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, parameter) from None

    return callback


def read_instant(text: str) -> datetime:
    """An ISO 8601 time with its zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an ISO 8601 time such as 2030-01-31T06:00:00Z") from None
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; append Z or an offset such as +02:00")
    return at


def read_headers(texts: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE``, several times."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"{text!r} is not written as NAME=VALUE")
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value
    return found


def read_input_ref(text: str) -> JsonObject:
    """A JSON object."""
    try:
        return read_object(text)
    except NotJson as error:
        raise ValueError(f"the text {error}") from None


def read_queues(text: str) -> tuple[str, ...]:
    """Names of queues, separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"{text!r} is not a list of queues; write it as critical,default")
    return names


as_duration = converted(parse_duration)
as_instant = converted(read_instant)
as_input_ref = converted(read_input_ref)
as_queues = converted(read_queues)


def as_headers(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    """The callback of a repeated ``NAME=VALUE``; None when there is none."""
    try:
        return read_headers(texts) or None
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None

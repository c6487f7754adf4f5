"""The registry of handlers: which function runs which kind of job, and under which terms.

::

    handlers = Handlers()

    @handlers.handler(EmbedDocument, timeout="10m", concurrency=4)
    def embed(input: EmbedDocument, context: JobContext) -> None: ...

    @handlers.handler("plain.kind")
    async def other(input: dict[str, object]) -> None: ...

A kind is looked up here and nowhere else: no name that comes out of a store is ever imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from jobcontract.backoff import DEFAULT_BACKOFF, Backoff
from jobcontract.context import JobContext
from jobcontract.contract import Kind
from jobcontract.durations import PositiveDuration
from jobcontract.errors import ConfigError
from jobcontract.kinds import JobInput
from jobcontract.limits.rate import Rate

HandlerFunction = TypeVar("HandlerFunction", bound=Callable[..., object])

_kind: TypeAdapter[str] = TypeAdapter(Kind)
_duration: TypeAdapter[timedelta] = TypeAdapter(PositiveDuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """One registered function and the terms under which its jobs run."""

    kind: str
    function: Callable[..., object]
    input_type: type[JobInput] | None
    """None: the function gets the `input_ref` as it is."""
    takes_context: bool
    is_async: bool
    lease: timedelta | None = None
    """How long a claim holds without renewal; None is the worker's own."""
    timeout: timedelta | None = None
    """How long one run may take; None is for ever."""
    max_attempts: int | None = None
    """How many attempts may be spent, when that is fewer than the job's own."""
    backoff: Backoff = DEFAULT_BACKOFF
    """How long a failed job waits."""
    concurrency: int | None = None
    """How many jobs of this kind run at once in one worker process; None is no limit of its own."""
    total_concurrency: int | None = None
    """How many run at once in all processes together."""
    key_concurrency: int | None = None
    """How many with the same header ``concurrency-key`` run at once in all processes together."""
    rate: Rate | None = None
    """How often one starts, in all processes together."""

    @property
    def is_limited(self) -> bool:
        """Whether it has a limit that holds across processes."""
        return (self.total_concurrency, self.key_concurrency, self.rate) != (None, None, None)

    @property
    def name(self) -> str:
        """The function, as people find it."""
        return _name_of(self.function)


class Handlers:
    """The handlers of an application, by kind."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Handler] = {}

    def handler(
        self,
        kind: type[JobInput] | str,
        *,
        lease: timedelta | str | None = None,
        timeout: timedelta | str | None = None,
        max_attempts: int | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        concurrency: int | None = None,
        total_concurrency: int | None = None,
        key_concurrency: int | None = None,
        rate: str | None = None,
    ) -> Callable[[HandlerFunction], HandlerFunction]:
        """Register the decorated function for `kind`: a typed input, or the name of a kind without one.

        The function takes the input, or the input and a `JobContext`; it may be ``async``. It is returned
        unchanged. Raises `ConfigError` when the function or one of the terms can't be right.

        `timeout` cancels an async handler. A synchronous one can't be stopped from outside: its context is
        cancelled and the attempt fails at that moment, but its slot stays taken until it returns.

        `concurrency` holds in each process. `total_concurrency`, `key_concurrency` (per value of the job's
        header ``concurrency-key``; 1 is one after the other) and `rate` (``10/s``, ``100/m``, ``5/h``: evenly
        spaced starts) hold in all processes together; they need PostgreSQL, a SQLite file, or an outbox in
        one of them, and cost a transaction for each claim.
        """
        name, input_type = _kind_of(kind)
        terms = f"the handler of {name!r}"
        if not isinstance(backoff, Backoff):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"{terms}: backoff must be a Backoff, not {type(backoff).__name__}")
        checked_lease = _length(f"{terms}: lease", lease)
        checked_timeout = _length(f"{terms}: timeout", timeout)
        _check_count(f"{terms}: max_attempts", max_attempts)
        _check_count(f"{terms}: concurrency", concurrency)
        _check_count(f"{terms}: total_concurrency", total_concurrency)
        _check_count(f"{terms}: key_concurrency", key_concurrency)
        checked_rate = _rate(f"{terms}: rate", rate)

        def register(function: HandlerFunction) -> HandlerFunction:
            handler = Handler(
                kind=name,
                function=function,
                input_type=input_type,
                takes_context=_takes_context(function, input_type),
                is_async=_is_async(function),
                lease=checked_lease,
                timeout=checked_timeout,
                max_attempts=max_attempts,
                backoff=backoff,
                concurrency=concurrency,
                total_concurrency=total_concurrency,
                key_concurrency=key_concurrency,
                rate=checked_rate,
            )
            self._add(handler)
            return function

        return register

    def include(self, other: Handlers) -> None:
        """Add all handlers of `other`. Raises `ConfigError` when a kind has a handler already."""
        for handler in other:
            self._add(handler)

    def get(self, kind: str) -> Handler | None:
        """The handler of `kind`, or None."""
        return self._by_kind.get(kind)

    @property
    def kinds(self) -> list[str]:
        """Every kind that has a handler, in alphabetical order."""
        return sorted(self._by_kind)

    def __iter__(self) -> Iterator[Handler]:
        return iter(list(self._by_kind.values()))

    def __len__(self) -> int:
        return len(self._by_kind)

    def __contains__(self, kind: str) -> bool:
        return kind in self._by_kind

    def __repr__(self) -> str:
        return f"Handlers({', '.join(self.kinds)})"

    def _add(self, handler: Handler) -> None:
        taken = self._by_kind.get(handler.kind)
        if taken is not None:
            raise ConfigError(
                f"kind {handler.kind!r} has two handlers, {taken.name} and {handler.name}; a kind has one"
            )
        self._by_kind[handler.kind] = handler


def _kind_of(kind: object) -> tuple[str, type[JobInput] | None]:
    if isinstance(kind, str):
        try:
            return _kind.validate_python(kind), None
        except ValidationError:
            raise ConfigError(f"{kind!r} is not the name of a kind: 1 to 128 of [A-Za-z0-9_.:-]") from None
    given = _name_of(kind)
    if not (isinstance(kind, type) and issubclass(kind, JobInput)):
        raise ConfigError(f"handler() needs a JobInput class or the name of a kind, not {given}")
    if kind is JobInput:
        raise ConfigError("handler() needs a class derived from JobInput, not JobInput itself")
    return kind.job_defaults.kind, kind


def _length(what: str, length: timedelta | str | None) -> timedelta | None:
    if length is None:
        return None
    try:
        return _duration.validate_python(length)
    except ValidationError as error:
        raise ConfigError(f"{what}: {error.errors()[0]['msg']}") from None


def _rate(what: str, text: str | None) -> Rate | None:
    try:
        return None if text is None else Rate.parse(text)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{what} {error}") from None


def _check_count(what: str, count: int | None) -> None:
    if count is None:
        return
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1000:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"{what} must be an integer from 1 to 1000, not {count!r}")


def _takes_context(function: Callable[..., object], input_type: type[JobInput] | None) -> bool:
    """Whether `function` wants the context beside the input. Raises `ConfigError` when it can't be called."""
    name = _name_of(function)
    if not callable(function):
        raise ConfigError(f"the handler {name} can't be called")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"the handler {name} is a generator: calling it would run nothing; remove its yield"
        )
    shape = f"the handler {name} must take (input) or (input, context)"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        raise ConfigError(f"{shape}, and its signature can't be read") from None
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in positional if one.default is one.empty]
    if any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters):
        raise ConfigError(f"{shape}, and has a keyword argument that nobody would give")
    if not positional:
        raise ConfigError(f"{shape}, not {inspect.signature(function)}")
    if len(needed) > 2:
        raise ConfigError(f"{shape}, and takes {len(needed)} arguments")
    hints = _hints_of(function)
    _check_input_annotation(name, positional[0], hints, input_type)
    if len(positional) < 2:
        return False
    second = positional[1]
    annotation = hints.get(second.name)
    if isinstance(annotation, type) and not issubclass(JobContext, annotation):
        if second.default is second.empty:
            raise ConfigError(f"{shape}, but its second argument is a {annotation.__name__}")
        return False
    return second.default is second.empty or annotation is JobContext or second.name == "context"


def _check_input_annotation(
    name: str, first: inspect.Parameter, hints: dict[str, Any], input_type: type[JobInput] | None
) -> None:
    annotation = hints.get(first.name)
    if not isinstance(annotation, type):  # none, a string that can't be resolved here, or a generic alias
        return
    given = dict if input_type is None else input_type
    if not issubclass(given, annotation):
        raise ConfigError(
            f"the handler {name} takes a {annotation.__name__} but is registered for "
            + (f"{given.__name__}" if input_type else "the name of a kind, whose input is a dict")
        )


def _hints_of(function: Callable[..., object]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return get_type_hints(target)
    except Exception:  # a name that only a type checker can resolve: then there is nothing to compare
        return {}


def _is_async(function: Callable[..., object]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _name_of(function: object) -> str:
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module}.{name}" if module else str(name)

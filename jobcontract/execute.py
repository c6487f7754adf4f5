"""Run one claimed job and say what came of it, as data.

Nothing here touches a store or a transaction; the worker settles the outcome. And nothing escapes: whatever
a handler raises, `SystemExit` and `KeyboardInterrupt` included, is an outcome of its job. A worker runs the
jobs of many, and none of them may end it.
"""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from traceback import walk_tb
from typing import TypeAlias, cast

from pydantic import ValidationError

from jobcontract import telemetry
from jobcontract.backoff import Backoff
from jobcontract.context import STOPPED, JobCancelled, JobContext
from jobcontract.contract import MAX_ERROR_BYTES, Claim, Job
from jobcontract.durations import format_duration
from jobcontract.errors import Dead, Retry, Snooze
from jobcontract.handlers import Handler
from jobcontract.jsontext import storable

LONGEST_DELAY = timedelta(days=3660)
UNKNOWN_KIND_DELAY = Backoff(base=timedelta(seconds=15), cap=timedelta(minutes=5))

_FRAMES = 12
_CAUSES = 4


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt is spent. Everything in it can be stored."""

    error: str
    """Sanitised, at most `MAX_ERROR_BYTES`."""
    error_type: str
    """The exception's class, or what stands for it: fit for a log that must not show the error's text."""
    retry_in: timedelta
    permanent: bool


@dataclass(frozen=True, slots=True)
class Released:
    """The job goes back to ready after `delay`, and no attempt is spent."""

    delay: timedelta
    reason: str


Outcome: TypeAlias = Completed | Failed | Released

COMPLETED = Completed()


def execute(claim: Claim, handler: Handler, context: JobContext) -> Outcome:
    """Run the synchronous `handler` on the job of `claim`, in this thread. Blocks for as long as it does."""
    if not telemetry.active():
        return _execute(claim, handler, context)
    with telemetry.running(claim) as run:
        return _told(run, _execute(claim, handler, context))


def _execute(claim: Claim, handler: Handler, context: JobContext) -> Outcome:
    try:
        arguments = _arguments(claim.job, handler, context)
        result = handler.function(*arguments)
        if result is not None and inspect.isawaitable(result):
            raise _unawaited(result)
    except BaseException as error:
        return outcome_of(error, claim, handler, context)
    return COMPLETED


async def execute_async(claim: Claim, handler: Handler, context: JobContext) -> Outcome:
    """Run the ``async`` `handler`. A cancellation of the task is an outcome too, and is not raised again."""
    if not telemetry.active():
        return await _execute_async(claim, handler, context)
    with telemetry.running(claim) as run:
        return _told(run, await _execute_async(claim, handler, context))


async def _execute_async(claim: Claim, handler: Handler, context: JobContext) -> Outcome:
    try:
        result = handler.function(*_arguments(claim.job, handler, context))
        if inspect.isawaitable(result):
            await result
    except BaseException as error:
        return outcome_of(error, claim, handler, context)
    return COMPLETED


def _told(run: telemetry.Run, outcome: Outcome) -> Outcome:
    """`outcome`, once it is written into the span."""
    match outcome:
        case Completed():
            run.outcome = "completed"
        case Failed():
            run.outcome = "dead" if outcome.permanent else "failed"
            run.error_type = outcome.error_type
        case Released():
            run.outcome = "released"
    return outcome


def unknown_kind(claim: Claim) -> Released:
    """A job that this worker has no handler for waits for one that has; it is never discarded."""
    # Whole seconds, so that the jobs of one claim go back in few statements.
    seconds = ceil(UNKNOWN_KIND_DELAY.delay(claim.attempt).total_seconds())
    return Released(timedelta(seconds=seconds), "no handler for its kind")


def timed_out(claim: Claim, handler: Handler) -> Failed:
    """The handler did not return in time."""
    limit = format_duration(handler.timeout) if handler.timeout is not None else "its time"
    return _failed(f"Timeout: the handler did not return within {limit}", "Timeout", claim, handler)


def outcome_of(error: BaseException, claim: Claim, handler: Handler, context: JobContext) -> Outcome:
    """What `error`, raised by the handler, means for the job. Total, as `execute` is."""
    try:
        return _outcome_of(error, claim, handler, context)
    except BaseException:  # a signal of the application's own class that lacks what its base promises
        return _failed(describe(error), _type_name(error), claim, handler)


def _outcome_of(error: BaseException, claim: Claim, handler: Handler, context: JobContext) -> Outcome:
    match error:
        case _RefusedInput():
            return Failed(_stored(error.reason), "InvalidInput", timedelta(), permanent=True)
        case Retry() if error.after is None or _is_delay(error.after):
            return _failed(_stored(error.reason), "Retry", claim, handler, error.after)
        case Dead():
            return Failed(_stored(error.reason), "Dead", timedelta(), permanent=True)
        case Snooze() if _is_delay(error.delay):
            return Released(error.delay, "snoozed by its handler")
        case _ if context.cancelled and isinstance(error, (JobCancelled, CancelledError)):
            if context.cancelled.reason == STOPPED:
                return Failed(f"Stopped: {STOPPED}", "Stopped", timedelta(), permanent=True)
            return Released(timedelta(), context.cancelled.reason or "cancelled")
        case Retry():
            text = f"Retry: after must be a timedelta from nothing to ten years, not {_shown(error.after)}"
            return _failed(text, "Retry", claim, handler)
        case Snooze():
            text = f"Snooze: delay must be a timedelta from nothing to ten years, not {_shown(error.delay)}"
            return _failed(text, "Snooze", claim, handler)
        case _:
            return _failed(describe(error), _type_name(error), claim, handler)


def describe(error: BaseException) -> str:
    """`error` as text for an operator: type and message, its causes, the last frames. Fit to be stored.

    Holds whatever the exceptions hold, also when their own ``__str__`` raises.
    """
    lines = [_one_line(error)]
    lines += [f"  within it: {_one_line(one)}" for one in _within(error)]
    lines += [f"  because of: {_one_line(cause)}" for cause in _causes(error)]
    for frame, line in deque(walk_tb(error.__traceback__), maxlen=_FRAMES):
        # Without the source lines: they stand at the place that is named, and may hold literals.
        lines.append(f"  at {frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}")
    return _stored("\n".join(lines))


class _RefusedInput(Exception):
    """The stored input is not what the handler's typed input demands."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _arguments(job: Job, handler: Handler, context: JobContext) -> tuple[object, ...]:
    given = _input_of(job, handler)
    return (given, context) if handler.takes_context else (given,)


def _input_of(job: Job, handler: Handler) -> object:
    input_type = handler.input_type
    if input_type is None:
        return job.input_ref
    try:
        # From the JSON text, not the parsed dict: strict models take a date or a UUID as text only there.
        return input_type.model_validate_json(job.input_json)
    except ValidationError as error:
        finding = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in finding["loc"])[:100] or "the input"
        # A validator of the application's own writes its message, and may put the value into it.
        own = finding["type"] in ("value_error", "assertion_error")
        message = "refused by its validator" if own else finding["msg"]
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise _RefusedInput(
            f"the input is not a valid {input_type.__name__}: {field}: {message}{more}"
        ) from None


def _failed(
    error: str, error_type: str, claim: Claim, handler: Handler, retry_in: timedelta | None = None
) -> Failed:
    if handler.max_attempts is not None and claim.spent >= handler.max_attempts:
        return Failed(error, error_type, timedelta(), permanent=True)
    delay = handler.backoff.delay(claim.spent) if retry_in is None else retry_in
    return Failed(error, error_type, delay, permanent=False)


def _unawaited(result: object) -> TypeError:
    if inspect.iscoroutine(result):
        result.close()
    return TypeError("the handler returned an awaitable that nobody awaits; write it as async def")


def _is_delay(value: object) -> bool:
    return isinstance(value, timedelta) and timedelta() <= value <= LONGEST_DELAY


def _within(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        yield from cast("BaseExceptionGroup[BaseException]", error).exceptions[:_CAUSES]


def _causes(error: BaseException) -> Iterator[BaseException]:
    for _ in range(_CAUSES):  # a chain may be long, or a circle
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            return
        yield cause
        error = cause


def _one_line(error: BaseException) -> str:
    name = _type_name(error)
    try:
        text = _stored(str(error))
    except BaseException as broken:
        return f"{name}: (its text can't be had: {_type_name(broken)})"
    return f"{name}: {text}" if text else name


def _type_name(error: BaseException) -> str:
    return storable(type(error).__name__, max_bytes=200)


def _shown(value: object) -> str:
    try:
        return storable(repr(value), max_bytes=200)
    except BaseException:
        return f"a {type(value).__name__}"


def _stored(text: object) -> str:
    # A signal's reason is typed as text, and an application may pass anything.
    plain = str.__str__(text) if isinstance(text, str) else _shown(text)
    return storable(plain, max_bytes=MAX_ERROR_BYTES)

"""Running one claim gives an outcome, whatever the handler does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, field_validator

from jobcontract import Backoff, Dead, Handlers, Job, JobContext, JobInput, Retry, Snooze
from jobcontract.context import SHUTDOWN, JobCancelled
from jobcontract.contract import MAX_ERROR_BYTES
from jobcontract.execute import (
    Completed,
    Failed,
    Outcome,
    Released,
    execute,
    execute_async,
    outcome_of,
    timed_out,
    unknown_kind,
)
from jobcontract.handlers import Handler
from jobcontract.jsontext import check_text
from tests.worker.claims import claim_of, nothing

SECOND = timedelta(seconds=1)
FIXED = Backoff(base=8 * SECOND, factor=1, jitter=0)


class Embed(JobInput, kind="embed"):
    document_id: int
    secret: str = "hidden"

    @field_validator("secret")
    @classmethod
    def _is_hidden(cls, secret: str) -> str:
        if secret != "hidden":
            raise ValueError(f"{secret} is not hidden")
        return secret


def handler_of(function: Callable[..., object], kind: type[JobInput] | str = Embed, **terms: Any) -> Handler:
    handlers = Handlers()
    handlers.handler(kind, backoff=FIXED, **terms)(function)
    (handler,) = handlers
    return handler


def run(
    function: Callable[..., object],
    job: Job | None = None,
    *,
    kind: type[JobInput] | str = Embed,
    attempt: int = 1,
    refunded: int = 0,
    cancelled: str | None = None,
    **terms: Any,
) -> Outcome:
    """Run `function` as the handler of one job."""
    handler = handler_of(function, kind, **terms)
    claim = claim_of(job or Embed(document_id=7).to_job(), attempt=attempt, refunded=refunded)
    context = JobContext(claim)
    if cancelled:
        context.cancelled.set(cancelled)
    if handler.is_async:
        return asyncio.run(execute_async(claim, handler, context))
    return execute(claim, handler, context)


def raising(error: BaseException) -> Callable[[object], None]:
    def handle(input: object) -> None:
        raise error

    return handle


def async_raising(error: BaseException) -> Callable[[object], Any]:
    async def handle(input: object) -> None:
        await asyncio.sleep(0)
        raise error

    return handle


# -- What the handler gets -----------------------------------------------------------------------------------


def test_a_typed_handler_gets_its_input_and_its_context() -> None:
    seen: list[object] = []

    def handle(input: Embed, context: JobContext) -> None:
        seen.extend([input, context.kind, context.attempt])

    assert run(handle, attempt=3) == Completed()
    assert seen == [Embed(document_id=7), "embed", 3]


def test_a_handler_of_a_plain_kind_gets_the_input_reference() -> None:
    seen: list[object] = []

    assert run(seen.append, Job(kind="plain", input_ref={"a": [1, None]}), kind="plain") == Completed()
    assert seen == [{"a": [1, None]}]


def test_an_async_handler_is_awaited() -> None:
    seen: list[object] = []

    async def handle(input: Embed) -> None:
        await asyncio.sleep(0)
        seen.append(input.document_id)

    assert run(handle) == Completed()
    assert seen == [7]


def test_a_strict_input_takes_what_json_writes() -> None:
    class Strict(JobInput, kind="strict"):
        model_config = ConfigDict(strict=True)
        tenant: UUID
        day: date

    seen: list[Strict] = []
    given = Strict(tenant=UUID(int=5), day=date(2026, 11, 30))

    assert run(seen.append, given.to_job(), kind=Strict) == Completed()
    assert seen == [given]


# -- Input that is not valid ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("input_ref", "reason"),
    [
        ({}, "document_id: Field required"),
        ({"document_id": ["canary"]}, "document_id: Input should be a valid integer"),
        ({"document_id": 7, "canary": 1}, "canary: Extra inputs are not permitted"),
        ({"document_id": 7, "secret": "canary"}, "secret: refused by its validator"),
    ],
)
def test_an_input_that_does_not_validate_is_dead_at_once(input_ref: dict[str, Any], reason: str) -> None:
    outcome = run(raising(AssertionError("must not run")), Job(kind="embed", input_ref=input_ref))

    assert isinstance(outcome, Failed)
    assert outcome.permanent
    assert outcome.error == f"the input is not a valid Embed: {reason}"


def test_the_reason_does_not_show_the_values() -> None:
    job = Job(kind="embed", input_ref={"document_id": "canary", "secret": "canary"})

    outcome = run(raising(AssertionError("must not run")), job)

    assert isinstance(outcome, Failed)
    assert "canary" not in outcome.error


# -- Signals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raise_it", [raising, async_raising])
def test_the_three_signals(raise_it: Callable[[BaseException], Callable[[object], Any]]) -> None:
    assert run(raise_it(Retry("later", after=3 * SECOND))) == Failed("later", "Retry", 3 * SECOND, False)
    assert run(raise_it(Retry("later"))) == Failed("later", "Retry", 8 * SECOND, False)
    assert run(raise_it(Dead("no such document"))) == Failed("no such document", "Dead", timedelta(), True)
    assert run(raise_it(Snooze(90 * SECOND))) == Released(90 * SECOND, "snoozed by its handler")


@pytest.mark.parametrize("delay", [-SECOND, timedelta(days=100_000), 5, "soon"])
def test_a_delay_that_is_none_fails_the_attempt_and_says_so(delay: Any) -> None:
    for signal in (Retry("later", after=delay), Snooze(delay)):
        outcome = run(raising(signal))

        assert isinstance(outcome, Failed)
        assert "must be a timedelta from nothing to ten years" in outcome.error
        assert (outcome.retry_in, outcome.permanent) == (8 * SECOND, False)


def test_a_signal_that_lacks_what_it_promises_is_an_ordinary_failure() -> None:
    class Broken(Dead):
        def __init__(self) -> None:
            pass

    outcome = run(raising(Broken()))

    assert isinstance(outcome, Failed)
    assert (outcome.error_type, outcome.permanent) == ("Broken", False)


# -- Exceptions ----------------------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even this")

    __repr__ = __str__


class Silent(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # noqa: PLE0307  # pyright: ignore


@pytest.mark.parametrize("raise_it", [raising, async_raising])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        ValueError("\x00 and \ud800"),
        ValueError("x" * 50_000_000),
        ValueError("€" * 20_000_000),
        Unprintable(),
        Silent(),
        type("Näme" * 500, (Exception,), {})(),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        MemoryError(),
        RecursionError("deep"),
        StopIteration(3),
        ExceptionGroup("several", [ValueError("one"), Unprintable()]),
        BaseExceptionGroup("worse", [KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__[:20].encode("ascii", "replace").decode(),
)
def test_any_exception_fails_the_attempt_with_a_text_that_can_be_stored(
    raise_it: Callable[[BaseException], Callable[[object], Any]], error: BaseException
) -> None:
    outcome = run(raise_it(error))

    assert isinstance(outcome, Failed)
    assert (outcome.retry_in, outcome.permanent) == (8 * SECOND, False)
    assert 0 < len(outcome.error.encode()) <= MAX_ERROR_BYTES
    check_text(outcome.error)
    check_text(outcome.error_type)


@given(st.text())
def test_the_text_of_an_error_can_always_be_stored(text: str) -> None:
    outcome = run(raising(RuntimeError(text)))

    assert isinstance(outcome, Failed)
    check_text(outcome.error)


def test_an_error_tells_type_text_causes_and_place() -> None:
    def handle(input: object) -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    outcome = run(handle)

    assert isinstance(outcome, Failed)
    first, because, *places = outcome.error.splitlines()
    assert first == "ValueError: outer"
    assert because == "  because of: KeyError: 'inner'"
    assert places[-1].startswith(f"  at {__file__}:")
    assert "handle" in places[-1]
    assert outcome.error_type == "ValueError"


def test_a_group_tells_what_is_in_it() -> None:
    outcome = run(raising(ExceptionGroup("several", [ValueError("one"), TypeError("two")])))

    assert isinstance(outcome, Failed)
    assert "  within it: ValueError: one" in outcome.error
    assert "  within it: TypeError: two" in outcome.error


def test_a_circle_of_causes_has_an_end() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one

    outcome = run(raising(one))

    assert isinstance(outcome, Failed)
    assert outcome.error.count("because of") == 4


def test_endless_recursion_is_a_failure() -> None:
    def handle(input: object) -> None:
        handle(input)

    outcome = run(handle)

    assert isinstance(outcome, Failed)
    assert outcome.error_type == "RecursionError"
    assert outcome.error.count("\n  at ") <= 12


def test_a_coroutine_that_nobody_awaits_is_a_failure_and_no_success() -> None:
    async def work() -> None: ...

    def handle(input: object) -> object:
        return work()

    outcome = run(handle)

    assert isinstance(outcome, Failed)
    assert "write it as async def" in outcome.error


def test_sys_exit_in_a_handler_ends_the_job_and_nothing_else() -> None:
    def handle(input: object) -> None:
        sys.exit("enough")

    outcome = run(handle)

    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("SystemExit: enough")


# -- Attempts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempt", "refunded", "permanent"),
    [(1, 0, False), (2, 0, True), (3, 0, True), (3, 2, False), (9, 7, True)],
)
def test_a_handler_may_allow_fewer_attempts_and_counts_only_those_that_were_spent(
    attempt: int, refunded: int, permanent: bool
) -> None:
    outcome = run(raising(ValueError()), attempt=attempt, refunded=refunded, max_attempts=2)

    assert isinstance(outcome, Failed)
    assert outcome.permanent is permanent


def test_a_handler_can_not_allow_more_attempts_than_the_job() -> None:
    job = Embed(document_id=7).to_job(max_attempts=2)

    outcome = run(raising(ValueError()), job, attempt=2, max_attempts=9)

    # Whether the job's own attempts are spent is for the store to say.
    assert isinstance(outcome, Failed)
    assert not outcome.permanent


def test_the_backoff_counts_what_was_spent() -> None:
    handler = handler_of(raising(ValueError()))
    growing = Handler(
        kind=handler.kind,
        function=handler.function,
        input_type=handler.input_type,
        takes_context=False,
        is_async=False,
        backoff=Backoff(base=SECOND, jitter=0),
    )
    claim = claim_of(Embed(document_id=7).to_job(), attempt=12, refunded=9)

    outcome = execute(claim, growing, JobContext(claim))

    assert isinstance(outcome, Failed)
    assert outcome.retry_in == 4 * SECOND


# -- Cancellation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [JobCancelled(SHUTDOWN), asyncio.CancelledError()])
def test_a_handler_that_stops_because_it_was_told_to_spends_no_attempt(error: BaseException) -> None:
    assert run(raising(error), cancelled=SHUTDOWN) == Released(timedelta(), SHUTDOWN)


@pytest.mark.parametrize("error", [JobCancelled("of my own"), asyncio.CancelledError()])
def test_a_handler_that_stops_of_its_own_accord_has_failed(error: BaseException) -> None:
    assert isinstance(run(raising(error)), Failed)


def test_a_handler_that_finishes_although_it_was_cancelled_has_finished() -> None:
    assert run(nothing, cancelled=SHUTDOWN) == Completed()


def test_the_cancellation_of_a_task_is_an_outcome() -> None:
    async def scenario() -> Outcome:
        started = asyncio.Event()

        async def handle(input: Embed) -> None:
            started.set()
            await asyncio.Event().wait()

        claim = claim_of(Embed(document_id=7).to_job())
        context = JobContext(claim)
        task = asyncio.create_task(execute_async(claim, handler_of(handle), context))
        await started.wait()
        context.cancelled.set(SHUTDOWN)
        task.cancel()
        return await task

    assert asyncio.run(scenario()) == Released(timedelta(), SHUTDOWN)


# -- What is no run at all -----------------------------------------------------------------------------------


def test_an_unknown_kind_goes_back_with_a_delay_that_grows() -> None:
    first = unknown_kind(claim_of(Job(kind="nobody.knows")))
    tenth = unknown_kind(claim_of(Job(kind="nobody.knows"), attempt=10))

    assert timedelta(seconds=11) <= first.delay <= timedelta(seconds=15)
    assert timedelta(minutes=3) <= tenth.delay <= timedelta(minutes=5)
    assert first.delay.microseconds == 0


def test_a_timeout_is_a_failure_that_names_the_limit() -> None:
    handler = handler_of(nothing, timeout="90s")

    outcome = timed_out(claim_of(Embed(document_id=7).to_job()), handler)

    assert outcome.error == "Timeout: the handler did not return within 1m 30s"
    assert (outcome.retry_in, outcome.permanent) == (8 * SECOND, False)


def test_outcome_of_is_total_even_when_the_context_is_not_ours() -> None:
    claim = claim_of(Embed(document_id=7).to_job())
    handler = handler_of(nothing)

    assert isinstance(outcome_of(ValueError(), claim, handler, JobContext(claim)), Failed)

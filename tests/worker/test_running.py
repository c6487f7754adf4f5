"""What becomes of a job that a worker runs, on every store."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jobcontract import Backend, Backoff, Dead, Handlers, Job, JobContext, JobInput, Retry, Snooze, State
from jobcontract.errors import LeaseLost
from jobcontract.jsontext import check_text
from tests.worker.running import PROMPT, RunningWorker, await_state, eventually, state_of

SOON = Backoff(base=timedelta(milliseconds=1), jitter=0)
NEVER = Backoff(base=timedelta(hours=1), jitter=0)


class Embed(JobInput, kind="embed"):
    document_id: int

    def idempotency_key(self) -> str:
        return str(self.document_id)


def test_every_job_runs_once_and_is_done(store: Backend, handlers: Handlers) -> None:
    runs: Counter[int] = Counter()

    @handlers.handler(Embed)
    def embed(input: Embed) -> None:
        runs[input.document_id] += 1

    store.register_many(Embed(document_id=number) for number in range(300))
    with RunningWorker(store, handlers, replace(PROMPT, until_empty=True)) as worker:
        tally = worker.join()

    assert runs == Counter(range(300))
    assert (tally.completed, tally.failed, tally.lost) == (300, 0, 0)
    assert not any(one.ready + one.running + one.dead for one in store.stats())


async def exit_in_a_task() -> None:
    await asyncio.create_task(exit_now())


async def exit_in_a_gathering() -> None:
    await asyncio.gather(exit_now(), asyncio.sleep(0))


async def exit_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, "from a callback")
    await asyncio.sleep(0)
    raise ValueError("the callback has run")


async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    raise ValueError("the loop is stopped")


async def exit_now() -> None:
    sys.exit("from a task")


@pytest.mark.parametrize("harm", [exit_in_a_task, exit_in_a_gathering, exit_in_a_callback, stop_the_loop])
def test_no_async_handler_ends_the_event_loop_of_the_others(
    store: Backend, handlers: Handlers, harm: Callable[[], Awaitable[None]]
) -> None:
    begun, harmed = threading.Event(), threading.Event()

    @handlers.handler("bystander")
    async def bystand(input: dict[str, object]) -> None:
        begun.set()
        while not harmed.is_set():
            await asyncio.sleep(0.01)

    @handlers.handler("harmful", max_attempts=1)
    async def do_harm(input: dict[str, object]) -> None:
        await harm()

    bystander, harmful, later = Job(kind="bystander"), Job(kind="harmful"), Job(kind="bystander")
    with RunningWorker(store, handlers, replace(PROMPT, concurrency=4)):
        store.register(bystander)
        assert begun.wait(10)
        store.register(harmful)
        await_state(store, harmful, State.DEAD)
        harmed.set()
        store.register(later)
        await_state(store, bystander, State.DONE)
        await_state(store, later, State.DONE)


def test_async_handlers_run_at_the_same_time(store: Backend, handlers: Handlers) -> None:
    together = asyncio.Barrier(8)

    @handlers.handler(Embed)
    async def embed(input: Embed) -> None:
        await together.wait()

    jobs = [Embed(document_id=number).to_job() for number in range(8)]
    store.register_many(jobs)
    with RunningWorker(store, handlers, replace(PROMPT, concurrency=8)):
        for job in jobs:
            await_state(store, job, State.DONE)


def test_a_failed_job_runs_again_and_keeps_its_error(store: Backend, handlers: Handlers) -> None:
    attempts: list[int] = []

    @handlers.handler(Embed, backoff=SOON)
    def embed(input: Embed, context: JobContext) -> None:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise ValueError(f"attempt {context.attempt}")

    job = Embed(document_id=1).to_job()
    store.register(job)
    with RunningWorker(store, handlers):
        status = await_state(store, job, State.DONE)

    assert attempts == [1, 2, 3]
    assert status.last_error.startswith("ValueError: attempt 2")


def test_a_job_dies_of_its_last_attempt(store: Backend, handlers: Handlers) -> None:
    @handlers.handler(Embed, backoff=SOON)
    def embed(input: Embed) -> None:
        raise ValueError("never")

    job = Embed(document_id=1).to_job(max_attempts=2)
    store.register(job)
    with RunningWorker(store, handlers):
        status = await_state(store, job, State.DEAD)

    assert status.attempt == 2
    assert status.last_error.startswith("ValueError: never")


def test_a_handler_may_allow_fewer_attempts_than_the_job(store: Backend, handlers: Handlers) -> None:
    @handlers.handler(Embed, backoff=SOON, max_attempts=2)
    def embed(input: Embed, context: JobContext) -> None:
        assert context.max_attempts == 2
        raise ValueError("never")

    job = Embed(document_id=1).to_job(max_attempts=9)
    store.register(job)
    with RunningWorker(store, handlers):
        assert await_state(store, job, State.DEAD).attempt == 2


def test_released_attempts_do_not_count_against_the_handlers_own(store: Backend, handlers: Handlers) -> None:
    job = Embed(document_id=1).to_job()
    store.register(job)
    for _ in range(5):
        store.release(store.claim())

    @handlers.handler(Embed, backoff=SOON, max_attempts=2)
    def embed(input: Embed, context: JobContext) -> None:
        if context.spent < 2:
            raise ValueError("once")

    with RunningWorker(store, handlers):
        assert await_state(store, job, State.DONE).attempt == 7


def test_the_signals_of_a_handler(store: Backend, handlers: Handlers) -> None:
    snoozed: list[int] = []

    @handlers.handler("dead", backoff=SOON)
    def dead(input: object) -> None:
        raise Dead("no such document")

    @handlers.handler("retry", backoff=NEVER)
    def retry(input: object, context: JobContext) -> None:
        if context.attempt == 1:
            raise Retry("not yet", after=timedelta(milliseconds=1))

    @handlers.handler("snooze")
    def snooze(input: object, context: JobContext) -> None:
        snoozed.append(context.spent)
        if context.attempt < 4:
            raise Snooze(timedelta(milliseconds=1))

    jobs = {kind: Job(kind=kind, max_attempts=2) for kind in ("dead", "retry", "snooze")}
    store.register_many(jobs.values())
    with RunningWorker(store, handlers):
        dead_status = await_state(store, jobs["dead"], State.DEAD)
        retried = await_state(store, jobs["retry"], State.DONE)
        await_state(store, jobs["snooze"], State.DONE)

    assert (dead_status.last_error, dead_status.attempt) == ("no such document", 1)
    assert (retried.last_error, retried.attempt) == ("not yet", 2)
    assert snoozed == [1, 1, 1, 1]


def test_input_that_does_not_validate_is_dead_at_once(
    store: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    @handlers.handler(Embed)
    def embed(input: Embed) -> None: ...

    job = Job(kind="embed", input_ref={"document_id": "canary"})
    store.register(job)
    with caplog.at_level(logging.DEBUG), RunningWorker(store, handlers):
        status = await_state(store, job, State.DEAD)

    assert status.attempt == 1
    assert "document_id" in status.last_error
    assert "canary" not in status.last_error + caplog.text


def test_an_unknown_kind_is_put_back_loudly_and_spends_nothing(
    store: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    @handlers.handler(Embed)
    def embed(input: Embed) -> None: ...

    unknown, known = Job(kind="of.another.worker", max_attempts=1), Embed(document_id=1).to_job()
    store.register_many([unknown, known])
    with RunningWorker(store, handlers):
        await_state(store, known, State.DONE)
        eventually(lambda: store.stats()[0].scheduled == 1)
        status = store.get(unknown.id)

    assert status is not None
    assert (status.state, status.attempt) == (State.READY, 1)
    assert "no handler for kind 'of.another.worker'" in caplog.text

    @handlers.handler("of.another.worker")
    def other(input: object) -> None: ...

    store.requeue(unknown.id)  # an operator deployed the handler and does not want to wait
    with RunningWorker(store, handlers):
        await_state(store, unknown, State.DONE)


@pytest.mark.parametrize(
    "text", ["\x00", "\ud800", "x" * 50_000_000, "€" * 9000], ids=["nul", "surrogate", "50 MB", "wide"]
)
def test_an_exception_with_any_text_ends_its_job_properly(
    store: Backend, handlers: Handlers, text: str
) -> None:
    @handlers.handler(Embed)
    def embed(input: Embed) -> None:
        raise RuntimeError(text)

    job = Embed(document_id=1).to_job(max_attempts=1)
    store.register(job)
    with RunningWorker(store, handlers):
        status = await_state(store, job, State.DEAD)

    assert status.last_error.startswith("RuntimeError: ")
    check_text(status.last_error)


def test_a_handler_that_exits_takes_nobody_along(store: Backend, handlers: Handlers) -> None:
    @handlers.handler("exit")
    def leave(input: object) -> None:
        raise SystemExit(3)

    @handlers.handler(Embed)
    def embed(input: Embed) -> None: ...

    leaving, staying = Job(kind="exit", max_attempts=1), Embed(document_id=1).to_job()
    store.register_many([leaving, staying])
    with RunningWorker(store, handlers, replace(PROMPT, concurrency=1)):
        await_state(store, leaving, State.DEAD)
        await_state(store, staying, State.DONE)


# -- Timeouts ------------------------------------------------------------------------------------------------


def test_a_timeout_cancels_an_async_handler_and_fails_the_attempt(store: Backend, handlers: Handlers) -> None:
    cancelled = threading.Event()

    @handlers.handler(Embed, timeout="100ms")
    async def embed(input: Embed) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    job = Embed(document_id=1).to_job(max_attempts=1)
    store.register(job)
    with RunningWorker(store, handlers):
        status = await_state(store, job, State.DEAD)
        assert cancelled.wait(10)

    assert status.last_error == "Timeout: the handler did not return within 100ms"


def test_a_timed_out_synchronous_handler_keeps_its_slot_and_its_late_result_is_dropped(
    store: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    told, go_on, other_ran = threading.Event(), threading.Event(), threading.Event()

    @handlers.handler(Embed, timeout="100ms")
    def embed(input: Embed, context: JobContext) -> None:
        if context.cancelled.wait(10):
            told.set()
        go_on.wait(10)

    @handlers.handler("other")
    def other(input: object) -> None:
        other_ran.set()

    job, waiting = Embed(document_id=1).to_job(max_attempts=1), Job(kind="other")
    store.register(job)
    with RunningWorker(store, handlers, replace(PROMPT, concurrency=1)):
        await_state(store, job, State.DEAD)
        assert told.wait(10)
        store.register(waiting)
        assert not other_ran.wait(0.5)  # for longer than it would take
        go_on.set()
        await_state(store, waiting, State.DONE)
        eventually(lambda: "are dropped: another outcome" in caplog.text)

    assert state_of(store, job) is State.DEAD


# -- Context -------------------------------------------------------------------------------------------------


def test_the_context_tells_what_the_job_is(store: Backend, handlers: Handlers) -> None:
    seen: list[tuple[object, ...]] = []

    @handlers.handler(Embed)
    def embed(input: Embed, context: JobContext) -> None:
        seen.append(
            (context.job_id, context.kind, context.queue, context.idempotency_key, dict(context.headers))
        )
        seen.append((context.attempt, context.spent, context.max_attempts, bool(context.cancelled)))

    job = Embed(document_id=7).to_job(headers={"tenant": "a"})
    store.register(job)
    with RunningWorker(store, handlers):
        await_state(store, job, State.DONE)

    assert seen == [(job.id, "embed", "default", "7", {"tenant": "a"}), (1, 1, 5, False)]


def test_the_log_of_a_job_carries_the_job_and_never_its_input(
    memory: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    @handlers.handler(Embed)
    def embed(input: Embed, context: JobContext) -> None:
        context.log.info("embedding", extra={"model": "v3"})

    job = Embed(document_id=987654321).to_job()
    memory.register(job)
    with caplog.at_level(logging.DEBUG), RunningWorker(memory, handlers):
        await_state(memory, job, State.DONE)

    (record,) = [record for record in caplog.records if record.name == "jobcontract.job"]
    fields = vars(record)
    assert (fields["job_id"], fields["kind"], fields["queue"]) == (str(job.id), "embed", "default")
    assert (fields["attempt"], fields["model"]) == (1, "v3")
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("jobcontract.worker")]
    assert ours
    assert "987654321" not in "\n".join(ours)


def test_the_text_of_an_error_is_not_logged(
    memory: Backend, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    @handlers.handler(Embed)
    def embed(input: Embed) -> None:
        raise ValueError("canary")

    job = Embed(document_id=1).to_job(max_attempts=1)
    memory.register(job)
    with caplog.at_level(logging.DEBUG), RunningWorker(memory, handlers):
        await_state(memory, job, State.DEAD)
        record = eventually(lambda: [one for one in caplog.records if "is dead" in one.getMessage()])[0]

    assert "canary" not in caplog.text
    assert "ValueError" in record.getMessage()
    assert (vars(record)["job_id"], vars(record)["error_type"]) == (str(job.id), "ValueError")


def test_one_job_leaves_no_context_variables_to_the_next(memory: Backend, handlers: Handlers) -> None:
    tenant = contextvars.ContextVar("tenant", default="none")
    seen: list[str] = []

    @handlers.handler(Embed)
    def embed(input: Embed) -> None:
        seen.append(tenant.get())
        tenant.set(f"of {input.document_id}")

    memory.register_many(Embed(document_id=number) for number in range(5))
    with RunningWorker(memory, handlers, replace(PROMPT, concurrency=1, until_empty=True)) as worker:
        worker.join()

    assert seen == ["none"] * 5


def test_a_handler_can_extend_its_lease(store: Backend, handlers: Handlers) -> None:
    extended, go_on = threading.Event(), threading.Event()

    @handlers.handler(Embed)
    def embed(input: Embed, context: JobContext) -> None:
        context.extend(timedelta(hours=1))
        extended.set()
        go_on.wait(10)

    job = Embed(document_id=1).to_job()
    store.register(job)
    with RunningWorker(store, handlers):
        assert extended.wait(10)
        status = store.get(job.id)
        go_on.set()
        await_state(store, job, State.DONE)

    assert status is not None
    assert status.lease_expires_at is not None
    assert status.lease_expires_at > datetime.now(UTC) + timedelta(minutes=30)


def test_extending_after_the_end_of_the_run_is_refused(memory: Backend, handlers: Handlers) -> None:
    kept: list[JobContext] = []

    @handlers.handler(Embed)
    def embed(input: Embed, context: JobContext) -> None:
        kept.append(context)

    job = Embed(document_id=1).to_job()
    memory.register(job)
    with RunningWorker(memory, handlers):
        await_state(memory, job, State.DONE)
        with pytest.raises(LeaseLost):
            kept[0].extend()


# -- Queues and order ----------------------------------------------------------------------------------------


def test_only_the_given_queues_are_worked(store: Backend, handlers: Handlers) -> None:
    @handlers.handler("any")
    def handle(input: object) -> None: ...

    ours, others = Job(kind="any", queue="critical"), Job(kind="any", queue="bulk")
    store.register_many([ours, others])
    options = replace(PROMPT, queues=("critical", "default"), until_empty=True)
    with RunningWorker(store, handlers, options) as worker:
        worker.join()

    assert (state_of(store, ours), state_of(store, others)) == (State.DONE, State.READY)


def test_better_priorities_go_first(store: Backend, handlers: Handlers) -> None:
    order: list[int] = []

    @handlers.handler("any")
    def handle(input: object, context: JobContext) -> None:
        order.append(context.claim.job.priority)

    store.register_many(Job(kind="any", priority=priority) for priority in (1, 9, 5, 0, 7))
    with RunningWorker(store, handlers, replace(PROMPT, concurrency=1, until_empty=True)) as worker:
        worker.join()

    assert order == [9, 7, 5, 1, 0]


def test_a_job_that_is_due_later_runs_when_it_is(store: Backend, handlers: Handlers) -> None:
    ran = threading.Event()

    @handlers.handler("any")
    def handle(input: object) -> None:
        ran.set()

    due = datetime.now(UTC) + timedelta(seconds=1)
    store.register(Job(kind="any", run_at=due))
    with RunningWorker(store, handlers):
        assert ran.wait(10)
        assert datetime.now(UTC) >= due - timedelta(milliseconds=50)


def test_a_paused_queue_waits(store: Backend, handlers: Handlers) -> None:
    @handlers.handler("any")
    def handle(input: object) -> None: ...

    job = Job(kind="any")
    store.register(job)
    store.pause("default")
    with RunningWorker(store, handlers, replace(PROMPT, until_empty=True)) as worker:
        assert worker.join().completed == 0  # there is nothing that it may do, so it is done
    store.resume("default")
    with RunningWorker(store, handlers):
        await_state(store, job, State.DONE)


# -- The end -------------------------------------------------------------------------------------------------


def test_until_empty_waits_for_the_jobs_of_others(store: Backend, handlers: Handlers) -> None:
    @handlers.handler("any")
    def handle(input: object) -> None: ...

    store.register(Job(kind="any"))
    (claim,) = store.claim()  # another worker's
    with RunningWorker(store, handlers, replace(PROMPT, until_empty=True)) as worker:
        time.sleep(0.5)  # longer than it takes to find nothing
        assert worker.runs
        store.complete(claim)
        worker.join()


def test_until_empty_takes_over_from_the_dead(store: Backend, handlers: Handlers) -> None:
    @handlers.handler("any")
    def handle(input: object) -> None: ...

    job = Job(kind="any")
    store.register(job)
    store.claim(lease=timedelta(milliseconds=300))  # and its worker is killed
    with RunningWorker(store, handlers, replace(PROMPT, until_empty=True)) as worker:
        assert worker.join().completed == 1

    status = store.get(job.id)
    assert status is not None
    assert (status.state, status.attempt) == (State.DONE, 2)

"""The settings of a worker are checked where they are given, and the store's own limits when it runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobcontract import Backend, ConfigError, Handlers, InvalidJob, Job, State, Unsupported
from jobcontract.config import WorkerTable
from jobcontract.worker import Worker, WorkerOptions
from tests.worker.claims import nothing
from tests.worker.running import PROMPT, RunningWorker, state_of


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        ({"queues": ()}, "queues"),
        ({"queues": "default"}, "queues"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1001}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"batch": 0}, "batch"),
        ({"batch": 2.5}, "batch"),
        ({"lease": timedelta()}, "lease"),
        ({"poll_interval": timedelta()}, "poll_interval"),
        ({"rescue_interval": timedelta(seconds=-1)}, "rescue_interval"),
        ({"grace": timedelta(seconds=-1)}, "grace"),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError, match=f"^{setting} must"):
        WorkerOptions(**values)


def test_the_defaults_are_those_of_the_configuration() -> None:
    assert WorkerOptions.of(WorkerTable()) == WorkerOptions()


def test_the_configuration_gives_the_settings() -> None:
    table = WorkerTable(concurrency=3, batch=7, lease=timedelta(minutes=9), grace=timedelta(0))

    options = WorkerOptions.of(table, queues=("critical",))

    assert (options.concurrency, options.batch, options.lease) == (3, 7, timedelta(minutes=9))
    assert (options.queues, options.grace) == (("critical",), timedelta(0))


def test_a_worker_without_handlers_is_refused(memory: Backend, handlers: Handlers) -> None:
    with pytest.raises(ConfigError, match="no handlers"):
        Worker(memory, handlers)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (replace(PROMPT, queues=("Not A Queue",)), InvalidJob),
        (replace(PROMPT, lease=timedelta(days=3000)), Unsupported),
    ],
)
def test_what_the_store_finds_wrong_ends_the_worker(
    memory: Backend, handlers: Handlers, options: WorkerOptions, error: type[Exception]
) -> None:
    handlers.handler("job")(nothing)
    job = Job(kind="job")
    memory.register(job)

    worker = RunningWorker(memory, handlers, options)
    with pytest.raises(error), worker:
        worker.join()

    assert state_of(memory, job) is State.READY


def test_the_lease_of_a_kind_must_be_one_that_the_store_gives(memory: Backend, handlers: Handlers) -> None:
    handlers.handler("job", lease="3000d")(nothing)

    worker = RunningWorker(memory, handlers)
    with pytest.raises(Unsupported, match=r"gives leases from .* ask for .* to 3000 days"), worker:
        worker.join()

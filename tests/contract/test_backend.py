"""`Backend`: what it refuses before any I/O, and what it makes of a driver's answers. On SQLite in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from jobcontract_sqlite import SQLiteDriver, open_driver

from jobcontract.backend import Backend
from jobcontract.config import StoreSettings
from jobcontract.contract import (
    MAX_ERROR_BYTES,
    Capabilities,
    Claim,
    Driver,
    Job,
    JobRecord,
    Lease,
    Registration,
    State,
    Verdict,
)
from jobcontract.errors import InvalidJob, LeaseLost, StoreError, StoreUnavailable, Unsupported
from jobcontract.url import StoreURL

HOUR = timedelta(hours=1)


def open_sqlite() -> SQLiteDriver:
    return open_driver(StoreSettings("test", StoreURL.parse("sqlite://")))


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend("test", open_sqlite) as backend:
        yield backend


def claim_of(backend: Backend) -> Claim:
    backend.register(Job(kind="k"))
    (claim,) = backend.claim()
    return claim


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


# -- Refused before any I/O --------------------------------------------------------------------------------

Call = Callable[[Backend, Any], object]
claim_some: Call = lambda backend, value: backend.claim(limit=value)  # noqa: E731
claim_from: Call = lambda backend, value: backend.claim(queues=value)  # noqa: E731
claim_for: Call = lambda backend, value: backend.claim(lease=value)  # noqa: E731
fail_later: Call = lambda backend, value: backend.fail(claim_of(backend), "x", retry_in=value)  # noqa: E731
release_later: Call = lambda backend, value: backend.release([], delay=value)  # noqa: E731
wait_for: Call = lambda backend, value: backend.wait(timeout=value)  # noqa: E731
prune_older: Call = lambda backend, value: backend.prune(value)  # noqa: E731
prune_states: Call = lambda backend, value: backend.prune(HOUR, states=value)  # noqa: E731
register: Call = lambda backend, value: backend.register_many(value)  # noqa: E731

BAD_ARGUMENTS: list[tuple[Call, object, str]] = [
    *((claim_some, value, "limit") for value in (0, -1, 1001, True, None, "5", 1.0)),
    *((Backend.rescue, value, "limit") for value in (0, 1001, None)),
    *(
        (claim_from, value, "queues")
        for value in ("default", [], ["A"], [""], ["a" * 65], [None], ["amq.x y"])
    ),
    *((claim_for, value, "lease") for value in (timedelta(), -HOUR, 60, "1m")),
    *((fail_later, value, "retry_in") for value in (-HOUR, timedelta(days=4000), 60)),
    *((release_later, value, "delay") for value in (-HOUR, timedelta(days=4000), 60)),
    *((wait_for, value, "timeout") for value in (-HOUR, None)),
    *((prune_older, value, "older_than") for value in (-HOUR, 60)),
    *((prune_states, value, "states") for value in ([], [State.READY], [State.DONE, State.RUNNING])),
    *((Backend.get, value, "job_id") for value in ("nonsense", "", 7, None)),
    *((Backend.cancel, value, "job_id") for value in ("nonsense", None)),
    *((Backend.requeue, value, "job_id") for value in ("nonsense", None)),
    *((Backend.pause, value, "queues") for value in ("Not A Queue", "", None)),
    *((Backend.resume, value, "queues") for value in ("Not A Queue", None)),
    *((register, value, "jobs[1]") for value in ([Job(kind="k"), {"kind": "k"}], [Job(kind="k"), None])),
]


@pytest.mark.parametrize(("call", "value", "field"), BAD_ARGUMENTS)
def test_a_bad_argument_is_refused_by_name(backend: Backend, call: Call, value: object, field: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        call(backend, value)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_an_input_beyond_the_limit_is_refused_and_leaves_nothing(backend: Backend) -> None:
    fits = Job(kind="k", input_ref={"a": "x" * (64 * 1024 - len('{"a":""}'))})
    beyond = Job(kind="k", input_ref={"a": "x" * (64 * 1024 - len('{"a":""}') + 1)})
    in_bytes = Job(kind="k", input_ref={"a": "é" * (32 * 1024)})
    for bad in (beyond, in_bytes):
        with pytest.raises(InvalidJob, match=r"input_ref: has 655.. bytes as JSON; at most 65536"):
            backend.register_many([Job(kind="k"), bad])
    assert backend.stats() == []
    assert backend.register(fits).created


def test_the_limit_of_an_input_can_be_set() -> None:
    with Backend("test", open_sqlite, max_input_ref_bytes=1_000_000) as backend:
        assert backend.register(Job(kind="k", input_ref={"a": "x" * 900_000})).created


def test_one_bad_job_of_many_leaves_nothing(backend: Backend) -> None:
    bad: Any = object()
    with pytest.raises(InvalidJob):
        backend.register_many([*(Job(kind="k") for _ in range(2000)), bad])
    assert backend.stats() == []


def test_a_lease_that_the_store_does_not_give_is_unsupported(backend: Backend) -> None:
    limits = backend.capabilities.lease
    backend.register(Job(kind="k"))
    for lease in (limits.longest + timedelta(seconds=1), timedelta(microseconds=1)):
        with pytest.raises(Unsupported, match="lease"):
            backend.claim(lease=lease)
    assert len(backend.claim(lease=limits.longest)) == 1


# -- What becomes of an answer -----------------------------------------------------------------------------


def test_a_lost_lease_is_an_exception_in_the_singular_and_a_verdict_in_the_plural(backend: Backend) -> None:
    claim = claim_of(backend)
    backend.complete(claim)
    with pytest.raises(LeaseLost, match=rf"job {claim.job.id} .attempt 1. is lost"):
        backend.complete(claim)
    with pytest.raises(LeaseLost):
        backend.fail(claim, "x")
    with pytest.raises(LeaseLost):
        backend.extend(claim)
    assert [verdict.applied for verdict in backend.complete_many([claim])] == [False]
    assert [verdict.applied for verdict in backend.fail_many([backend.failure(claim, "x")])] == [False]
    assert [verdict.applied for verdict in backend.release([claim])] == [False]


def test_no_message_and_no_repr_holds_a_token(backend: Backend) -> None:
    claim = claim_of(backend)
    backend.complete(claim)
    with pytest.raises(LeaseLost) as caught:
        backend.complete(claim)
    assert claim.token not in str(caught.value) + repr(claim)


def test_an_extended_claim_is_the_same_claim_with_another_end(backend: Backend) -> None:
    claim = claim_of(backend)
    extended = backend.extend(claim, 10 * HOUR)
    assert (extended.token, extended.attempt, extended.job) == (claim.token, claim.attempt, claim.job)
    assert extended.expires_at > claim.expires_at + 9 * HOUR
    backend.complete(extended)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        ("plain text", "plain text"),
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (Unprintable(), "Unprintable: (its text can't be had: RuntimeError)"),
        (ValueError("a\x00b\ud800c"), "ValueError: a\ufffdb\ufffd\ufffd\ufffdc"),
    ],
)
def test_whatever_a_handler_raised_can_be_kept(
    backend: Backend, error: str | BaseException, kept: str
) -> None:
    claim = claim_of(backend)
    backend.fail(claim, error, permanent=True)
    status = backend.get(claim.job.id)
    assert status is not None
    assert status.last_error == kept


def test_a_huge_error_keeps_its_head_and_its_tail(backend: Backend) -> None:
    claim = claim_of(backend)
    backend.fail(claim, ValueError("x" * 50_000_000 + "the end"), permanent=True)
    status = backend.get(claim.job.id)
    assert status is not None
    assert status.last_error is not None
    assert len(status.last_error.encode()) <= MAX_ERROR_BYTES
    assert status.last_error.startswith("ValueError: x")
    assert status.last_error.endswith("the end")


def test_without_a_delay_a_failure_backs_off(backend: Backend) -> None:
    claim = claim_of(backend)
    first = backend.failure(claim, "x")
    assert timedelta() < first.retry_in <= timedelta(seconds=1)
    assert backend.failure(claim, "x", retry_in=timedelta()).retry_in == timedelta()


def test_a_generator_of_jobs_is_taken(backend: Backend) -> None:
    assert len(backend.register_many(Job(kind="k") for _ in range(1500))) == 1500


def test_ids_are_taken_as_text_too(backend: Backend) -> None:
    job = Job(kind="k")
    backend.register(job)
    assert backend.get(str(job.id)) is not None
    assert backend.cancel(str(job.id).upper()) is State.CANCELLED
    assert backend.get(uuid4()) is None


def test_what_a_backend_lacks_is_named_at_start(backend: Backend) -> None:
    backend.require(["lookup", "cancel"])
    with pytest.raises(Unsupported, match=r"SQLite .* in memory .backend 'test'. lacks fsync"):
        backend.require(["lookup", "fsync"])


# -- A driver that misbehaves ------------------------------------------------------------------------------


class Misbehaving(SQLiteDriver):
    """Does as it is told to, in `register` and `complete`."""

    def __init__(self) -> None:
        sound = open_sqlite()
        self.__dict__.update(vars(sound))
        self.outages = 0
        self.refused = False
        self.spared = 0
        self.asked: list[int] = []

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        self.asked.append(len(records))
        if self.spared:
            self.spared -= 1
        elif self.outages:
            self.outages -= 1
            raise StoreUnavailable("the connection is gone", nothing_written=self.refused)
        return super().register(records)

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        return super().complete(leases)[1:]


@pytest.fixture
def driver() -> Misbehaving:
    return Misbehaving()


@pytest.fixture
def over(driver: Misbehaving) -> Backend:
    return Backend("test", lambda: driver)


def test_a_driver_that_answers_too_little_is_caught(over: Backend) -> None:
    claim = claim_of(over)
    with pytest.raises(StoreError, match="'test' gave 0 answers to complete of 1"):
        over.complete(claim)


def test_a_registration_is_repeated_once_on_another_connection(over: Backend, driver: Misbehaving) -> None:
    driver.outages = 1
    assert over.register(Job(kind="k")).created
    assert driver.asked == [1, 1]
    driver.outages = 2
    with pytest.raises(StoreUnavailable):
        over.register(Job(kind="k"))
    assert driver.asked == [1, 1, 1, 1]


@pytest.mark.parametrize("refused", [False, True])
def test_an_outage_tells_whether_something_may_be_written(
    over: Backend, driver: Misbehaving, refused: bool
) -> None:
    driver.outages, driver.refused = 2, refused
    with pytest.raises(StoreUnavailable) as raised:
        over.register(Job(kind="k"))
    assert raised.value.nothing_written is refused


def test_what_was_written_before_an_outage_counts(over: Backend, driver: Misbehaving) -> None:
    driver.spared, driver.outages, driver.refused = 1, 2, True
    with pytest.raises(StoreUnavailable) as raised:
        over.register_many(Job(kind="k") for _ in range(1500))
    assert raised.value.nothing_written is False


def test_batches_are_cut_to_what_the_store_takes(over: Backend, driver: Misbehaving) -> None:
    over.register_many(Job(kind="k") for _ in range(2500))
    assert driver.asked == [1000, 1000, 500]


def test_an_undecodable_job_is_logged_without_its_input(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    spoilt = Job(kind="k").to_record()._replace(input_ref='["canary"]')
    backend.driver.register([spoilt])
    with caplog.at_level(logging.ERROR):
        assert backend.claim() == []
    assert spoilt.id in caplog.text
    assert "canary" not in caplog.text


# -- Opening and closing -----------------------------------------------------------------------------------


def test_a_backend_opens_at_first_use_and_again_after_it_was_closed() -> None:
    opened: list[Driver] = []

    def opening() -> Driver:
        opened.append(open_sqlite())
        return opened[-1]

    backend = Backend("test", opening)
    assert opened == []
    backend.close()
    backend.register(Job(kind="k"))
    assert len(opened) == 1
    backend.close()
    backend.close()
    assert backend.stats() == []  # another store in memory
    assert len(opened) == 2


def test_its_repr_is_its_name(backend: Backend) -> None:
    assert repr(backend) == "Backend('test')"
    assert isinstance(backend.capabilities, Capabilities)
    assert isinstance(Job(kind="k").id, UUID)

"""What a handler is given beside its input."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from jobcontract import Job, JobContext, Unsupported
from jobcontract.context import LEASE_LOST, SHUTDOWN, TIMED_OUT, Cancellation, JobCancelled
from tests.worker.claims import claim_of


def test_a_cancellation_is_seen_by_everybody_who_waits_for_it() -> None:
    cancellation = Cancellation()
    seen: list[bool] = []
    waiters = [threading.Thread(target=lambda: seen.append(cancellation.wait(20))) for _ in range(8)]
    for waiter in waiters:
        waiter.start()
    cancellation.set(TIMED_OUT)
    for waiter in waiters:
        waiter.join(10)

    assert seen == [True] * 8
    assert cancellation.is_set()
    assert bool(cancellation)


def test_waiting_for_no_cancellation_ends_with_the_timeout() -> None:
    cancellation = Cancellation()

    assert cancellation.wait(0.01) is False
    assert not cancellation


def test_the_first_reason_stays() -> None:
    cancellation = Cancellation()
    cancellation.set(LEASE_LOST)
    cancellation.set(SHUTDOWN)

    assert cancellation.reason == LEASE_LOST
    assert cancellation.wait() is True


def test_a_handler_asks_whether_to_go_on() -> None:
    context = JobContext(claim_of(Job(kind="any")))
    context.check_cancelled()
    context.cancelled.set(SHUTDOWN)

    with pytest.raises(JobCancelled, match=SHUTDOWN):
        context.check_cancelled()


def test_a_context_made_for_a_test_of_a_handler_has_no_lease_to_extend() -> None:
    with pytest.raises(Unsupported, match="belongs to no worker"):
        JobContext(claim_of(Job(kind="any"))).extend(timedelta(minutes=1))


def test_what_is_printed_shows_neither_input_nor_token() -> None:
    claim = claim_of(Job(kind="any", input_ref={"secret": "canary"}))

    assert "canary" not in repr(JobContext(claim))
    assert claim.token not in repr(JobContext(claim))


def test_the_headers_can_not_be_changed() -> None:
    context = JobContext(claim_of(Job(kind="any", headers={"tenant": "a"})))

    with pytest.raises(TypeError):
        context.headers["tenant"] = "b"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]

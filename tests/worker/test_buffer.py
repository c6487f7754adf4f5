"""How much a worker claims: what its hands will start within a tenth of a second, and no more."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import timedelta

import pytest

from jobcontract import Handlers, Job, JobContext
from jobcontract.handlers import Handler
from jobcontract.worker.buffer import Buffer
from jobcontract.worker.hold import Hold
from jobcontract.worker.limit import KindLimit
from tests.worker.claims import claim_of, nothing

NOW = 0.0


def handler() -> Handler:
    handlers = Handlers()
    handlers.handler("any")(nothing)
    (only,) = handlers
    return only


HANDLER = handler()


def hold(kind: str = "any") -> Hold:
    claim = claim_of(Job(kind=kind))
    now = time.monotonic()
    return Hold(
        claim, HANDLER, JobContext(claim), lease=60, deadline=now + 60, renew_at=now + 20, claimed_at=now
    )


def buffer_of(slots: int = 4, batch: int = 100, limits: dict[str, int] | None = None) -> Buffer:
    return Buffer(slots, batch, limits or {})


def run_one(buffer: Buffer, seconds: float) -> None:
    """As a hand does with a job that takes so long."""
    taken = buffer.take()
    assert taken is not None
    buffer.free(taken, seconds)


def test_before_anything_is_known_only_free_hands_get_jobs() -> None:
    assert buffer_of(slots=4).demand(NOW) == 4


def test_no_more_is_claimed_than_a_batch() -> None:
    assert buffer_of(slots=500, batch=100).demand(NOW) == 100


def test_short_handlers_get_full_batches_ahead() -> None:
    buffer = buffer_of(slots=4, batch=100)
    buffer.put([hold()])
    run_one(buffer, seconds=0.000_05)

    assert buffer.demand(NOW) == 100
    buffer.put([hold() for _ in range(100)])
    assert buffer.demand(NOW) == 100  # the next batch comes while this one is being started
    buffer.put([hold() for _ in range(100)])
    assert buffer.demand(NOW) == 0


def test_long_handlers_get_nothing_ahead() -> None:
    buffer = buffer_of(slots=4, batch=100)
    buffer.put([hold() for _ in range(4)])
    run_one(buffer, seconds=10.0)
    taken = [buffer.take() for _ in range(3)]

    assert all(taken)
    assert buffer.demand(NOW) == 1


def test_what_is_ahead_is_a_tenth_of_a_second_of_work() -> None:
    buffer = buffer_of(slots=4, batch=100)
    buffer.put([hold()])
    run_one(buffer, seconds=0.02)  # 4 hands start 20 of them in 0.1 s

    assert buffer.demand(NOW) == 4 + 20


def test_while_all_hands_are_busy_the_buffer_is_topped_up_by_halves() -> None:
    buffer = buffer_of(slots=4, batch=100)
    buffer.put([hold()])
    run_one(buffer, seconds=0.02)
    buffer.put([hold() for _ in range(24)])
    for _ in range(4):
        assert buffer.take() is not None

    assert buffer.demand(NOW) == 0
    buffer = buffer_of(slots=4, batch=100)
    buffer.put([hold()])
    run_one(buffer, seconds=0.02)
    buffer.put([hold() for _ in range(14)])
    for _ in range(4):
        assert buffer.take() is not None
    assert buffer.demand(NOW) == 10


def test_a_claimer_without_demand_is_woken_by_it() -> None:
    buffer = buffer_of(slots=1)
    buffer.put([hold()])
    taken = buffer.take()
    assert taken is not None
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(buffer.demand(20.0)))
    waiting.start()
    buffer.free(taken, 10.0)
    waiting.join(10)

    assert found == [1]


def test_no_more_jobs_run_than_there_are_slots() -> None:
    buffer = buffer_of(slots=2)
    buffer.put([hold() for _ in range(3)])
    first, second = buffer.take(), buffer.take()
    assert first is not None
    assert second is not None
    third: list[Hold | None] = []
    hand = threading.Thread(target=lambda: third.append(buffer.take()))
    hand.start()
    hand.join(0.1)
    assert hand.is_alive()  # there is a job, but no slot

    buffer.free(first, 0.1)
    hand.join(10)
    assert len(third) == 1


def test_a_job_that_nobody_starts_is_withdrawn_and_nothing_more_is_claimed_ahead() -> None:
    buffer = buffer_of(slots=1)
    buffer.put([hold()])
    run_one(buffer, seconds=0.001)
    running, waiting = hold(), hold()
    buffer.put([running, waiting])
    assert buffer.take() is running

    assert buffer.withdraw(claimed_before=waiting.claimed_at) == []
    assert buffer.withdraw(claimed_before=time.monotonic()) == [waiting]
    assert buffer.demand(NOW) == 0
    buffer.free(running, 5.0)
    assert buffer.demand(NOW) == 1


def test_after_the_close_nothing_goes_in_or_out() -> None:
    buffer = buffer_of()
    waiting = [hold(), hold()]
    buffer.put(waiting)

    assert buffer.close() == waiting
    assert buffer.take() is None
    assert buffer.demand(20.0) == 0
    late = hold()
    assert [deferred.hold for deferred in buffer.put([late])] == [late]


def test_hands_that_wait_end_with_the_close() -> None:
    buffer = buffer_of()
    taken: list[Hold | None] = []
    hands = [threading.Thread(target=lambda: taken.append(buffer.take())) for _ in range(3)]
    for hand in hands:
        hand.start()
    buffer.close()
    for hand in hands:
        hand.join(10)

    assert taken == [None, None, None]


# -- Kinds with a concurrency limit --------------------------------------------------------------------------


def test_jobs_beyond_the_limit_of_their_kind_go_back_and_others_stay() -> None:
    buffer = buffer_of(slots=10, limits={"narrow": 2})
    narrow = [hold("narrow") for _ in range(5)]
    deferred = buffer.put([*narrow, hold("wide")])

    assert [one.hold for one in deferred] == narrow[2:]
    assert all(one.delay >= timedelta(seconds=1) for one in deferred)
    assert [one.claim.job.kind for one in (buffer.take(), buffer.take(), buffer.take()) if one] == [
        "narrow",
        "narrow",
        "wide",
    ]


def test_a_slot_that_comes_free_is_announced() -> None:
    buffer = buffer_of(limits={"narrow": 1})
    buffer.put([hold("narrow")])
    seen = buffer.vacancies
    run_one(buffer, seconds=1.0)

    assert buffer.vacancies != seen
    buffer.wait_for_room(seen, timeout=20.0)  # and does not wait


def test_short_jobs_of_a_narrow_kind_wait_here() -> None:
    buffer = buffer_of(limits={"narrow": 1})
    buffer.put([hold("narrow")])
    run_one(buffer, seconds=0.01)
    jobs = [hold("narrow") for _ in range(20)]
    deferred = buffer.put(jobs)

    assert [one.hold for one in deferred] == jobs[11:]  # one runs, ten wait for their tenth of a second
    for expected in jobs[:11]:
        taken = buffer.take()
        assert taken is expected
        buffer.free(expected, 0.01)


def test_deferred_jobs_come_back_one_after_the_other() -> None:
    limit = KindLimit(2)
    limit.duration.add(10.0)
    delays = [limit.deferral(100.0) for _ in range(8)]

    assert delays == [timedelta(seconds=seconds) for seconds in (5, 10, 15, 20, 25, 30, 35, 40)]


def test_no_deferral_is_longer_than_a_minute() -> None:
    limit = KindLimit(1)
    limit.duration.add(3600.0)
    delays = Counter(limit.deferral(100.0) for _ in range(200))

    assert min(delays) >= timedelta(seconds=30)
    assert max(delays) <= timedelta(seconds=60)
    assert len(delays) > 10  # spread, so that they don't all come back at once


def test_a_narrow_kind_whose_jobs_wait_too_long_gives_them_back() -> None:
    buffer = buffer_of(limits={"narrow": 1})
    buffer.put([hold("narrow")])
    run_one(buffer, seconds=0.01)
    running, waiting = hold("narrow"), hold("narrow")
    buffer.put([running, waiting])
    assert buffer.take() is running

    assert buffer.withdraw(claimed_before=time.monotonic()) == [waiting]
    late = hold("narrow")
    assert [one.hold for one in buffer.put([late])] == [late]


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_everything_that_goes_in_comes_out_once(slots: int) -> None:
    buffer = buffer_of(slots=slots, limits={"narrow": 1})
    put = [hold("narrow" if number % 3 == 0 else "wide") for number in range(2000)]
    taken: list[Hold] = []
    overlaps: list[Hold] = []
    narrow = threading.Lock()

    def work() -> None:
        while (job := buffer.take()) is not None:
            alone = job.claim.job.kind == "wide" or narrow.acquire(blocking=False)
            if not alone:
                overlaps.append(job)
            taken.append(job)
            if alone and job.claim.job.kind == "narrow":
                narrow.release()
            buffer.free(job, 0.000_001)

    hands = [threading.Thread(target=work) for _ in range(slots)]
    for hand in hands:
        hand.start()
    deferred: list[Hold] = []
    for start in range(0, len(put), 50):
        deferred += [one.hold for one in buffer.put(put[start : start + 50])]
    deadline = time.monotonic() + 20
    while len(taken) + len(deferred) < len(put):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    buffer.close()
    for hand in hands:
        hand.join(10)

    assert overlaps == []
    assert {id(one) for one in [*taken, *deferred]} == {id(one) for one in put}
    assert len(taken) + len(deferred) == len(put)

"""Schedulers insert each tick once, whoever they are, however many, and whatever happens to them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from jobcontract import Backend, get_backend
from jobcontract.config import Settings
from jobcontract.conformance.clock import shifted_clock
from jobcontract.errors import StoreUnavailable, Unsupported
from jobcontract.schedules import (
    Gap,
    Interval,
    Place,
    Schedule,
    Scheduler,
    backfill,
    find_missing,
)
from tests.servers.rabbitmq import RabbitServer

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def schedule(name: str = "test", every: timedelta = 5 * MINUTE, **fields: object) -> Schedule:
    return Schedule(**{"name": name, "ticks": Interval(every), "kind": "report", **fields})  # type: ignore[arg-type]


def now(backend: Backend) -> datetime:
    return backend.read_notes(["nothing"]).now


def place_of(backend: Backend, schedule: Schedule) -> Place:
    return Place.read(schedule.note, backend.read_notes([schedule.note]).values[schedule.note])


def begin(backend: Backend, schedule: Schedule, *, ago: timedelta) -> datetime:
    """As if the schedule had come to that time, and no scheduler had run since."""
    last = now(backend) - ago
    before = backend.read_notes([schedule.note]).values.get(schedule.note)
    assert backend.write_note(schedule.note, Place(last).text(), expected=before)
    return last


def keys(backend: Backend) -> Counter[str | None]:
    """How many jobs there are with each key."""
    found: list[str | None] = []
    cursor = None
    while page := backend.jobs(limit=500, cursor=cursor):
        found += [each.job.idempotency_key for each in page if each.job is not None]
        cursor = page[-1].cursor
    return Counter(found)


def ticks(schedule: Schedule, after: datetime, until: datetime) -> dict[str | None, int]:
    """What `keys` gives when each tick in (after, until] was inserted once."""
    return {schedule.key(tick): 1 for tick in schedule.ticks.between(after, until)}


def test_a_schedule_begins_when_it_is_seen_first_and_owes_nothing_to_the_past(store: Backend) -> None:
    Scheduler(store, [schedule(every=SECOND)]).turn()
    assert keys(store) == {}
    assert now(store) - place_of(store, schedule()).last < 30 * SECOND


def test_the_job_of_a_tick_says_which_tick_it_is(store: Backend) -> None:
    terms = {"input": {"format": "csv"}, "queue": "exports", "headers": {"tenant": "a"}}
    daily = schedule("daily", 24 * HOUR, catch_up=48 * HOUR, **terms)
    begin(store, daily, ago=24 * HOUR)
    Scheduler(store, [daily]).turn()
    (status,) = store.jobs()
    job = status.job
    assert job is not None
    midnight = now(store).replace(hour=0, minute=0, second=0, microsecond=0)
    tick = f"{midnight:%Y-%m-%d}T00:00Z"
    assert job.idempotency_key == f"schedule:daily:{tick}"
    assert job.headers == {"tenant": "a", "schedule": "daily", "schedule-tick": tick}
    assert (job.kind, job.queue, job.input_ref) == ("report", "exports", {"format": "csv"})
    assert job.run_at is not None
    assert midnight <= job.run_at <= now(store), "due since then; an outbox knows only that it is due"


def test_all_ticks_since_the_last_one_are_inserted(store: Backend) -> None:
    every = schedule()
    last = begin(store, every, ago=50 * MINUTE)
    Scheduler(store, [every]).turn()
    assert keys(store) == ticks(every, last, place_of(store, every).last)
    assert find_missing(store, every).ticks == []


def test_any_number_of_schedulers_insert_each_tick_once(
    connect: Callable[[], Backend], store: Backend
) -> None:
    every = schedule()
    last = begin(store, every, ago=55 * MINUTE)
    schedulers = [Scheduler(connect(), [every]) for _ in range(6)]
    start = threading.Barrier(len(schedulers))
    faults: list[BaseException] = []

    def run(scheduler: Scheduler) -> None:
        try:
            start.wait()
            scheduler.turn()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=run, args=[each]) for each in schedulers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    assert keys(store) == ticks(every, last, place_of(store, every).last)


class DiesBeforeTheNote(Backend):
    """A client that is gone when it should say how far it came."""

    def write_note(self, name: str, text: str, *, expected: str | None) -> bool:
        raise StoreUnavailable("it was killed")


def test_what_was_inserted_by_one_that_died_is_not_inserted_again(settings: Settings, store: Backend) -> None:
    every = schedule()
    last = begin(store, every, ago=20 * MINUTE)
    with DiesBeforeTheNote("queue", lambda: store.driver) as dying, pytest.raises(StoreUnavailable):
        Scheduler(dying, [every]).turn()
    with get_backend(settings=settings) as after:
        assert place_of(after, every).last == last
        Scheduler(after, [every]).turn()
        assert keys(after) == ticks(every, last, place_of(after, every).last)


def test_restarts_more_often_than_the_interval_lose_no_tick(memory: Backend) -> None:
    every = schedule(every=SECOND)
    last = begin(memory, every, ago=SECOND)
    end = now(memory) + 4 * SECOND
    while now(memory) < end:
        Scheduler(memory, [every]).turn()
        time.sleep(0.03)
    assert keys(memory) == ticks(every, last, place_of(memory, every).last)
    assert find_missing(memory, every).ticks == []


def test_a_clock_that_steps_back_inserts_nothing_twice_and_nothing_early(
    memory: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """The store's clock was two hours ahead, ticks were inserted, and then it was set right."""
    every = schedule()
    ahead = begin(memory, every, ago=-2 * HOUR)
    memory.register(every.job(next(every.ticks.between(ahead - 10 * MINUTE, ahead))))
    scheduler = Scheduler(memory, [every])
    scheduler.turn()
    scheduler.turn()
    assert sum(keys(memory).values()) == 1
    assert place_of(memory, every).last == ahead
    assert [record.getMessage() for record in caplog.records if "rests until then" in record.getMessage()]
    assert len(caplog.records) == 1, "once a minute is enough"
    assert memory.claim() == [], "its tick is ahead, by the clock that is right now"


@pytest.mark.parametrize("by", [timedelta(days=1), timedelta(days=-1)])
def test_the_clock_of_the_scheduler_s_machine_does_not_matter(memory: Backend, by: timedelta) -> None:
    every = schedule()
    last = begin(memory, every, ago=20 * MINUTE)
    with shifted_clock(by, ("jobcontract", "jobcontract_sqlite")):
        Scheduler(memory, [every]).turn()
    assert keys(memory) == ticks(every, last, place_of(memory, every).last)


def test_what_is_too_late_is_a_gap_that_can_be_filled_once(
    connect: Callable[[], Backend], store: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """The database was down for an hour and more."""
    every = schedule(catch_up=20 * MINUTE)
    last = begin(store, every, ago=85 * MINUTE)
    Scheduler(store, [every]).turn()
    came_to = place_of(store, every).last
    assert "the schedule test has no jobs for its ticks from" in caplog.text
    in_time = set(ticks(every, came_to - every.catch_up, came_to))
    assert set(keys(store)) == in_time
    missing = find_missing(store, every)
    assert [every.key(tick) for tick in missing.ticks] == [
        key for key in ticks(every, last, came_to) if key not in in_time
    ]
    assert not missing.more
    assert find_missing(store, every, limit=2)[:2] == (missing.ticks[:2], True)

    # Twice the same, by two people at once.
    results: list[tuple[int, int]] = []
    threads = [threading.Thread(target=lambda: results.append(backfill(connect(), every))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(created for created, _ in results) == len(missing.ticks)
    assert keys(store) == ticks(every, last, came_to)
    assert find_missing(store, every).ticks == []
    assert backfill(store, every) == (0, 0)


def test_a_part_of_a_gap_can_be_filled(memory: Backend) -> None:
    every = schedule(catch_up=MINUTE)
    begin(memory, every, ago=60 * MINUTE)
    Scheduler(memory, [every]).turn()
    missing = find_missing(memory, every).ticks
    filled = backfill(memory, every, since=missing[2], until=missing[5])
    assert filled == (3, 0)
    assert find_missing(memory, every).ticks == [*missing[:3], *missing[6:]]


def test_ticks_that_no_scheduler_came_to_are_missing_too(memory: Backend) -> None:
    every = schedule()
    last = begin(memory, every, ago=30 * MINUTE)
    missing = find_missing(memory, every).ticks
    assert [every.key(tick) for tick in missing] == list(ticks(every, last, now(memory) - MINUTE))
    assert backfill(memory, every).created == len(missing)
    Scheduler(memory, [every]).turn()
    assert keys(memory) == ticks(every, last, place_of(memory, every).last)


def test_a_tick_that_somebody_else_inserted_is_not_missing(memory: Backend) -> None:
    """pg_cron does, for instance."""
    every = schedule()
    begin(memory, every, ago=30 * MINUTE)
    first, *rest = find_missing(memory, every).ticks
    memory.register(every.job(first))
    assert find_missing(memory, every).ticks == rest


def test_gaps_that_touch_are_one_and_only_so_many_are_kept() -> None:
    def at(minute: int) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + minute * MINUTE

    place = Place(at(0)).come_to(at(5), Gap(at(0), at(5))).come_to(at(9), Gap(at(5), at(8)))
    assert place == Place(at(9), (Gap(at(0), at(8)),))
    assert place.without(at(2), at(4)).gaps == (Gap(at(0), at(2)), Gap(at(4), at(8)))
    assert place.without(at(0), at(8)).gaps == ()
    for minute in range(10, 2000, 2):
        place = place.come_to(at(minute + 1), Gap(at(minute), at(minute + 1)))
    assert len(place.gaps) == 500
    assert len(place.text()) < 64 * 1024
    assert Place.read("n", place.text()) == place


def test_a_schedule_that_can_t_be_run_does_not_stop_the_others(
    memory: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = schedule("broken"), schedule("sound")
    memory.write_note(broken.note, '{"v": 2}', expected=None)
    last = begin(memory, sound, ago=20 * MINUTE)
    Scheduler(memory, [broken, sound]).turn()
    assert keys(memory) == ticks(sound, last, place_of(memory, sound).last)
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (
        "the schedule broken can't be run now: the note 'schedule:broken' can't be read"
        in record.getMessage()
    )


def test_the_place_stays_fresh_so_that_a_changed_schedule_has_no_ticks_of_long_ago(memory: Backend) -> None:
    """From yearly to every minute."""
    yearly = schedule(every=timedelta(days=365 * 20))
    begin(memory, yearly, ago=6 * MINUTE)
    Scheduler(memory, [yearly]).turn()
    changed = schedule(every=MINUTE)
    Scheduler(memory, [changed]).turn()
    assert sum(keys(memory).values()) <= 1


def test_the_pause_ends_soon_after_the_next_tick_and_never_takes_long(memory: Backend) -> None:
    pauses = [Scheduler(memory, [schedule(every=2 * SECOND)]).turn() for _ in range(20)]
    assert all(0 <= pause <= 2.5 for pause in pauses)
    assert Scheduler(memory, [schedule(every=300 * 24 * HOUR)]).turn() <= 30


def test_a_store_without_keys_can_t_have_schedules(rabbitmq_server: RabbitServer) -> None:
    url = rabbitmq_server.url(rabbitmq_server.create_vhost())
    with get_backend(url, settings=Settings()) as backend:
        backend.install()
        with pytest.raises(Unsupported, match=r"put an outbox in front of it \(backends\.url\.outbox\)"):
            Scheduler(backend, [schedule()]).turn()

"""Time is the store's: its clock is moved here, and the clocks of clients are moved against it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

from jobcontract.contract import LOST, Failure, Rescued, State
from tests.sqlite.stores import MINUTE, Advance, FileStore

FIVE_MINUTES = timedelta(minutes=5)


def test_a_job_is_due_when_the_clock_of_the_store_says_so(store: FileStore, advance: Advance) -> None:
    store.add(run_at=datetime.now(UTC) + FIVE_MINUTES)
    assert store.claim() == []
    advance(FIVE_MINUTES)
    assert len(store.claim()) == 1


def test_a_lease_ends_when_the_clock_of_the_store_says_so(store: FileStore, advance: Advance) -> None:
    store.add(4)
    completed, failed, extended, released = (claimed.lease for claimed in store.claim(4, lease=FIVE_MINUTES))
    advance(FIVE_MINUTES)
    assert store.driver.complete([completed]) == [LOST]
    assert store.driver.fail([Failure(failed, "late", MINUTE, permanent=True)]) == [LOST]
    assert store.driver.extend([extended], MINUTE) == [LOST]
    assert store.driver.release([released], timedelta()) == [LOST]
    assert store.driver.rescue(100) == Rescued(ready=4, dead=0)


def test_what_a_caller_believes_about_its_lease_is_not_asked(store: FileStore, advance: Advance) -> None:
    store.add(2)
    first, second = (claimed.lease for claimed in store.claim(2))
    long_over = first._replace(expires_at=first.expires_at - timedelta(days=1), attempt=99)
    assert store.driver.complete([long_over])[0].state is State.DONE
    advance(MINUTE)
    believed_valid = second._replace(expires_at=second.expires_at + timedelta(days=1))
    assert store.driver.complete([believed_valid]) == [LOST]


def test_a_renewed_lease_counts_from_the_clock_of_the_store(store: FileStore, advance: Advance) -> None:
    store.add()
    (claimed,) = store.claim(lease=FIVE_MINUTES)
    advance(4 * MINUTE)
    (renewed,) = store.driver.extend([claimed.lease], FIVE_MINUTES)
    assert renewed.at is not None
    assert timedelta(minutes=8) < renewed.at - datetime.now(UTC) <= timedelta(minutes=9, seconds=1)
    advance(4 * MINUTE)
    assert store.driver.complete([claimed.lease])[0].applied


def test_a_process_whose_python_clock_is_wrong_does_no_harm(store: FileStore) -> None:
    due, later = store.add(1), store.add(1, run_at=datetime.now(UTC) + MINUTE)
    script = f"""
import time, datetime as module
from pathlib import Path

shift = 300  # Python's clock in this process is five minutes ahead
now = time.time
time.time = lambda: now() + shift
class Ahead(module.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
module.datetime = Ahead

from tests.sqlite.stores import FileStore
store = FileStore(Path({str(store.path)!r}))
claimed = store.claim(10)
print(*(each.lease.job_id for each in claimed), *(store.add(1)))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    claimed, registered = found.stdout.split()
    assert [claimed] == due
    assert [each.lease.job_id for each in store.claim(10)] == [registered]
    stored = store.driver.get(later[0])
    assert stored is not None
    assert stored.state is State.READY


def test_instants_keep_their_microseconds(store: FileStore) -> None:
    run_at = datetime(2031, 2, 3, 4, 5, 6, 789_123, tzinfo=UTC)
    (job_id,) = store.add(run_at=run_at)
    stored = store.driver.get(job_id)
    assert stored is not None
    assert stored.record.run_at == run_at


def test_the_clock_of_the_store_is_that_of_this_machine(store: FileStore) -> None:
    before = datetime.now(UTC)
    (job_id,) = store.add()
    after = datetime.now(UTC)
    stored = store.driver.get(job_id)
    assert stored is not None
    assert before - timedelta(milliseconds=1) <= stored.created_at <= after

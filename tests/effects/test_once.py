"""`once`: a result is written once, however often its job runs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

import pytest

from jobcontract import InvalidJob, Job, StoreError, StoreUnavailable, get_backend, once
from tests.connections.callers import POSTGRES, SQLITE, Caller, Django, Psycopg, SQLite
from tests.effects.conftest import Running, write_result

EACH_CALLER = pytest.mark.parametrize(
    ("store", "kind"),
    [("postgres", kind) for kind in POSTGRES] + [("sqlite", kind) for kind in SQLITE],
    ids=lambda value: getattr(value, "__name__", value),
)
EACH_STORE = pytest.mark.parametrize(
    ("store", "kind"), [("postgres", Psycopg), ("sqlite", SQLite)], ids=["postgres", "sqlite"]
)
KEYED = Running(Job(kind="embed", idempotency_key="7:v3"))


@EACH_CALLER
def test_the_first_transaction_writes_and_every_later_one_does_not(
    url: str, kind: Callable[[str], Caller], installed: None
) -> None:
    answers: list[bool] = []
    for _ in range(3):
        caller = kind(url)
        answers.append(once(caller.begin(), KEYED))
        caller.commit()
        caller.close()
    assert answers == [True, False, False]


@EACH_CALLER
def test_a_transaction_that_rolled_back_did_not_count(
    url: str, kind: Callable[[str], Caller], installed: None
) -> None:
    answers: list[bool] = []
    for _ in range(2):
        caller = kind(url)
        answers.append(once(caller.begin(), KEYED))
        caller.rollback()
        caller.close()
    assert answers == [True, True]


@EACH_CALLER
def test_once_is_known_inside_the_same_transaction(caller: Caller) -> None:
    connection = caller.begin()
    assert [once(connection, KEYED), once(connection, KEYED)] == [True, False]
    caller.commit()


@EACH_STORE
def test_the_key_counts_per_queue_whatever_the_kind_and_the_id(caller: Caller) -> None:
    connection = caller.begin()
    assert once(connection, KEYED)
    assert not once(connection, Running(Job(kind="other", idempotency_key="7:v3")))
    assert once(connection, Running(Job(kind="embed", idempotency_key="7:v3", queue="other")))
    caller.commit()


@EACH_STORE
def test_a_job_without_a_key_counts_by_its_id(caller: Caller) -> None:
    job = Job(kind="embed")
    connection = caller.begin()
    assert once(connection, Running(job))
    assert not once(connection, Running(job))
    assert once(connection, Running(Job(kind="embed")))
    # Neither does a key that looks like an id stand for it.
    assert once(connection, Running(Job(kind="embed", idempotency_key=str(job.id))))
    caller.commit()


@EACH_STORE
def test_the_second_of_two_waits_and_writes_when_the_first_rolls_back(
    caller: Caller, url: str, kind: Callable[[str], Caller]
) -> None:
    with second_transaction(url, kind) as (answered, answers):
        assert once(caller.begin(), KEYED)
        answered.start()
        assert not answered.event.wait(0.2)
        caller.rollback()
        assert answered.event.wait(5)
    assert answers == [True]


@EACH_STORE
def test_the_second_of_two_waits_and_does_not_write_when_the_first_commits(
    caller: Caller, url: str, kind: Callable[[str], Caller]
) -> None:
    with second_transaction(url, kind) as (answered, answers):
        assert once(caller.begin(), KEYED)
        answered.start()
        assert not answered.event.wait(0.2)
        caller.commit()
        assert answered.event.wait(5)
    assert answers == [False]


@EACH_STORE
def test_a_job_that_runs_again_after_a_lost_lease_writes_one_result(
    caller: Caller, url: str, plain: Callable[[str], Caller]
) -> None:
    with get_backend(url) as backend:
        backend.install()
        backend.register(Job(kind="embed"))
        for attempt in (1, 2):
            (claim,) = backend.claim(lease=timedelta(milliseconds=50))
            assert claim.attempt == attempt
            connection = caller.begin()
            if once(connection, claim):
                write_result(connection, str(claim.job.id))
            caller.commit()
            caller.close()
            # The worker is stopped here, before it could complete the job.
            while not backend.rescue().ready:
                pass
    reader = plain(url)
    assert len(reader.begin().execute("SELECT job FROM results").fetchall()) == 1
    reader.close()


@pytest.mark.parametrize("store", ["postgres"])
def test_a_snapshot_that_is_too_old_is_told(url: str, installed: None) -> None:
    first, late = Psycopg(url), Psycopg(url)
    connection = late.begin()
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SELECT count(*) FROM results")
    assert once(first.begin(), KEYED)
    first.commit()
    with pytest.raises(StoreUnavailable, match="roll back and run the transaction again"):
        once(connection, KEYED)
    late.rollback()
    assert not once(connection, KEYED)
    first.close()
    late.close()


@pytest.mark.parametrize("store", ["sqlite"])
def test_a_lock_that_is_not_given_is_told(url: str, installed: None) -> None:
    holder, waiter = SQLite(url), SQLite(url)
    connection = waiter.begin()
    waiter.rollback()
    connection.execute("PRAGMA busy_timeout = 100")
    connection.execute("BEGIN")
    assert once(holder.begin(), KEYED)
    with pytest.raises(StoreUnavailable, match="roll back and run the transaction again"):
        once(connection, KEYED)
    holder.close()
    waiter.close()


@pytest.mark.parametrize(("store", "kind"), [("sqlite", SQLite), ("sqlite", Django), ("postgres", Django)])
def test_a_connection_without_a_transaction_is_refused(caller: Caller) -> None:
    if isinstance(caller, Django):
        connection = caller.open()
    else:
        connection = caller.begin()
        caller.rollback()
    with pytest.raises(InvalidJob, match=r"^connection: "):
        once(connection, KEYED)


@pytest.mark.parametrize("store", ["postgres"])
def test_psycopg_in_autocommit_mode_is_refused(url: str, installed: None) -> None:
    caller = Psycopg(url)
    connection = caller.begin()
    connection.autocommit = True
    with pytest.raises(InvalidJob, match="autocommit mode without a transaction"):
        once(connection, KEYED)
    caller.close()


@EACH_STORE
def test_a_missing_table_says_what_to_do(url: str, kind: Callable[[str], Caller]) -> None:
    caller = kind(url)
    with pytest.raises(
        StoreError, match=r"there is no table .*effects.*; run `jobctl init` if .* create_effects_table"
    ):
        once(caller.begin(), KEYED)
    caller.close()


class _Answered:
    """A second transaction with the same job, in a thread."""

    def __init__(self, url: str, kind: Callable[[str], Caller], answers: list[bool]) -> None:
        self.event = Event()
        self._thread = Thread(target=self._run, args=(url, kind, answers))

    def start(self) -> None:
        """Begin the transaction."""
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _run(self, url: str, kind: Callable[[str], Caller], answers: list[bool]) -> None:
        caller = kind(url)
        answers.append(once(caller.begin(), KEYED))
        caller.commit()
        caller.close()
        self.event.set()


@contextmanager
def second_transaction(url: str, kind: Callable[[str], Caller]) -> Generator[tuple[_Answered, list[bool]]]:
    """The second transaction, not started yet, and what `once` answered in it."""
    answers: list[bool] = []
    answered = _Answered(url, kind, answers)
    yield answered, answers
    answered.join()

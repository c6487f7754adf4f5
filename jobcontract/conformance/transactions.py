"""`register(job, connection=...)`: the job commits or vanishes with the caller's transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from functools import partial

import pytest

from jobcontract.aio import AsyncBackend
from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import Store, ids_of, job, jobs
from jobcontract.conformance.wait import Waiter
from jobcontract.contract import Job, Registration
from jobcontract.errors import JobContractError, StoreError, Unsupported

Open = Callable[[], AbstractContextManager[object]]
OpenAsync = Callable[[], AbstractAsyncContextManager[object]]
KEY = "document 7:v3"


class ApplicationError(Exception):
    """What makes the application roll back."""


class TransactionsChapter(Chapter):
    """Feature "transactions". Each test goes through all kinds of connection that the harness offers."""

    @needs("transactions")
    def test_the_harness_offers_connections(self, store: Store) -> None:
        assert store.transactions(), "the harness's `transactions` names no kind of connection"

    @needs("transactions")
    def test_a_committed_job_is_there(self, store: Store) -> None:
        for kind, begin in store.transactions().items():
            made = job(queue="a")
            with telling(kind), begin() as connection:
                registration = store.backend.register(made, connection=connection)
                assert (registration.job_id, registration.created) == (made.id, True)
            with telling(kind):
                assert ids_of(store.claim_all(1, queues=["a"])) == [str(made.id)]

    @needs("transactions")
    def test_a_job_is_nobodys_before_the_commit(self, store: Store) -> None:
        for kind, begin in store.transactions().items():
            made = job()
            with telling(kind), begin() as connection:
                store.backend.register(made, connection=connection)
                if store.has("lookup"):  # a store with one writer can be read while the transaction is open
                    assert store.lookup.get(str(made.id)) is None
                else:
                    assert store.claim(10) == []
            with telling(kind):
                assert len(store.claim_all(1)) == 1

    @needs("transactions")
    def test_a_rolled_back_transaction_leaves_no_job_and_no_key(self, store: Store) -> None:
        for number, (kind, begin) in enumerate(store.transactions().items()):
            key = f"{KEY}:{number}" if store.has("deduplication") else None
            queue = f"queue.{number}"
            lost = job(queue=queue, idempotency_key=key)
            with telling(kind):
                with pytest.raises(ApplicationError), begin() as connection:  # noqa: PT012 - that is the test
                    store.backend.register(lost, connection=connection)
                    raise ApplicationError
                store.assert_nothing_left(lost)
                found = job(queue=queue, idempotency_key=key, input_ref={"other": 1})
                answer = store.backend.register(found)
                assert (answer.job_id, answer.created, answer.conflict) == (found.id, True, False)
                assert ids_of(store.claim_all(1, queues=[queue])) == [str(found.id)]

    @needs("transactions")
    def test_many_jobs_in_one_transaction(self, store: Store) -> None:
        count = min(store.capabilities.max_register_batch, 1000) + 1
        for kind, begin in store.transactions().items():
            with telling(kind), begin() as connection:
                made = jobs(count)
                answers = store.backend.register_many(made, connection=connection)
                assert [answer.job_id for answer in answers] == [each.id for each in made]
            with telling(kind):
                assert len(store.claim_all(count)) == count

    @needs("transactions", "deduplication")
    def test_a_duplicate_is_answered_in_a_transaction_too(self, store: Store) -> None:
        for number, (kind, begin) in enumerate(store.transactions().items()):
            key = f"{KEY}:{number}"
            holder, new = job(idempotency_key=key), job()
            store.register(holder)
            with telling(kind), begin() as connection:
                same = job(idempotency_key=key)
                other = job(idempotency_key=key, input_ref={"other": 1})
                answers = store.backend.register_many([same, new, other], connection=connection)
                assert [answer.job_id for answer in answers] == [holder.id, new.id, holder.id]
                assert [answer.created for answer in answers] == [False, True, False]
                assert [answer.conflict for answer in answers] == [False, False, True]
            with telling(kind):
                assert sorted(ids_of(store.claim_all(2))) == sorted([str(holder.id), str(new.id)])

    @needs("transactions", "deduplication")
    @pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
    def test_a_duplicate_of_an_open_transaction_waits_for_its_end(self, store: Store, commits: bool) -> None:
        """Told "exists" too early, it would be the one registration that nobody makes."""
        for number, (kind, begin) in enumerate(store.transactions().items()):
            key = f"{KEY}:{number}"
            first, second = job(idempotency_key=key), job(idempotency_key=key)
            register = partial(store.register, second, client=store.another_client())
            with telling(kind):
                answer = _answer_to_the_second(store, begin, first, commits, register)
                assert isinstance(answer, Registration), f"raised {answer!r}"
                winner = first if commits else second
                assert (answer.job_id, answer.created) == (winner.id, not commits)
                assert ids_of(store.claim_all(1)) == [str(winner.id)]
                assert store.claim(10) == []

    @needs("transactions", "deduplication")
    @pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
    def test_of_two_transactions_with_one_key_the_second_waits(self, store: Store, commits: bool) -> None:
        for number, (kind, begin) in enumerate(store.transactions().items()):
            key = f"{KEY}:{number}"
            first, second = job(idempotency_key=key), job(idempotency_key=key)

            def register(begin: Open = begin, second: Job = second) -> list[Registration]:
                with begin() as connection:
                    return [store.backend.register(second, connection=connection)]

            with telling(kind):
                answer = _answer_to_the_second(store, begin, first, commits, register)
                winner = first if commits else second
                if isinstance(answer, Registration):
                    assert (answer.job_id, answer.created) == (winner.id, not commits)
                else:  # what a transaction is told whose snapshot is older than the other's commit
                    assert commits, f"raised {answer!r}"
                    assert isinstance(answer, StoreError), f"raised {answer!r}"
                assert ids_of(store.claim_all(1)) == [str(winner.id)]
                assert store.claim(10) == []

    @needs("transactions")
    def test_the_commit_wakes_a_waiting_worker(self, store: Store) -> None:
        for kind, begin in store.transactions().items():
            with telling(kind):
                with begin() as connection:
                    waiter = Waiter(store, store.driver)
                    store.backend.register(job(), connection=connection)
                assert waiter.join() is True
                assert len(store.claim_all(1)) == 1

    @needs("transactions")
    def test_the_same_from_asyncio(self, store: Store) -> None:
        for number, (kind, begin) in enumerate(store.async_transactions().items()):
            queue = f"queue.{number}"
            committed, rolled_back = job(queue=queue), job(queue=queue)
            with telling(kind):
                asyncio.run(_commit_and_roll_back(store, begin, committed, rolled_back))
                assert ids_of(store.claim_all(1, queues=[queue])) == [str(committed.id)]
                assert store.claim(10, queues=[queue]) == []

    def test_a_stranger_as_connection_is_refused(self, store: Store) -> None:
        made = job()
        with pytest.raises(Unsupported):
            store.backend.register(made, connection=object())
        store.assert_nothing_left(made)

    @lacks("transactions")
    def test_without_transactions_a_connection_is_refused(self, store: Store) -> None:
        made = job()
        with sqlite3.connect(":memory:") as connection:
            connection.execute("CREATE TABLE business (id)")
            connection.execute("BEGIN")
            with pytest.raises(Unsupported):
                store.backend.register(made, connection=connection)
        store.assert_nothing_left(made)


async def _commit_and_roll_back(store: Store, begin: OpenAsync, committed: Job, rolled_back: Job) -> None:
    backend = AsyncBackend(store.backend)
    async with begin() as connection:
        assert (await backend.register(committed, connection=connection)).created
    with pytest.raises(ApplicationError):  # noqa: PT012 - that is the test
        async with begin() as connection:
            await backend.register(rolled_back, connection=connection)
            raise ApplicationError


def _answer_to_the_second(
    store: Store, begin: Open, first: Job, commits: bool, register: Callable[[], list[Registration]]
) -> Registration | BaseException:
    """What `register` answers, in a thread of its own, while `first` is not committed yet."""
    answers: list[Registration | BaseException] = []

    def run() -> None:
        try:
            answers.extend(register())
        except BaseException as error:
            answers.append(error)

    waiting = threading.Thread(target=run, daemon=True)
    with suppress(ApplicationError), begin() as connection:
        store.backend.register(first, connection=connection)
        waiting.start()
        waiting.join(0.2)  # the longer this is, the surer an answer that is given too early is seen
        assert answers == [], f"answered while the first transaction was still open: {answers}"
        if not commits:
            raise ApplicationError
    waiting.join(store.harness.patience.total_seconds())
    assert answers, "never answered"
    return answers[0]


@contextmanager
def telling(kind: str) -> Generator[None]:
    """What fails in the block says with which kind of connection."""
    try:
        yield
    except (AssertionError, JobContractError) as error:
        error.add_note(f"with a connection of kind {kind!r}")
        raise

"""`HostsTables`: further tables beside the jobs, in transactions of the store's own and of its callers."""

from __future__ import annotations

import threading

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import through
from jobcontract.conformance.store import Store
from jobcontract.conformance.transactions import ApplicationError, telling
from jobcontract.conformance.wait import Waiter
from jobcontract.connections import bind, run_steps
from jobcontract.errors import StoreError
from jobcontract.side_doors import HostsTables, Row, Statement, Transaction

TABLE = "conformance_notes"
TOPIC = "a topic of the suite"  # no queue can be called like that


class Notes:
    """A table of one column, made through the door."""

    def __init__(self, host: HostsTables) -> None:
        self._host = host
        self._name = host.table(TABLE)

    def create(self) -> None:
        with self._host.transaction() as transaction:
            self.run(transaction, f"CREATE TABLE {self._name} (note text NOT NULL)")

    def write(self, transaction: Transaction, note: str) -> None:
        self.run(transaction, f"INSERT INTO {self._name} VALUES (%s)", note)

    def read(self, transaction: Transaction) -> list[str]:
        return [note for (note,) in self.run(transaction, f"SELECT note FROM {self._name} ORDER BY note")]

    def committed(self) -> list[str]:
        with self._host.transaction() as transaction:
            return self.read(transaction)

    @staticmethod
    def run(transaction: Transaction, sql: str, *parameters: object) -> list[Row]:
        if transaction.dialect == "sqlite":
            sql = sql.replace("%s", "?")
        return transaction.run(Statement(sql, parameters))


def notes_in(store: Store) -> Notes:
    """The table, made."""
    notes = Notes(store.hosting)
    notes.create()
    return notes


class HostingChapter(Chapter):
    """The side door `HostsTables`: what an outbox and the state of a migration stand on."""

    @through(HostsTables)
    def test_a_block_commits(self, store: Store) -> None:
        notes = notes_in(store)
        with store.hosting.transaction() as transaction:
            notes.write(transaction, "a")
            notes.write(transaction, "b")
            assert notes.read(transaction) == ["a", "b"], "a block does not see its own rows"
        assert notes.committed() == ["a", "b"]

    @through(HostsTables)
    def test_a_block_that_raises_rolls_back(self, store: Store) -> None:
        notes = notes_in(store)
        with pytest.raises(ApplicationError), store.hosting.transaction() as transaction:  # noqa: PT012
            notes.write(transaction, "a")
            raise ApplicationError
        assert notes.committed() == []

    @through(HostsTables)
    def test_a_statement_that_fails_is_a_store_error_and_undoes_the_block(self, store: Store) -> None:
        notes = notes_in(store)
        with pytest.raises(StoreError), store.hosting.transaction() as transaction:  # noqa: PT012
            notes.write(transaction, "a")
            notes.run(transaction, "SELECT nothing FROM nowhere")
        assert notes.committed() == []
        with store.hosting.transaction() as transaction:
            notes.write(transaction, "b")
        assert notes.committed() == ["b"], "the connection did not outlive the failure"

    @through(HostsTables)
    def test_a_block_sees_what_others_committed_and_nothing_else(self, store: Store) -> None:
        """READ COMMITTED, or there is one writer and the others wait for it."""
        notes = notes_in(store)
        other = store.another_client()
        assert isinstance(other, HostsTables)
        theirs = Notes(other)
        began, commit = threading.Event(), threading.Event()

        def write() -> None:
            with other.transaction() as transaction:
                theirs.write(transaction, "theirs")
                began.set()
                assert commit.wait(store.harness.patience.total_seconds())

        writing = threading.Thread(target=write, daemon=True)
        try:
            with store.hosting.transaction() as transaction:
                assert notes.read(transaction) == []
                writing.start()
                if began.wait(0.5):  # not with one writer
                    assert notes.read(transaction) == [], "a row is seen that is not committed"
                    commit.set()
                    writing.join(store.harness.patience.total_seconds())
                    assert notes.read(transaction) == ["theirs"], "the block goes on in an old snapshot"
                else:
                    assert notes.read(transaction) == []
        finally:
            commit.set()  # whatever was found: the other thread must not wait into the next test
        writing.join(store.harness.patience.total_seconds())
        assert notes.committed() == ["theirs"]

    @through(HostsTables)
    def test_a_store_that_is_not_initialised_hosts_nothing(self, store: Store) -> None:
        with store.another_store() as clients:
            client = clients[0]
            assert isinstance(client, HostsTables)
            with pytest.raises(StoreError, match="jobctl init"), client.transaction():
                pytest.fail("a transaction began")

    @through(HostsTables)
    def test_a_callers_connection_reaches_the_tables(self, store: Store) -> None:
        notes = notes_in(store)
        for kind, begin in store.transactions().items():
            with telling(kind):
                with begin() as connection:
                    transaction = bind(connection)
                    assert transaction.dialect == store.hosting.dialect
                    run_steps(transaction, store.hosting.joining_steps(transaction.client))
                    notes.write(transaction, kind)
                assert kind in notes.committed()
                with pytest.raises(ApplicationError), begin() as connection:  # noqa: PT012
                    notes.write(bind(connection), f"{kind}, rolled back")
                    raise ApplicationError
                assert f"{kind}, rolled back" not in notes.committed()

    @through(HostsTables)
    def test_the_commit_wakes_who_waits_for_a_topic(self, store: Store) -> None:
        store.needs_listening()
        wake = store.hosting.wake(TOPIC)
        if wake is None:  # nobody can be woken, and the door says so
            return
        waiter = Waiter(store, store.another_client(), TOPIC)

        def woken() -> bool:  # until somebody waits there is nobody to wake
            with store.hosting.transaction() as transaction:
                transaction.run(wake)
            return waiter.is_over()

        store.until(woken, "who waits for the topic is never woken")
        assert waiter.join() is True

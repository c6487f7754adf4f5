"""What a driver says of itself: consistent, and in the words of the contract."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.store import NOTHING, QUEUE, Store, failure, job, jobs, leases_of
from jobcontract.contract import ConnectionLease, Deduplication, Durability, TimedLease, Transactional
from jobcontract.side_doors import Installation, JoinsTransactions, side_doors_of


class CapabilitiesChapter(Chapter):
    """The declaration itself."""

    def test_the_store_is_named_with_its_version(self, store: Store) -> None:
        name = store.capabilities.store
        assert name == name.strip()
        assert any(character.isdigit() for character in name), f"{name!r} has no version"

    def test_the_side_doors_are_those_that_the_driver_has(self, store: Store) -> None:
        assert store.capabilities.side_doors == side_doors_of(store.driver)

    def test_joining_transactions_is_declared_when_it_is_possible_and_only_then(self, store: Store) -> None:
        declared = store.capabilities.transactional is Transactional.SAME
        assert declared == isinstance(store.driver, JoinsTransactions)
        if isinstance(store.driver, JoinsTransactions):
            assert store.driver.dialect in ("postgresql", "sqlite")

    def test_values_are_of_their_kinds_and_in_their_ranges(self, store: Store) -> None:
        found = store.capabilities
        assert isinstance(found.deduplication, Deduplication)
        assert isinstance(found.durability, Durability)
        assert isinstance(found.transactional, Transactional)
        assert isinstance(found.lease, TimedLease | ConnectionLease)
        assert found.lease.longest > timedelta()
        if isinstance(found.lease, TimedLease):
            assert timedelta() < found.lease.shortest <= found.lease.longest
        if found.scheduling is not None:
            assert timedelta() < found.scheduling.resolution
            assert found.scheduling.longest is None or found.scheduling.longest > found.scheduling.resolution
        assert 1 <= found.priority_levels <= 10
        assert found.max_register_batch >= 1
        assert found.max_input_ref_bytes >= 1024

    def test_notes_are_sentences(self, store: Store) -> None:
        for note in store.capabilities.notes:
            assert note == note.strip()
            assert "\n" not in note

    def test_the_declaration_is_the_same_for_every_client(self, store: Store) -> None:
        assert store.another_client().capabilities == store.capabilities

    def test_installing_again_has_nothing_to_do(self, store: Store) -> None:
        if isinstance(store.driver, Installation):
            assert store.driver.install(dry_run=True) == []
            assert store.driver.install() == []

    def test_several_may_install_at_once(self, store: Store) -> None:
        with store.another_store() as clients:
            first = clients[0]
            if not isinstance(first, Installation):
                return
            planned = first.install(dry_run=True)
            assert bool(planned) != store.harness.installed, "a dry run on an empty store has steps"
            assert first.install(dry_run=True) == planned, "a dry run changed the store"
            store.at_once(*(client.install for client in clients if isinstance(client, Installation)))
            assert [client.install() for client in clients if isinstance(client, Installation)] == [
                [] for _ in clients
            ]
            record = job().to_record()
            assert first.register([record])[0].created
            assert [each.record.id for each in clients[-1].claim([QUEUE], 1, store.long_lease)] == [record.id]

    def test_a_driver_does_not_log(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            store.register(*jobs(3, max_attempts=1))
            done, failed, released = leases_of(store.claim_all(3))
            store.driver.complete([done])
            store.driver.complete([done])
            store.driver.fail([failure(failed, permanent=True)])
            store.driver.release([released], NOTHING)
            store.driver.wait([QUEUE], NOTHING)
            store.rescue_all()
        package = type(store.driver).__module__.partition(".")[0]
        assert [each.getMessage() for each in caplog.records if each.name.partition(".")[0] == package] == []

    def test_closing_twice_is_fine(self, store: Store) -> None:
        client = store.another_client()
        client.close()
        client.close()

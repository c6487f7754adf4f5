"""What a driver says of itself: consistent, and in the words of the contract."""

from __future__ import annotations

from datetime import timedelta

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.store import Store
from jobcontract.contract import (
    ConnectionLease,
    Deduplication,
    Durability,
    Installation,
    JoinsTransactions,
    TimedLease,
    Transactional,
    side_doors_of,
)


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

    def test_closing_twice_is_fine(self, store: Store) -> None:
        client = store.another_client()
        client.close()
        client.close()

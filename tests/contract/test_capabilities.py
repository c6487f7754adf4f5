"""`Capabilities` as data: one declaration that users, this suite and the migration plan read alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import get_args

import pytest

from jobcontract.contract import (
    FEATURES,
    Capabilities,
    ConnectionLease,
    Deduplication,
    Durability,
    Feature,
    Scheduling,
    State,
    TimedLease,
    Transactional,
)
from jobcontract.side_doors import Page, QueueStats, StoredJob, side_doors_of

MINUTE = timedelta(minutes=1)
BARE = Capabilities(
    store="Bare 1.0",
    deduplication=Deduplication.NONE,
    lease=ConnectionLease(longest=MINUTE),
    scheduling=None,
    priority_levels=1,
    durability=Durability.MEMORY,
    transactional=Transactional.NONE,
    max_register_batch=100,
    max_input_ref_bytes=65_536,
)


def test_a_bare_store_has_no_feature() -> None:
    assert BARE.lacking(FEATURES) == sorted(FEATURES)


@pytest.mark.parametrize(
    ("capabilities", "feature"),
    [
        (replace(BARE, deduplication=Deduplication.RETENTION), "deduplication"),
        (replace(BARE, deduplication=Deduplication.OUTBOX), "deduplication"),
        (replace(BARE, lease=TimedLease(MINUTE, MINUTE)), "timed_lease"),
        (replace(BARE, scheduling=Scheduling(MINUTE)), "scheduling"),
        (replace(BARE, priority_levels=2), "priorities"),
        (replace(BARE, durability=Durability.FSYNC), "fsync"),
        (replace(BARE, transactional=Transactional.SAME), "transactions"),
        (replace(BARE, transactional=Transactional.OUTBOX), "transactions"),
        *(
            (replace(BARE, side_doors=frozenset[Feature]({door})), door)
            for door in ("cancel", "lookup", "move", "pause", "prune", "requeue", "stats")
        ),
    ],
)
def test_each_feature_is_read_from_its_own_value(capabilities: Capabilities, feature: Feature) -> None:
    assert capabilities.has(feature)
    assert capabilities.lacking([feature]) == []
    assert capabilities.lacking(FEATURES) == sorted(set(FEATURES) - {feature})


@pytest.mark.parametrize("durability", [Durability.QUORUM, Durability.WINDOW, Durability.MEMORY])
def test_only_fsync_is_fsync(durability: Durability) -> None:
    assert not replace(BARE, durability=durability).has("fsync")


def test_the_list_of_features_is_the_type_of_features() -> None:
    assert get_args(Feature) == FEATURES
    assert list(FEATURES) == sorted(FEATURES)


class Everything:
    def get(self, job_id: str) -> StoredJob | None: ...
    def jobs(self, page: Page) -> list[StoredJob]: ...  # type: ignore[empty-body]
    def stats(self) -> list[QueueStats]: ...  # type: ignore[empty-body]
    def cancel(self, job_ids: Sequence[str]) -> list[State | None]: ...  # type: ignore[empty-body]
    def requeue(self, job_ids: Sequence[str]) -> list[State | None]: ...  # type: ignore[empty-body]
    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int: ...  # type: ignore[empty-body]
    def pause(self, queue: str) -> None: ...
    def resume(self, queue: str) -> None: ...


class HalfLookup:
    def get(self, job_id: str) -> StoredJob | None: ...


class Nothing:
    pass


def test_side_doors_are_found_by_their_methods() -> None:
    assert side_doors_of(Everything()) == {"cancel", "lookup", "pause", "prune", "requeue", "stats"}
    assert side_doors_of(HalfLookup()) == frozenset()
    assert side_doors_of(Nothing()) == frozenset()

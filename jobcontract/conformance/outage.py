"""A connection that breaks: an error of ours, nothing lost, and the same client works again."""

from __future__ import annotations

from contextlib import suppress

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.store import Store, ids_of, job
from jobcontract.errors import StoreUnavailable


class OutageChapter(Chapter):
    """What the harness's `disconnect` does to a client."""

    def test_a_client_works_again_after_its_connections_broke(self, store: Store) -> None:
        made = job()
        store.register(made)
        store.disconnect(store.driver)
        assert _claim_in_the_end(store, 1) == [str(made.id)]

    def test_what_was_registered_before_is_still_there(self, store: Store) -> None:
        made = [job() for _ in range(5)]
        client = store.another_client()
        store.register(*made, client=client)
        store.disconnect(client)
        assert sorted(_claim_in_the_end(store, 5)) == sorted(str(each.id) for each in made)


def _claim_in_the_end(store: Store, count: int) -> list[str]:
    """The ids of `count` jobs, from a client that may have to notice its broken connections first."""
    claimed: list[str] = []

    def enough() -> bool:
        with suppress(StoreUnavailable):
            claimed.extend(ids_of(store.claim(count)))
        return len(claimed) >= count

    store.until(enough, lambda: f"{len(claimed)} of {count} jobs could be claimed: the client stays broken")
    return claimed

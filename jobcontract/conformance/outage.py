"""A connection that breaks: an error of ours, nothing lost, and the same client works again."""

from __future__ import annotations

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.store import Store, ids_of, job
from jobcontract.contract import ClaimedRecord
from jobcontract.errors import StoreUnavailable


class OutageChapter(Chapter):
    """What the harness's `disconnect` does to a client."""

    def test_a_client_works_again_after_its_connections_broke(self, store: Store) -> None:
        made = job()
        store.register(made)
        store.disconnect(store.driver)

        def claim() -> list[ClaimedRecord]:
            try:
                return store.claim(10)
            except StoreUnavailable:
                return []

        assert ids_of(store.until(claim, "the client stays broken")) == [str(made.id)]

    def test_what_was_registered_before_is_still_there(self, store: Store) -> None:
        made = [job() for _ in range(5)]
        client = store.another_client()
        store.register(*made, client=client)
        store.disconnect(client)
        assert sorted(ids_of(store.claim_all(5))) == sorted(str(each.id) for each in made)

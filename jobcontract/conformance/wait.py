"""`Driver.wait`: a hint, but one that comes."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import needs
from jobcontract.conformance.store import NOTHING, Store, job
from jobcontract.contract import Driver

SHORT = timedelta(milliseconds=100)


class Waiter:
    """A thread that waits for work, for longer than the test is patient."""

    def __init__(self, store: Store, client: Driver, queue: str = "default") -> None:
        self._patience = store.harness.patience.total_seconds()
        self.answer: bool | None = None
        self.error: BaseException | None = None

        def wait() -> None:
            try:
                self.answer = client.wait([queue], store.harness.patience * 2)
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=wait, daemon=True)
        self._thread.start()

    def is_over(self) -> bool:
        """Whether `wait` has returned or raised."""
        return not self._thread.is_alive()

    def join(self) -> bool:
        """What `wait` said; the test fails when it did not return in time."""
        self._thread.join(self._patience)
        assert not self._thread.is_alive(), "wait was not woken: it goes on for its whole timeout"
        assert self.error is None, f"wait raised {self.error!r}"
        assert self.answer is not None
        return self.answer


class WaitChapter(Chapter):
    """Being woken, and not being woken."""

    def test_with_nothing_to_do_it_comes_to_its_timeout(self, store: Store) -> None:
        started = time.monotonic()
        assert store.driver.wait(["default"], SHORT) is False
        assert time.monotonic() - started >= SHORT.total_seconds() / 2

    def test_no_timeout_is_a_look(self, store: Store) -> None:
        assert store.driver.wait(["default"], NOTHING) is False

    def test_with_work_at_hand_it_returns_at_once(self, store: Store) -> None:
        store.register(job())
        assert Waiter(store, store.driver).join() is True

    def test_a_registration_of_another_client_wakes_it(self, store: Store) -> None:
        waiter = Waiter(store, store.driver)
        store.register(job(), client=store.another_client())
        assert waiter.join() is True
        assert len(store.claim_all(1)) == 1

    def test_it_is_woken_time_and_again(self, store: Store) -> None:
        other = store.another_client()
        for _ in range(5):
            waiter = Waiter(store, store.driver)
            store.register(job(), client=other)
            assert waiter.join() is True
            assert store.driver.complete([store.claim_one().lease])[0].applied

    def test_it_hears_each_of_its_queues(self, store: Store) -> None:
        other = store.another_client()
        for queue in ("a", "b"):
            waiter = Waiter(store, store.driver, queue)
            store.register(job(queue=queue), client=other)
            assert waiter.join() is True

    def test_many_workers_may_wait_at_once(self, store: Store) -> None:
        waiters = [Waiter(store, store.driver) for _ in range(8)]
        store.register(*(job() for _ in range(8)))
        assert all(waiter.join() for waiter in waiters)

    def test_closing_the_client_ends_a_wait(self, store: Store) -> None:
        client = store.another_client()
        waiter = Waiter(store, client)

        def closed() -> bool:
            client.close()  # again and again, for the thread may not have come to its wait before the first
            return waiter.is_over()

        store.until(closed, "close does not wake a wait under way")

    @needs("pause")
    def test_resuming_a_queue_wakes_its_workers(self, store: Store) -> None:
        pausing = store.pausing
        pausing.pause("default")
        store.register(job())
        waiter = Waiter(store, store.driver)
        pausing.resume("default")
        assert waiter.join() is True
        assert len(store.claim_all(1)) == 1

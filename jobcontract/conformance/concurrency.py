"""Several clients at once: no two valid leases of one job, whoever asks and whenever."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from functools import partial

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import needs
from jobcontract.conformance.store import NOTHING, Store, failure, jobs, leases_of
from jobcontract.contract import Driver, Lease, State


class ConcurrencyChapter(Chapter):
    """Promise 3, as far as one process can show it."""

    def test_many_claimers_share_the_jobs_without_claiming_one_twice(self, store: Store) -> None:
        count, claimers = store.harness.claimed_jobs, store.harness.claimers
        made = jobs(count)
        store.backend.register_many(made)
        clients = [store.another_client() for _ in range(5)]

        def claim_until_empty(client: Driver, seed: int) -> list[str]:
            choose, claimed, held, empty = random.Random(seed), list[str](), list[Lease](), 0
            while empty < 3:  # a claim that finds every row locked by others is empty too
                leases = leases_of(store.claim(choose.randint(1, 50), client=client))
                empty = 0 if leases else empty + 1
                # Those of the round before: held for a while, so that a second claim would show.
                verdicts = client.complete(held) if held else []
                assert all(verdict.state is State.DONE for verdict in verdicts), (
                    "a valid lease was taken away"
                )
                claimed += [lease.job_id for lease in held]
                held = leases
            return claimed

        rounds = store.at_once(
            *(partial(claim_until_empty, clients[number % 5], number) for number in range(claimers))
        )
        times = Counter(identifier for claimed in rounds for identifier in claimed)
        twice = [identifier for identifier, count in times.items() if count > 1]
        assert not twice, f"{len(twice)} of {count} jobs were claimed more than once"
        left = count - len(times)
        assert len(store.claim_all(left) if left else []) == left
        assert store.claim(10) == []

    @needs("timed_lease")
    def test_valid_leases_of_a_job_never_overlap(self, store: Store) -> None:
        """Short leases that run out, rescuers that race each other, and workers that hold on.

        A rescue that looks first and writes later takes a job from the worker who claimed it in between.
        """
        store.register(*jobs(20, max_attempts=1000))
        clients = [store.another_client() for _ in range(4)]
        over = threading.Event()
        deadline = time.monotonic() + store.harness.patience.total_seconds() / 2
        rescued = Counter[int]()

        def rescue(client: Driver, number: int) -> list[Lease]:
            while not over.is_set():
                rescued[number] += client.rescue(100).ready
            return []

        def settle(client: Driver, leases: list[Lease], *, release: bool) -> None:
            verdicts = client.extend(leases, store.long_lease)
            assert all(verdict.applied for verdict in verdicts), "a valid lease was taken away"
            if release:
                verdicts = client.release(leases, NOTHING)
            else:
                verdicts = client.fail([failure(lease) for lease in leases])
            assert all(verdict.state is State.READY for verdict in verdicts), "a valid lease was taken away"

        def work(client: Driver, seed: int) -> list[Lease]:
            choose, held, kept = random.Random(seed), deque[list[Lease]](), list[Lease]()
            try:
                while sum(rescued.values()) < 300 and time.monotonic() < deadline:
                    short = choose.random() < 0.5
                    lease = store.shortest_lease if short else store.long_lease
                    leases = leases_of(store.claim(choose.randint(1, 3), lease=lease, client=client))
                    if leases and not short:  # a short one is left to run out
                        held.append(leases)
                        kept += leases
                    if len(held) > 2 or (held and not leases):
                        settle(client, held.popleft(), release=choose.random() < 0.5)
                for leases in held:
                    settle(client, leases, release=True)
            finally:
                over.set()
            return kept

        calls = [partial(rescue, client, number) for number, client in enumerate(clients)]
        calls += [partial(work, client, seed) for seed, client in enumerate(clients)]
        kept = [lease for leases in store.at_once(*calls) for lease in leases]
        assert kept, "no worker got a job"
        assert sum(rescued.values()), "nothing was rescued"
        attempts = Counter((lease.job_id, lease.attempt) for lease in kept)
        assert max(attempts.values()) == 1, "two claims of a job have the same attempt number"

    def test_one_claim_is_settled_in_one_way(self, store: Store) -> None:
        store.register(*jobs(10, max_attempts=1000))
        for claimed in store.claim_all(10):
            lease = claimed.lease
            complete = partial(store.driver.complete, [lease])
            fail = partial(store.driver.fail, [failure(lease, permanent=True)])
            verdicts = store.at_once(complete, fail, complete, fail)
            assert [verdict.applied for (verdict,) in verdicts].count(True) == 1
        assert store.claim(10) == []

    def test_one_client_serves_many_threads(self, store: Store) -> None:
        def go_all_the_way(number: int) -> bool:
            queue = f"queue.{number}"
            for each in jobs(5, queue=queue):
                store.register(each)
                lease = store.claim_one(queues=[queue]).lease
                assert lease.job_id == str(each.id)
                assert store.driver.complete([lease])[0].applied
            return store.claim(10, queues=[queue]) == []

        assert all(store.at_once(*(partial(go_all_the_way, number) for number in range(16))))

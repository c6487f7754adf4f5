"""One store under test: the client that a test speaks with, and what tests do with it all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, NoReturn, TypeVar

from jobcontract.backend import Backend
from jobcontract.conformance.clock import shifted_clock
from jobcontract.conformance.harness import AsyncTransactions, Harness, NotOffered, Transactions
from jobcontract.conformance.selection import NOT_TRIED, leave_out
from jobcontract.contract import (
    Capabilities,
    ClaimedRecord,
    Driver,
    Failure,
    Feature,
    Job,
    Lease,
    Registration,
    State,
    TimedLease,
)
from jobcontract.side_doors import (
    Cancellation,
    HostsTables,
    Installation,
    Lookup,
    MovedJob,
    Notes,
    Pausing,
    Pruning,
    QueueStats,
    Requeue,
    Statistics,
    StoredJob,
)

Result = TypeVar("Result")

QUEUE = "default"
NOTHING = timedelta()
HOUR = timedelta(hours=1)
CREATED = datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
"""Of jobs that come from elsewhere. With milliseconds, which every store keeps."""
_CLOCK_QUEUE = "conformance.clock"


class Seen(NamedTuple):
    """All that the store's side doors tell, as far as it has them: what stays when nothing was changed."""

    jobs: dict[str, StoredJob]
    queues: list[QueueStats]


class Store:
    """A fresh store, a client of it (`driver`) and the same client as users hold it (`backend`)."""

    def __init__(self, harness: Harness, url: str) -> None:
        self.harness = harness
        self.url = url
        self.not_offered: str | None = None
        """What the running test asked the harness for in vain."""
        self._clients: list[Driver] = []
        self._watch: Lease | None = None
        self._registered: list[str] = []
        self.driver = self.another_client()
        if isinstance(self.driver, Installation):
            self.driver.install()
        self.backend = Backend("conformance", lambda: self.driver)

    def close(self) -> None:
        """Close every client."""
        for client in self._clients:
            client.close()

    @property
    def capabilities(self) -> Capabilities:
        return self.driver.capabilities

    def has(self, feature: Feature) -> bool:
        return self.capabilities.has(feature)

    # Clients ----------------------------------------------------------------------------------------------

    def another_client(self) -> Driver:
        """A second client on the same store; where there can only be one, that one."""
        if self._clients and not self.harness.several_clients:
            return self.driver
        client = self.harness.connect(self.url)
        self._clients.append(client)
        return client

    @contextmanager
    def another_store(self) -> Generator[list[Driver]]:
        """Four clients of a second store, which is not installed; one where there can only be one."""
        url = self.harness.create()
        clients: list[Driver] = []
        try:
            clients += [self.harness.connect(url) for _ in range(4 if self.harness.several_clients else 1)]
            yield clients
        finally:
            for client in clients:
                client.close()
            self.harness.destroy(url)

    def client_clock(self, by: timedelta) -> AbstractContextManager[None]:
        """As if the clock of this process, and so of each client in it, were off by `by`."""
        if self.harness.clock == "process":
            self._skip("clock of its own")
        return shifted_clock(by, ("jobcontract", type(self.driver).__module__.partition(".")[0]))

    def needs_listening(self) -> None:
        """Skip the test where `Harness.listens` is False."""
        if not self.harness.listens:
            self._skip("way to hear of a commit")

    def transactions(self) -> Transactions:
        """`Harness.transactions`."""
        return self._offered(lambda: self.harness.transactions(self.url))

    def async_transactions(self) -> AsyncTransactions:
        """`Harness.async_transactions`."""
        return self._offered(lambda: self.harness.async_transactions(self.url))

    def corrupt(self, job_id: object, input_ref: str) -> None:
        """`Harness.corrupt`."""
        self._offered(lambda: self.harness.corrupt(self.url, str(job_id), input_ref))

    def disconnect(self, client: Driver) -> None:
        """`Harness.disconnect`."""
        self._offered(lambda: self.harness.disconnect(client))

    def _offered(self, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except NotOffered as error:
            self._skip(error.what)

    def _skip(self, what: str) -> NoReturn:
        self.not_offered = what
        leave_out(NOT_TRIED, f"the harness has no {what}")

    # Doing ------------------------------------------------------------------------------------------------

    def register(self, *jobs: Job, client: Driver | None = None) -> list[Registration]:
        self._registered += [str(job.id) for job in jobs]
        return (client or self.driver).register([job.to_record() for job in jobs])

    def claim(
        self,
        limit: int = 1,
        *,
        queues: Sequence[str] = (QUEUE,),
        lease: timedelta | None = None,
        client: Driver | None = None,
    ) -> list[ClaimedRecord]:
        """At most `limit` jobs, for a lease that outlives the test unless `lease` says otherwise."""
        return (client or self.driver).claim(queues, limit, lease or self.long_lease)

    def claim_all(
        self,
        count: int,
        *,
        queues: Sequence[str] = (QUEUE,),
        lease: timedelta | None = None,
        client: Driver | None = None,
    ) -> list[ClaimedRecord]:
        """Exactly `count` jobs in the order in which they came, also from a store that gives them in bits."""
        claimed: list[ClaimedRecord] = []

        def enough() -> bool:
            missing = count - len(claimed)
            claimed.extend(self.claim(min(missing, 1000), queues=queues, lease=lease, client=client))
            return len(claimed) == count

        self.until(enough, lambda: f"{len(claimed)} of {count} jobs could be claimed from {list(queues)}")
        return claimed

    def claim_one(self, *, queues: Sequence[str] = (QUEUE,), client: Driver | None = None) -> ClaimedRecord:
        return self.claim_all(1, queues=queues, client=client)[0]

    def run_out(self, leases: Collection[Lease]) -> None:
        """Let `leases`, which are held, come to their end, and return when they have by the store's clock."""
        held = self.driver
        if not isinstance(self.capabilities.lease, TimedLease):
            self.disconnect(held)
            return
        verdicts = held.extend(list(leases), self.shortest_lease)
        assert all(verdict.applied for verdict in verdicts), f"a held lease can't be extended: {verdicts}"
        last = max(verdict.at for verdict in verdicts if verdict.at is not None)
        self.until(lambda: self.now() > last, "the store's clock does not go on")

    def expired(self, count: int = 1, **fields: Any) -> list[Lease]:
        """The leases of `count` new jobs, all run out and not rescued."""
        self.register(*(job(**fields) for _ in range(count)))
        leases = [claimed.lease for claimed in self.claim_all(count)]
        self.run_out(leases)
        return leases

    def rescue_all(self, client: Driver | None = None) -> tuple[int, int]:
        """Rescue until nothing is left to rescue: how many went back to ready, how many died."""
        ready = dead = 0
        while any(rescued := (client or self.driver).rescue(100)):
            ready, dead = ready + rescued.ready, dead + rescued.dead
        return ready, dead

    def assert_rescued(self, ready: int = 0, dead: int = 0) -> None:
        """Rescue what there is, which is so much. A store whose lease is a connection does it by itself."""
        rescued = self.rescue_all()
        if self.has("timed_lease"):
            assert rescued == (ready, dead), f"{rescued} rescued to ready and to dead, not {(ready, dead)}"

    def into(self, state: State, **fields: Any) -> Job:
        """A new job of the default queue, brought into `state`. The queue has no other ready job."""
        made = job(**fields)
        self.register(made)
        if state is State.READY:
            return made
        if state is State.CANCELLED:
            assert self.cancellation.cancel([str(made.id)]) == [State.CANCELLED]
            return made
        lease = self.claim_one(queues=[made.queue]).lease
        assert lease.job_id == str(made.id)
        if state is State.DONE:
            assert self.driver.complete([lease])[0].applied
        elif state is State.DEAD:
            assert self.driver.fail([failure(lease, "spoilt", permanent=True)])[0].state is State.DEAD
        return made

    # The driver's side doors; a test that uses one has said so with `needs`.

    @property
    def lookup(self) -> Lookup:
        assert isinstance(self.driver, Lookup), "the driver declares the door and has no such methods"
        return self.driver

    @property
    def pausing(self) -> Pausing:
        assert isinstance(self.driver, Pausing), "the driver declares the door and has no such methods"
        return self.driver

    @property
    def cancellation(self) -> Cancellation:
        assert isinstance(self.driver, Cancellation), "the driver declares the door and has no such methods"
        return self.driver

    @property
    def requeueing(self) -> Requeue:
        assert isinstance(self.driver, Requeue), "the driver declares the door and has no such methods"
        return self.driver

    @property
    def pruning(self) -> Pruning:
        assert isinstance(self.driver, Pruning), "the driver declares the door and has no such methods"
        return self.driver

    @property
    def statistics(self) -> Statistics:
        assert isinstance(self.driver, Statistics), "the driver declares the door and has no such methods"
        return self.driver

    @property
    def hosting(self) -> HostsTables:
        assert isinstance(self.driver, HostsTables), "the test has not said that it goes through this door"
        return self.driver

    @property
    def notes(self) -> Notes:
        return self.notes_of(self.driver)

    def notes_of(self, client: Driver) -> Notes:
        assert isinstance(client, Notes), "the driver declares the door and has no such methods"
        return client

    # Looking ----------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The store's clock, read from the end of a lease of known length."""
        limits = self.capabilities.lease
        if not isinstance(limits, TimedLease):  # it is never renewed, and says only when it began
            self.register(job(queue=_CLOCK_QUEUE))
            began = self.claim_one(queues=[_CLOCK_QUEUE]).lease
            assert self.driver.complete([began])[0].applied
            return began.expires_at - limits.longest
        if self._watch is None:
            self.register(job(queue=_CLOCK_QUEUE))
            self._watch = self.claim_one(queues=[_CLOCK_QUEUE]).lease
        at = self.driver.extend([self._watch], self.long_lease)[0].at
        assert at is not None, "a held lease can't be extended, or extend does not tell the new expiry"
        return at - self.long_lease

    def see(self) -> Seen:
        """All that the side doors show now."""
        jobs: dict[str, StoredJob] = {}
        if self.has("lookup"):
            found = {
                identifier: self.lookup.get(identifier) for identifier in dict.fromkeys(self._registered)
            }
            jobs = {identifier: stored for identifier, stored in found.items() if stored is not None}
        queues: list[QueueStats] = []
        if self.has("stats"):
            queues = [
                row._replace(oldest_ready=None)
                for row in self.statistics.stats()
                if row.queue != _CLOCK_QUEUE
            ]
        return Seen(
            {key: stored for key, stored in jobs.items() if stored.record.queue != _CLOCK_QUEUE}, queues
        )

    def stored(self, job_id: object) -> StoredJob:
        """The job, by `Lookup`."""
        found = self.lookup.get(str(job_id))
        assert found is not None, f"job {job_id} is not found"
        return found

    def assert_nothing_left(self, *jobs: Job) -> None:
        """No trace of `jobs`: none to claim, none to look up, no queue in the statistics, no key taken."""
        queues = list(dict.fromkeys(each.queue for each in jobs)) or [QUEUE]
        assert self.claim(100, queues=queues) == []
        for each in jobs:
            if self.has("lookup"):
                assert self.lookup.get(str(each.id)) is None
        if self.has("stats"):
            assert [row for row in self.statistics.stats() if row.queue in queues] == []

    # Time -------------------------------------------------------------------------------------------------

    @property
    def long_lease(self) -> timedelta:
        """A lease that outlives every test."""
        return min(HOUR, self.capabilities.lease.longest)

    @property
    def shortest_lease(self) -> timedelta:
        limits = self.capabilities.lease
        return limits.shortest if isinstance(limits, TimedLease) else limits.longest

    @property
    def resolution(self) -> timedelta:
        """How exactly the store keeps instants."""
        scheduling = self.capabilities.scheduling
        return max(scheduling.resolution if scheduling else NOTHING, timedelta(milliseconds=1))

    def until(self, condition: Callable[[], Result], failed: str | Callable[[], str]) -> Result:
        """The first true answer of `condition`; fails when there is none within the harness's patience."""
        deadline = time.monotonic() + self.harness.patience.total_seconds()
        pause = 0.001
        while not (result := condition()):
            assert time.monotonic() < deadline, failed if isinstance(failed, str) else failed()
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
        return result

    def at_once(self, *calls: Callable[[], Result]) -> list[Result]:
        """What `calls` answer when each runs in its own thread, all let go at the same moment."""
        answers: dict[int, Result] = {}
        errors: list[BaseException] = []
        start = threading.Barrier(len(calls))

        def run(position: int, call: Callable[[], Result]) -> None:
            try:
                start.wait()
                answers[position] = call()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(calls)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + self.harness.patience.total_seconds()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if errors:
            raise errors[0]
        assert len(answers) == len(calls), (
            f"{len(calls) - len(answers)} of {len(calls)} calls did not come back"
        )
        return [answers[position] for position in range(len(calls))]


def job(**fields: Any) -> Job:
    """A job that says nothing in particular."""
    return Job(**{"kind": "conformance.work", **fields})


def jobs(count: int, **fields: Any) -> list[Job]:
    """`count` of them, told apart by their input."""
    return [job(input_ref={"number": number}, **fields) for number in range(count)]


def failure(
    lease: Lease, error: str = "it failed", *, retry_in: timedelta = NOTHING, permanent: bool = False
) -> Failure:
    """A failure of the job that is leased, to be retried at once."""
    return Failure(lease, error, retry_in, permanent)


def moved(
    made: Job,
    state: State = State.READY,
    *,
    attempt: int = 0,
    refunded: int = 0,
    last_error: str | None = None,
    finished_at: datetime | None = None,
) -> MovedJob:
    """`made` as another store would send it."""
    record = made.to_record()
    if record.run_at is None:
        record = record._replace(run_at=CREATED)
    return MovedJob(record, state, attempt, refunded, CREATED, finished_at, last_error)


def leases_of(claimed: Iterable[ClaimedRecord]) -> list[Lease]:
    """The leases alone."""
    return [each.lease for each in claimed]


def ids_of(claimed: Iterable[ClaimedRecord]) -> list[str]:
    """The ids alone."""
    return [each.record.id for each in claimed]

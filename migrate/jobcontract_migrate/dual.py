"""The driver that `get_backend()` gives when a control store is configured: it uses the store in which jobs
live, or both while they move.

One claimable home for each job, dual reading, single writing: a job is registered in one place and claimed
where it is. A composition of the contract: it knows drivers, and no store.

A claim's token carries the name of its store, so that it is settled there, whatever has moved meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TypeVar, cast

from jobcontract.config import Settings, StoreSettings
from jobcontract.contract import (
    Capabilities,
    ClaimedRecord,
    Driver,
    Failure,
    Feature,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    State,
    TimedLease,
    Verdict,
)
from jobcontract.errors import StoreClosed, StoreError, StoreUnavailable, Unsupported
from jobcontract.side_doors import (
    Cancellation,
    CarriesCopies,
    DeadLetters,
    Dialect,
    HostsTables,
    Installation,
    JoinsTransactions,
    KnowsKeys,
    Lookup,
    MovesOut,
    Notes,
    NotesRead,
    Page,
    Pausing,
    Pruning,
    QueueStats,
    Requeue,
    Statement,
    Statistics,
    Step,
    Steps,
    StoredJob,
)
from jobcontract_migrate.broker import BrokerDriver
from jobcontract_migrate.control import Control
from jobcontract_migrate.holding import Holding
from jobcontract_migrate.inbox import that_count
from jobcontract_migrate.route import Patience, Route, Routes

Item = TypeVar("Item")
Result = TypeVar("Result")

_SEPARATOR = "/"  # no backend's name has one
_SLICE = timedelta(milliseconds=200)
"""How long one of two stores is waited for before it is the other one's turn."""
_LEFT_ALONE = 2.0
"""Seconds for which a store that is away is not asked again while the other one gives jobs."""
_IN_TRANSIT = (State.MOVING, State.MOVED)


def open_routed(
    settings: Settings, default: StoreSettings, open_store: Callable[[StoreSettings], Driver]
) -> RoutedDriver:
    """The driver that follows the control store of `settings`. Contacts nothing. Raises `ConfigError`."""
    store = settings.control_store()
    assert store is not None, "the registry asks for it only when there is one"
    control = Control(open_store(store), store.name)
    return RoutedDriver(control, default.name, lambda name: open_store(settings.store(name)))


class RoutedDriver:
    """`Driver` with every side door that a store may have; a store that has it not is answered for with
    `Unsupported`, and `capabilities` says which.
    """

    def __init__(self, control: Control, default: str, open_store: Callable[[str], Driver]) -> None:
        self._control = control
        self._open_store = open_store
        self._opening = threading.Lock()
        self._drivers: dict[str, Driver] = {}
        self._brokers: dict[str, BrokerDriver] = {}
        """Those of them that are brokers. It is asked with each claim and registration, and `isinstance` of a
        protocol takes tens of microseconds on Python 3.11."""
        self._away: dict[str, float] = {}
        self._mending = threading.Lock()
        self._turn = count()
        self._closed = False
        self._holding = Holding()
        self._queues_seen: set[tuple[str, str]] = set()
        self.routes = Routes(control, default, self._holds)
        """Where jobs live, as this client knows it."""
        first = self.store(default)
        self._guesses = (
            default == control.name and isinstance(first, JoinsTransactions) and first.dialect == "sqlite"
        )

    def store(self, name: str) -> Driver:
        """The driver of the backend `name`. Contacts nothing."""
        with self._opening:
            if name not in self._drivers:
                driver = self._drivers[name] = self._open_store(name)
                if isinstance(driver, CarriesCopies):
                    self._brokers[name] = cast(BrokerDriver, driver)
            return self._drivers[name]

    @property
    def host(self) -> HostsTables:
        """Where limits across processes are kept: in the control store, which stays while jobs move."""
        return self._control.host

    def home(self) -> str:
        """As `Follows.home`."""
        return self.routes.current().home

    # -- What it can do --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store in which jobs are registered; of what can be done with jobs, what all stores of
        the route can do.
        """
        first, *further = self._route().stores
        home = self.store(first).capabilities
        others: list[Capabilities] = []
        for name in further:
            with suppress(StoreUnavailable):  # where jobs come from can be away
                others.append(self.store(name).capabilities)
        if not others:
            return replace(home, side_doors=home.side_doors - {"move"})
        doors = frozenset[Feature].intersection(*(each.side_doors for each in (home, *others)))
        lease = home.lease
        for other in others:
            if isinstance(lease, TimedLease) and isinstance(other.lease, TimedLease):
                shortest = max(lease.shortest, other.lease.shortest)
                lease = TimedLease(shortest, max(shortest, min(lease.longest, other.lease.longest)))
        return replace(home, lease=lease, side_doors=doors - {"move"})

    # -- Registering: at one place ---------------------------------------------------------------------

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        """As `Driver.register`. Waits while the source of a migration is fenced, for seconds."""
        patience = Patience(self.routes)
        while True:
            route = self.routes.current()
            home = self.store(route.home)
            known = self._recall(route, records)
            fresh = [record for record in records if record.id not in known]
            try:
                made = self._register_at(route.home, home, fresh) if fresh else []
            except StoreClosed as refused:
                patience.wait(route.home, home, refused)
            else:
                return _merged(records, known, fresh, made)

    def _register_at(self, name: str, home: Driver, records: Sequence[JobRecord]) -> list[Registration]:
        self._check_open(name, records)
        made = home.register(records)
        if self._has_left(name):
            raise _moving(name)
        return made

    def _has_left(self, name: str, *, fenced: bool = False) -> bool:
        """Whether jobs went elsewhere while something was registered at the broker `name`, by somebody who
        was stopped in between. It is registered once more then, where jobs live; a mover that still finds the
        first one drops it.
        """
        if name not in self._brokers:
            return False
        route = self.routes.trusted()
        return route.home != name or (fenced and route.fenced)

    def _check_open(self, name: str, records: Sequence[JobRecord]) -> None:
        """A broker can't refuse anybody, so whoever registers there refuses himself while it is fenced."""
        if name not in self._brokers:
            return
        route = self.routes.trusted()
        if route.fenced or route.home != name:
            raise _moving(name)
        self._note_queues(name, records)

    def _note_queues(self, name: str, records: Sequence[JobRecord]) -> None:
        """Which queues a broker has, a move from it has to know, and the broker does not tell."""
        new = {record.queue for record in records if (name, record.queue) not in self._queues_seen}
        if new:
            self._queues_seen |= {(name, queue) for queue in new}
            with suppress(StoreError):  # then those of the settings have to do
                if self._control.is_installed():
                    self._control.journal.add_queues(name, sorted(new))

    def _route(self) -> Route:
        """The route, for whoever may be in a transaction that holds the very file in which it is written."""
        return self.routes.current(guess=self._guesses)

    @property
    def dialect(self) -> Dialect:
        """As `JoinsTransactions.dialect`: that of the store in which jobs are registered."""
        home = self.store(self._route().home)
        return home.dialect if isinstance(home, JoinsTransactions) else "postgresql"

    def joining_steps(self, client: object) -> Steps[None]:
        """As `MeetsCallers.joining_steps`, of the store in which jobs are registered."""
        home = self.store(self._route().home)
        if not isinstance(home, JoinsTransactions):
            yield from ()  # `register_steps` says that nothing can be written here
        else:
            yield from home.joining_steps(client)

    def register_steps(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        """As `JoinsTransactions.register_steps`. While the source is fenced it waits in the caller's
        transaction, unless that is on SQLite: there nothing would go on meanwhile, and it raises
        `StoreClosed` at once.
        """
        patience = Patience(self.routes)
        while True:
            route = self._route()
            home = self.store(route.home)
            if not isinstance(home, JoinsTransactions):
                raise Unsupported(
                    f"jobs live in {home.capabilities.store} (backend {route.home!r}) now, which can't write "
                    "a job in the caller's transaction; give it an outbox, or register after the commit"
                )
            known = self._recall(route, records)
            fresh = [record for record in records if record.id not in known]
            try:
                self._check_open(route.home, fresh)
                made = (yield from home.register_steps(fresh)) if fresh else []
                if self._has_left(route.home, fenced=True):
                    raise _moving(route.home)
            except StoreClosed as refused:
                if home.dialect == "sqlite":
                    self._mend_aside(route.home)
                    raise
                yield Statement("SELECT pg_sleep(0.05)::text", ())  # not here: the caller may be a coroutine
                patience.wait(route.home, home, refused, sleep=False)
            else:
                return _merged(records, known, fresh, made)

    def _recall(self, route: Route, records: Sequence[JobRecord]) -> dict[str, Registration]:
        """Those of `records` that the fenced store knows: jobs that were registered there, and keys that are
        held there.
        """
        if route.consulted is None:
            return {}
        source = self.store(route.consulted)
        if not isinstance(source, MovesOut | KnowsKeys):
            return {}
        try:
            found = source.recall(records)
        except StoreUnavailable:
            if not route.keys_copied and any(record.idempotency_key is not None for record in records):
                raise
            # A job whose answer was lost on its way, and that is registered again right now, is then in both
            # stores; the mover keeps the one.
            return {}
        return {
            record.id: answer for record, answer in zip(records, found, strict=True) if answer is not None
        }

    # -- Running: where the job is -----------------------------------------------------------------------

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        """As `Driver.claim`, of each store in turn. Best effort across stores: each gives its best first."""
        route = self.routes.current(claims=True)
        if route.fenced:  # the only ones who register may do so in transactions that hold the file
            self._mend(route.home)
        names = route.claimed
        turn = next(self._turn) % len(names)
        claimed: list[ClaimedRecord] = []
        refused: StoreError | None = None
        asked = 0
        for name in names[turn:] + names[:turn]:
            if len(claimed) == limit:
                break
            if len(names) > 1 and self._away.get(name, 0.0) > time.monotonic():
                continue
            try:
                asked += 1
                found = self._claim_at(name, queues, limit - len(claimed), lease)
            except StoreClosed as error:
                refused = error
                self.routes.refresh()
            except StoreUnavailable as error:
                refused = error
                self._away[name] = time.monotonic() + _LEFT_ALONE
            else:
                claimed += [
                    each._replace(lease=each.lease._replace(token=f"{name}{_SEPARATOR}{each.lease.token}"))
                    for each in found
                ]
        if refused is not None and not claimed and asked == 1:
            raise refused
        return claimed

    def _mend_aside(self, name: str) -> None:
        """Look how things stand, and mend them, once the caller's transaction has let go of the file."""

        def mend() -> None:
            try:
                with suppress(StoreError):
                    self.routes.refresh()
                self._mend(name)
            finally:
                self._mending.release()

        if self._mending.acquire(blocking=False):
            threading.Thread(target=mend, name="mend", daemon=True).start()

    def _mend(self, name: str) -> None:
        """Lift a fence that was left standing, and open the store. Where that can't be done, somebody else
        will.
        """
        with suppress(StoreError):
            self.routes.mend(name, self.store(name))

    def _claim_at(
        self, name: str, queues: Sequence[str], limit: int, lease: timedelta
    ) -> list[ClaimedRecord]:
        found = self.store(name).claim(queues, limit, lease)
        if found and (broker := self._brokers.get(name)) is not None:
            everything = self.routes.current().under_way
            found = that_count(self._control.journal, name, broker, found, everything=everything)
            self._holding.add(name, [each.lease for each in found])
        return found

    def _holds(self) -> list[str]:
        with self._opening:
            brokers = dict(self._brokers)
        return self._holding.stores(brokers)

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        """As `Driver.complete`."""
        return self._settle(leases, _same, lambda driver, own: driver.complete(own), _replaced)

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        """As `Driver.fail`. A retry comes where the job is."""
        return self._settle(
            failures,
            lambda failure: failure.lease,
            lambda driver, own: driver.fail(own),
            lambda failure, lease: failure._replace(lease=lease),
        )

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        """As `Driver.extend`."""
        return self._settle(leases, _same, lambda driver, own: driver.extend(own, lease), _replaced)

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        """As `Driver.release`."""
        return self._settle(leases, _same, lambda driver, own: driver.release(own, delay), _replaced)

    def rescue(self, limit: int) -> Rescued:
        """As `Driver.rescue`, in each store."""
        ready = dead = 0
        refused: StoreError | None = None
        names = self.routes.current().claimed
        for name in names:
            try:
                found = self.store(name).rescue(limit)
            except StoreUnavailable as error:
                refused = error
            else:
                ready, dead = ready + found.ready, dead + found.dead
        if refused is not None and len(names) == 1:
            raise refused
        return Rescued(ready, dead)

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """As `Driver.wait`. With two stores it looks at each in turn."""
        names = self.routes.current(claims=True).claimed
        if len(names) == 1:
            return self.store(names[0]).wait(queues, timeout)
        deadline = time.monotonic() + timeout.total_seconds()
        turn = next(self._turn)
        while not self._closed:
            left = timedelta(seconds=max(0.0, deadline - time.monotonic()))
            if self.store(names[turn % len(names)]).wait(queues, min(left, _SLICE)):
                return True
            if left <= _SLICE:
                break
            turn += 1
        return False

    def _settle(
        self,
        items: Sequence[Item],
        lease_of: Callable[[Item], Lease],
        verb: Callable[[Driver, Sequence[Item]], list[Verdict]],
        with_lease: Callable[[Item, Lease], Item],
    ) -> list[Verdict]:
        """`verb`, at the store that each item's lease is of."""
        by_store: dict[str, list[tuple[int, Item]]] = {}
        for position, item in enumerate(items):
            lease = lease_of(item)
            name, _, token = lease.token.partition(_SEPARATOR)
            own = with_lease(item, lease._replace(token=token))
            by_store.setdefault(name, []).append((position, own))
        verdicts: dict[int, Verdict] = {}
        refused: StoreError | None = None
        for name, placed in by_store.items():
            try:
                found = verb(self.store(name), [item for _, item in placed])
            except StoreError as error:
                refused = error  # after the other store's turn: what is settled there is settled
            else:
                verdicts.update(zip((position for position, _ in placed), found, strict=True))
                if name in self._brokers:
                    settled = (
                        lease_of(item)
                        for (_, item), verdict in zip(placed, found, strict=True)
                        if verdict.state is not State.RUNNING
                    )
                    self._holding.remove(name, settled)
        if refused is not None:
            raise refused
        return [verdicts[position] for position in range(len(items))]

    # -- Looking and mending: in each store ----------------------------------------------------------------

    def get(self, job_id: str) -> StoredJob | None:
        """As `Lookup.get`: the job itself rather than its trace."""
        found: StoredJob | None = None
        for driver in self._all(Lookup, "lookup"):  # type: ignore[type-abstract]
            one = driver.get(job_id)
            if one is not None and (found is None or found.state in _IN_TRANSIT):
                found = one
        return found

    def jobs(self, page: Page) -> list[StoredJob]:
        """As `Lookup.jobs`: traces are left out where the job itself is found."""
        drivers: list[Driver] = [self.store(name) for name in self.routes.current().stores]
        if page.state is State.DEAD and not all(isinstance(driver, Lookup) for driver in drivers):
            pages = [_dead_of(driver, page) for driver in drivers]
        else:
            pages = [driver.jobs(page) for driver in self._all(Lookup, "lookup")]  # type: ignore[type-abstract]
        found: dict[str, StoredJob] = {}
        for each in (one for part in pages for one in part):
            known = found.get(each.record.id)
            if known is None or known.state in _IN_TRANSIT:
                found[each.record.id] = each
        if len(pages) == 1:
            return list(found.values())
        return [found[job_id] for job_id in sorted(found, reverse=True)][: page.limit]

    def stats(self) -> list[QueueStats]:
        """As `Statistics.stats`, of both stores together."""
        found: dict[str, QueueStats] = {}
        for driver in self._all(Statistics, "stats"):  # type: ignore[type-abstract]
            for row in driver.stats():
                found[row.queue] = _sum(found[row.queue], row) if row.queue in found else row
        return [found[queue] for queue in sorted(found)]

    def cancel(self, job_ids: Sequence[str]) -> list[State | None]:
        """As `Cancellation.cancel`. A job that is just on its way is `State.MOVING`: try again."""
        doors = self._all(Cancellation, "cancel")  # type: ignore[type-abstract]
        return self._each_by_id(job_ids, [each.cancel for each in doors])

    def requeue(self, job_ids: Sequence[str]) -> list[State | None]:
        """As `Requeue.requeue`. A job that is just on its way is `State.MOVING`: try again."""
        verbs: list[Callable[[Sequence[str]], list[State | None]]] = []
        for name in self.routes.current().stores:
            driver = self.store(name)
            if isinstance(driver, Requeue):
                verbs.append(driver.requeue)
            elif isinstance(driver, DeadLetters):
                verbs.append(
                    lambda ids, door=driver: [  # type: ignore[misc]
                        State.READY if revived else None for revived in door.revive(ids)
                    ]
                )
            else:
                raise self._lacking(name, "requeue")
        return self._each_by_id(job_ids, verbs)

    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int:
        """As `Pruning.prune`, in the store in which jobs are registered: what the other one remembers, the
        migration still needs.
        """
        home = self.routes.current().home
        driver = self.store(home)
        if not isinstance(driver, Pruning):
            raise self._lacking(home, "prune")
        return driver.prune(older_than, states, limit)

    def pause(self, queue: str) -> None:
        """As `Pausing.pause`, in each store."""
        for driver in self._all(Pausing, "pause"):  # type: ignore[type-abstract]
            driver.pause(queue)

    def resume(self, queue: str) -> None:
        """As `Pausing.resume`, in each store."""
        for driver in self._all(Pausing, "pause"):  # type: ignore[type-abstract]
            driver.resume(queue)

    def read_notes(self, names: Sequence[str]) -> NotesRead:
        """As `Notes.read_notes`: in the control store, which stays where it is; what was written before there
        was one, where jobs live.
        """
        control = self._control.driver
        home = self.routes.current().home
        if not isinstance(control, Notes):
            raise self._lacking(home, "notes")
        found = control.read_notes(names)
        missing = [name for name in names if name not in found.values]
        earlier = self.store(home)
        if missing and home != self._control.name and isinstance(earlier, Notes):
            return found._replace(values=earlier.read_notes(missing).values | found.values)
        return found

    def write_note(self, name: str, text: str, expected: str | None) -> bool:
        """As `Notes.write_note`."""
        control = self._control.driver
        if not isinstance(control, Notes):
            raise self._lacking(self.routes.current().home, "notes")
        if expected is not None and name not in control.read_notes([name]).values:
            # It is still where it was before there was a control store; of those who know, one writes.
            return self.read_notes([name]).values.get(name) == expected and control.write_note(
                name, text, None
            )
        return control.write_note(name, text, expected)

    def install(self, *, dry_run: bool = False) -> list[Step]:
        """As `Installation.install`: the control tables, and the stores of the route."""
        steps = self._control.install(dry_run=dry_run)
        try:
            stores = self.routes.current().stores
        except StoreError:
            if not dry_run:
                raise
            stores = tuple(self._drivers)
        done = {step.title for step in steps}
        for name in stores:
            driver = self.store(name)
            if isinstance(driver, Installation):
                steps += [step for step in driver.install(dry_run=dry_run) if step.title not in done]
        return steps

    def close(self) -> None:
        """As `Driver.close`."""
        self._closed = True
        with self._opening:
            drivers = list(self._drivers.values())
        with closing(self.routes):
            for driver in drivers:
                driver.close()

    def _all(self, door: type[Item], feature: Feature) -> list[Item]:
        """The stores of the route, each of which has the door. Raises `Unsupported`."""
        found: list[Item] = []
        for name in self.routes.current().stores:
            driver: object = self.store(name)
            if not isinstance(driver, door):
                raise self._lacking(name, feature)
            found.append(driver)
        return found

    def _lacking(self, name: str, feature: Feature) -> Unsupported:
        return Unsupported(
            f"{self.store(name).capabilities.store} (backend {name!r}) has no {feature}; "
            "see `jobctl backends`"
        )

    def _each_by_id(
        self, job_ids: Sequence[str], verbs: Iterable[Callable[[Sequence[str]], list[State | None]]]
    ) -> list[State | None]:
        found: dict[str, State | None] = {}
        for verb in verbs:
            left = [each for each in job_ids if found.get(each) in (None, *_IN_TRANSIT)]
            if left:
                asked = zip(left, verb(left), strict=True)
                found |= {job_id: state for job_id, state in asked if state is not None}
        return [found.get(each) for each in job_ids]


def _moving(name: str) -> StoreClosed:
    return StoreClosed(f"the jobs of {name!r} are moving to another store; try again")


def _merged(
    records: Sequence[JobRecord],
    known: Mapping[str, Registration],
    fresh: Sequence[JobRecord],
    made: Sequence[Registration],
) -> list[Registration]:
    answers = dict(known) | {record.id: answer for record, answer in zip(fresh, made, strict=True)}
    return [answers[record.id] for record in records]


def _same(lease: Lease) -> Lease:
    return lease


def _replaced(old: Lease, new: Lease) -> Lease:
    del old
    return new


def _dead_of(driver: Driver, page: Page) -> list[StoredJob]:
    if isinstance(driver, Lookup):
        return driver.jobs(page)
    return driver.dead(page) if isinstance(driver, DeadLetters) else []


def _sum(one: QueueStats, other: QueueStats) -> QueueStats:
    oldest = [each.oldest_ready for each in (one, other) if each.oldest_ready is not None]
    return QueueStats(
        queue=one.queue,
        ready=one.ready + other.ready,
        scheduled=one.scheduled + other.scheduled,
        running=one.running + other.running,
        expired=one.expired + other.expired,
        dead=one.dead + other.dead,
        done=None if one.done is None and other.done is None else (one.done or 0) + (other.done or 0),
        cancelled=None
        if one.cancelled is None and other.cancelled is None
        else (one.cancelled or 0) + (other.cancelled or 0),
        oldest_ready=max(oldest) if oldest else None,
        paused=one.paused or other.paused,
        done_per_second=None
        if one.done_per_second is None or other.done_per_second is None
        else one.done_per_second + other.done_per_second,
    )

"""What a store can do beyond the `Driver`: protocols of a few methods, which a driver simply has or has not.

Whoever needs one asks with isinstance. Those that users are told about are features, by the name that
`side_doors_of` puts into `Capabilities.side_doors`; the others serve one caller each. The states are drawn in
`jobcontract.contract`, and what holds for every method of `Driver` holds for these.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from jobcontract.contract import Feature, JobRecord, Lease, Registration, State


class Page(NamedTuple):
    """Which jobs to list: newest first, after `cursor`."""

    queue: str | None = None
    state: State | None = None
    kind: str | None = None
    idempotency_key: str | None = None
    limit: int = 50
    cursor: str | None = None
    """The `JobStatus.cursor` of the last job of the page before."""


class StoredJob(NamedTuple):
    """A job as `Lookup` finds it: its record, untrusted, and where it is in its life."""

    record: JobRecord
    state: State
    attempt: int
    created_at: datetime
    finished_at: datetime | None
    lease_expires_at: datetime | None
    last_error: str | None
    cursor: str
    refunded: int = 0
    """How many of the attempts do not count against max_attempts. Of a done job a store may say 0."""


COUNTED_UP_TO = 100_000
"""Where a store that counts by reading may stop: then a number of `QueueStats` is one more than this. A
store that stops so with done jobs tells their rate.
"""


class QueueStats(NamedTuple):
    """One queue in numbers, as the store's clock sees it. Jobs of any state but running may be counted up to
    `COUNTED_UP_TO` only.
    """

    queue: str
    ready: int
    """Due now: what a worker could claim. The backlog of a paused queue is counted here too; see `paused`."""
    scheduled: int
    """Ready, with a run_at ahead."""
    running: int
    expired: int
    """Running, with a lease that ran out: what `rescue` will take."""
    dead: int
    done: int | None
    """Finished and still in the history; None where the store does not count them."""
    cancelled: int | None
    oldest_ready: timedelta | None
    """How long the job that is due the longest has been due."""
    paused: bool
    done_per_second: float | None = None
    """How many jobs were completed per second lately (in the last ten seconds, say); None where the store
    does not know. Where it has `done`, two looks tell.
    """


@runtime_checkable
class Lookup(Protocol):
    """Feature "lookup"."""

    def get(self, job_id: str) -> StoredJob | None:
        """The job, wherever it is in its life, or None."""
        ...

    def jobs(self, page: Page) -> list[StoredJob]:
        """A page of jobs, newest id first. Bounded work whatever the number of finished jobs."""
        ...


@runtime_checkable
class Statistics(Protocol):
    """Feature "stats"."""

    def stats(self) -> list[QueueStats]:
        """Every queue that is paused or has jobs, by name. A store that does not count done jobs leaves out a
        queue that has no others, or had none a while ago. Workers are not slowed by it, however much there
        is.
        """
        ...


@runtime_checkable
class Cancellation(Protocol):
    """Feature "cancel"."""

    def cancel(self, job_ids: Sequence[str]) -> list[State | None]:
        """Ready to cancelled. Gives each job's state afterwards (`CANCELLED` where it worked), None for an
        unknown id.
        """
        ...


@runtime_checkable
class Requeue(Protocol):
    """Feature "requeue"."""

    def requeue(self, job_ids: Sequence[str]) -> list[State | None]:
        """Dead or cancelled to ready, due now, with all its attempts to spend again; the attempt number goes
        on growing.

        Gives each job's state afterwards, None for an unknown id. A ready job with a run_at ahead becomes due
        now.
        """
        ...


@runtime_checkable
class Pruning(Protocol):
    """Feature "prune"."""

    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int:
        """Forget at most `limit` finished jobs (of `states`: done, dead, cancelled) and their keys; how many
        were forgotten.
        """
        ...


@runtime_checkable
class Pausing(Protocol):
    """Feature "pause"."""

    def pause(self, queue: str) -> None:
        """Claims skip the queue until `resume`. Persisted. Pausing a paused queue, or one without jobs, is
        fine.
        """
        ...

    def resume(self, queue: str) -> None:
        """Undo `pause`, and wake waiting workers."""
        ...


class NotesRead(NamedTuple):
    """What `Notes.read_notes` found."""

    now: datetime
    """UTC, by the store's clock."""
    values: dict[str, str]
    """Of those notes that exist."""


@runtime_checkable
class Notes(Protocol):
    """Feature "notes": small texts by name that outlive every process, such as how far a schedule has come.

    As durable as jobs are. A name has 1 to 256 bytes, a text at most 64 KiB; both can be stored (no NUL, no
    lone surrogate).
    """

    def read_notes(self, names: Sequence[str]) -> NotesRead:
        """The notes of these names, and the store's clock."""
        ...

    def write_note(self, name: str, text: str, expected: str | None) -> bool:
        """Write `text`, if the note says `expected` now (None: if there is no such note); whether it did.

        Of several that expect the same, one writes.
        """
        ...


@runtime_checkable
class DeadLetters(Protocol):
    """The dead of a store that can't look a job up: what `jobctl dead` needs where there is neither `Lookup`
    nor `Requeue`. No feature of its own.
    """

    def dead(self, page: Page) -> list[StoredJob]:
        """A page of the dead jobs, newest id first (`page.state` and the key say nothing here). They stay
        where they are. May read all that are dead for it, and whoever reads at the same time may find fewer.
        """
        ...

    def revive(self, job_ids: Sequence[str]) -> list[bool]:
        """Dead to ready, due now, with all its attempts to spend again; the attempt number goes on growing.

        Whether each was among the dead.
        """
        ...


class Expectations(NamedTuple):
    """What `Diagnosis.diagnose` holds a store against."""

    processes: int = 1
    """How many more processes of the application there are to be, each with all the connections it may open.
    """
    patience: timedelta = timedelta(minutes=5)
    """How long a transaction may stay open, and a due job wait in an outbox, before it is an ailment."""


class Ailment(NamedTuple):
    """One thing that hurts a store now, or will."""

    name: str
    """Which kind it is, for programs: ``[a-z_]+``, and the same in every version."""
    finding: str
    """One sentence, with the figures and names that were seen. Neither a password nor a job's input."""
    remedy: str
    """One line: what to do, or which setting to change to what."""


@runtime_checkable
class Diagnosis(Protocol):
    """What `jobctl doctor` asks. No feature of its own."""

    def diagnose(self, expected: Expectations) -> list[Ailment]:
        """What is wrong with the live store, as far as this user may see; nothing for a healthy one. What
        can't be seen for want of a privilege is an ailment, too.

        Changes nothing, and is bounded work however full the store is. Works also where the settings of the
        server make every other verb raise `ConfigError`.
        """
        ...

    def clock(self) -> datetime | None:
        """The store's clock now, in UTC; None where it has none that can be read, or none of its own."""
        ...


OUTBOX_COUNTED_UP_TO = 10_000
"""Where the counts of an outbox end: one that grows must not be made slower by those who look at it."""


class OutboxStats(NamedTuple):
    """What waits in an outbox for one store. Each count ends at one more than `OUTBOX_COUNTED_UP_TO`."""

    oldest: timedelta | None
    """How long the oldest job that waits has been due, whatever holds it up (parked ones excepted)."""
    due: int
    """Due now."""
    held_up: int
    """Were due, and wait for another try after a refusal, or behind a job of their ordering key."""
    scheduled: int
    """Not due yet."""
    parked: int
    """Given up until an operator decides."""

    @property
    def pending(self) -> int:
        """What should have been published by now."""
        return self.due + self.held_up


@runtime_checkable
class ThroughOutbox(Protocol):
    """Jobs are registered in an outbox in front of the store. No feature of its own."""

    def outbox_stats(self) -> OutboxStats:
        """What waits there. Does not contact the store behind it."""
        ...


@runtime_checkable
class RegistersByStatement(Protocol):
    """A SQL store in which one statement registers a job, without parameters and without this library: for
    pg_cron. No feature of its own.
    """

    def registration_sql(self, record: JobRecord) -> str:
        """The statement that registers `record`, which has a key, each time that it is run: under an id of
        its own, due now.

        ``{minute}`` in the key and in the headers is the minute in which it is run, such as
        ``2026-11-30T02:00Z``: so it registers one job per minute, however often it is run.
        """
        ...


# Moving to another store. The three doors together are the feature "move"; whoever moves jobs is told nothing
# else about a store. See jobcontract_migrate, which owns the order in which they are used.


class Gate(NamedTuple):
    """What a store lets in, and since which step of which migration. A store that never took part in one has
    ``Gate(0, intake=True, claims=True)``.
    """

    epoch: int
    """Grows with each step of a migration; whoever acts for an earlier one is refused. 0 to 2^60."""
    intake: bool
    """Whether jobs can be registered."""
    claims: bool
    """Whether jobs can be claimed. Running ones can be settled all the same."""


class MovedJob(NamedTuple):
    """A job on its way, with all that is carried: nothing of it may change by the move."""

    record: JobRecord
    """As `Driver.claim` gives it; with the fingerprint when the job holds its idempotency key, and only
    then.
    """
    state: State
    """Where it was in its life: ready, dead, cancelled or done. `State.MOVING` is a placeholder: the job
    itself comes later, or ends where it is; until then the target knows its id and its key, and that is all.
    """
    attempt: int
    refunded: int
    created_at: datetime
    finished_at: datetime | None
    last_error: str | None


class Arrival(NamedTuple):
    """What became of one job of `MovesIn.admit`."""

    stored: bool
    """False: the target knew the job already (in whatever state), and nothing changed."""
    key_holder: str | None = None
    """The id of another job that holds the key; this job was stored without it then."""


@runtime_checkable
class Gated(Protocol):
    """The store can be shut. What is shut is refused by the store itself, in the very statement that would
    store or claim, so that no client has to be trusted to know.
    """

    def gate(self) -> Gate:
        """As it stands now. Whoever may register may ask."""
        ...

    def set_gate(self, gate: Gate) -> Gate:
        """Open or shut, durably and for every client at once, unless the store has seen a later epoch. The
        gate that holds afterwards.

        While the intake is shut, `Driver.register` stores nothing and raises `StoreClosed` (jobs that are
        known are answered as ever); `Driver.claim` raises it while claims are. A transaction that has
        registered before may go on registering until its end.
        """
        ...

    def open_registrations(self) -> frozenset[str]:
        """Names of transactions, of any client, that may have registered jobs and have not ended. Once all
        that were named after the intake was shut are named no more, every job that it ever let in is visible.

        Transactions that did something else may be among them. Empty where nothing can be under way.
        """
        ...


@runtime_checkable
class MovesOut(Protocol):
    """Jobs can leave the store. A job is hidden first, durably, and so that no claim, cancellation, requeue
    or prune finds it; then it is copied; then it is a tombstone. Whatever fails in between, it is in one
    place that can be claimed at most, and `hidden` knows it.

    What takes an `epoch` does nothing, and raises `StoreError`, unless it is that of the gate: a mover that
    was stopped and comes back late changes nothing.
    """

    def hide(self, epoch: int, limit: int) -> list[MovedJob]:
        """At most `limit` jobs from ready, dead or cancelled to moving, those that are due first in front;
        ready ones before all others. Passes over locked ones. Empty: there are none left for now.
        """
        ...

    def hidden(self, limit: int) -> list[MovedJob]:
        """At most `limit` of the jobs that are hidden and no tombstones yet, each as it was."""
        ...

    def reveal(self, epoch: int, limit: int) -> int:
        """Undo `hide` for at most `limit` jobs; how many they were."""
        ...

    def bury(self, epoch: int, job_ids: Sequence[str]) -> int:
        """Moving to moved. The record stays whole, and holds its key. How many were moving."""
        ...

    def buried(self, below: str, limit: int) -> list[MovedJob]:
        """The tombstones, newest id first, below the id `below`. Each as it was."""
        ...

    def keyed(self, after: str, limit: int) -> list[MovedJob]:
        """The jobs that hold an idempotency key, in the order of their ids, behind the id `after`: those that
        are done as they are, all others (tombstones excepted) as placeholders.
        """
        ...

    def recall(self, records: Sequence[JobRecord]) -> list[Registration | None]:
        """What `Driver.register` would answer for each job that it knows, by its id or its key; None for the
        others. Stores nothing.
        """
        ...

    def forget_buried(self, epoch: int, limit: int) -> int:
        """Remove at most `limit` tombstones and placeholders, and free their keys; how many they were."""
        ...


@runtime_checkable
class MovesIn(Protocol):
    """Jobs can come from another store, with their past."""

    def admit(self, epoch: int, jobs: Sequence[MovedJob]) -> list[Arrival]:
        """Store jobs as they are: all of them, or when it raises, possibly some. Safe to repeat.

        Works whatever the gate says; with another epoch than the gate's it does nothing and raises
        `StoreError`. A job that is known as a placeholder or as a tombstone is stored in its place; one that
        is known otherwise is left as it is. Never waits for a key: the job that holds it keeps it. Wakes
        waiting workers.
        """
        ...


@runtime_checkable
class KnowsKeys(Protocol):
    """What an outbox in front of a broker offers to a move beyond `CarriesCopies`: it knows the jobs that
    went through it. No feature of its own.
    """

    def open_registrations(self) -> frozenset[str]:
        """As `Gated.open_registrations`."""
        ...

    def keyed(self, after: str, limit: int) -> list[MovedJob]:
        """As `MovesOut.keyed`; what became of a job is not known here, so that it is a placeholder."""
        ...

    def recall(self, records: Sequence[JobRecord]) -> list[Registration | None]:
        """As `MovesOut.recall`."""
        ...


@runtime_checkable
class Movable(Gated, MovesOut, MovesIn, Protocol):
    """Feature "move"."""


class TakenCopy(NamedTuple):
    """A copy of a job that a mover holds."""

    token: str
    """Good for as long as it is held."""
    name: str
    """Of the copy; empty for a job that was registered there."""
    job: MovedJob


@runtime_checkable
class CarriesCopies(Protocol):
    """What a store offers to a move that is not `Movable`, because it knows no job by its id: a broker. No
    feature of its own.

    It has copies of jobs; how many there are of one, and which of them counts, somebody else has to remember.
    Each copy that comes by a move has a name, which stays with it for as long as it is in the store, also
    when it is failed, released or revived; a job that was registered there has the empty one.
    """

    def carry(self, jobs: Sequence[MovedJob], name: str) -> list[str | None]:
        """Store a copy of each job, called `name` (at most 64 ASCII characters), with all that it has been
        through: ready ones become due at their time, dead ones are dead. Of others only the key is kept,
        where the store knows keys.

        Not safe to repeat: what is carried again is there again. When it raises, some may be stored. Makes
        the queues that it needs. For each job the id of another one that holds its key; the copy has none
        then.
        """
        ...

    def copies_of(self, leases: Sequence[Lease]) -> list[str | None]:
        """The names of the copies that are held by `leases`; None where the lease is lost. Does not contact
        the store.
        """
        ...

    def take(self, queues: Sequence[str], limit: int) -> list[TakenCopy]:
        """Hold at most `limit` copies, so that nobody else gets them until they are dropped, or until this
        driver's connection ends, when all are back: ready ones first, then those that wait for their time,
        then the dead. Empty: there are none left for now; what runs is not among them.

        Looks into the queues of the settings, and into `queues`. What holds no job is passed over, and stays.
        A copy that was held by a connection that broke may come with an attempt more.
        """
        ...

    def drop(self, tokens: Sequence[str]) -> int:
        """What was taken is elsewhere now. How many were still held; the others come again."""
        ...


class Step(NamedTuple):
    """One thing that `Installation.install` did, or would do: a title for people, and the statements where
    there are any.
    """

    title: str
    statements: str = ""


@runtime_checkable
class Installation(Protocol):
    """A store with objects of its own (schema, topology). Every driver but an in-memory one has this door."""

    def install(self, *, dry_run: bool = False) -> list[Step]:
        """Create or upgrade what the store needs; idempotent, safe when several run it at once. Nothing to do
        is an empty list.
        """
        ...


@runtime_checkable
class Located(Protocol):
    """A store whose URL does not say all about where it is: what is left out has a default, or is set
    elsewhere.
    """

    @property
    def location(self) -> str:
        """Server, user, database and what holds the jobs in there, for somebody who is asked before
        something is destroyed. Without a password. Contacts nothing.
        """
        ...


@runtime_checkable
class Follows(Protocol):
    """A driver that is no store, and uses the one in which jobs live now."""

    def home(self) -> str:
        """The name of the store in which jobs are registered, for sentences. May contact the control store.
        Raises `StoreError` when it can't be known.
        """
        ...


# What a driver yields to run inside somebody else's transaction. The same generator is driven by the driver
# itself on its own connection, by `Backend` on a synchronous one of the caller, and by `jobcontract.aio` on
# an asynchronous one: the SQL is built once.


class Statement(NamedTuple):
    """One SQL statement in the parameter style of the dialect's own client (psycopg: %s, sqlite3: ?)."""

    sql: str
    parameters: Sequence[object]


Row: TypeAlias = tuple[
    Any, ...
]  # Any: what a column holds is the store's business, and the reader's to check
Result_co = TypeVar("Result_co", covariant=True)
Steps: TypeAlias = Generator[Statement, list[Row], Result_co]
Dialect: TypeAlias = Literal["postgresql", "sqlite"]


class MeetsCallers(Protocol):
    """What `JoinsTransactions` and `HostsTables` have in common."""

    def joining_steps(self, client: object) -> Steps[None]:
        """Statements to run first on a connection that a caller brought: raises `InvalidJob` (field
        ``connection``) when they show that it leads to another database than this store's.

        Called before each registration on such a connection, so that what is known should not be asked again.
        `client` is the client library's own connection, to know it by. May contact the store by itself;
        what is given back does not.
        """
        ...


@runtime_checkable
class JoinsTransactions(MeetsCallers, Protocol):
    """The store can write jobs inside the caller's transaction: capability ``transactional = same``."""

    @property
    def dialect(self) -> Dialect:
        """Which connections can carry the statements."""
        ...

    def register_steps(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        """`Driver.register` as statements: yields each, is sent its rows, returns the registrations.

        Neither begins nor ends a transaction. Waking workers is part of it, and takes effect when the caller
        commits.
        """
        ...


class Transaction(Protocol):
    """An open transaction on a SQL store: a caller's own (`jobcontract.connections`), or one of
    `HostsTables`.
    """

    @property
    def dialect(self) -> Dialect:
        """What it speaks."""
        ...

    def run(self, statement: Statement) -> list[Row]:
        """The rows of `statement`, if it gives any."""
        ...


@runtime_checkable
class HostsTables(MeetsCallers, Protocol):
    """A SQL store that takes further tables beside its jobs: an outbox in front of another store, the state
    of a migration.

    Whoever brings the tables creates them, in a transaction of this door, and owns their names.
    """

    @property
    def dialect(self) -> Dialect:
        """Which SQL the statements are written in, and which connections can carry them."""
        ...

    def table(self, name: str) -> str:
        """The SQL name of the table, index or view `name` (of ``[a-z_]``), qualified and quoted for
        statements that take parameters. Contacts nothing.
        """
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A transaction on a connection of the driver's own: READ COMMITTED (SQLite: with the write lock
        taken first), committed at the end of the block, rolled back when the block raises.

        Each statement is bounded by the driver's own deadline; what the block does between them is the
        caller's. Raises as every method of a driver does, also when the store is not initialised.
        """
        ...

    def wake(self, topic: str) -> Statement | None:
        """A statement that, once its transaction has committed, ends ``Driver.wait([topic])`` elsewhere.
        None where nobody can be woken. Whoever waits has to look now and then all the same: a pooler between
        the two may keep it to itself.

        A topic that is no valid name of a queue meets no queue.
        """
        ...


_SIDE_DOORS: dict[Feature, type] = {
    "lookup": Lookup,
    "stats": Statistics,
    "cancel": Cancellation,
    "requeue": Requeue,
    "prune": Pruning,
    "pause": Pausing,
    "move": Movable,
    "notes": Notes,
}


def side_doors_of(driver: object) -> frozenset[Feature]:
    """The features whose protocol `driver` has: what belongs into `Capabilities.side_doors`."""
    return frozenset(feature for feature, protocol in _SIDE_DOORS.items() if isinstance(driver, protocol))

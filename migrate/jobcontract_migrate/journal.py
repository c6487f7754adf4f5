"""The journal of a move to or from a broker: what the stores of SQL and Redis know by themselves, that a job
exists once, it knows for one that has messages and no ids.

A batch that is sent to a broker, and sent again because nobody knows whether it had arrived, is there twice.
So each batch has a name, which its copies carry, and those who claim ask the journal, before they run a job,
whether this copy is the one that counts: the first that was claimed. The others are acknowledged unseen.
What a mover takes out of a broker comes again when it dies, so the journal says where the job lives now::

    (no row)                     a job that never moved, and was registered at the broker: it runs
        |                  \
        | about to be sent   \\ held by a mover, about to be stored at the target
        v                      v
    home = broker  -------->  home = target, on its way    left to the mover by whoever claims it
    copy = -, or the first    |     ^
    that was claimed          |     | (again, when the mover died: the target stores it once)
        ^                     v
        |                 home = target, arrived            any copy that is still at the broker is dropped
        +------------------------+ about to be sent back

A row is written before the batch is sent or stored, in a transaction that holds the step of the migration:
whoever acts for an earlier one writes nothing. A move turns round only when nothing is on its way. Rows of
jobs without a copy too many go when the migration is completed; the few others stay, because a second copy
may lie at the broker for as long as it likes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import Enum

from jobcontract.errors import StoreError
from jobcontract.hosted import HostedStatements, single
from jobcontract.side_doors import HostsTables, MovedJob, TakenCopy, Transaction


class Standing(Enum):
    """What is to be done with a copy that was claimed."""

    RUN = "run"
    """It is the one, or the job never moved."""
    DROP = "drop"
    """Another copy of the job is the one."""
    LEAVE = "leave"
    """The job is on its way to another store: this is for the mover."""


class Journal:
    """The journal in a control store. Safe in threads; contacts nothing when it is made."""

    def __init__(self, host: HostsTables, statements: HostedStatements) -> None:
        self._host = host
        self._statements = statements

    def send(self, number: int, epoch: int, home: str, job_ids: Sequence[str]) -> None:
        """One more copy of each job is about to be in `home`. Raises `StoreError` when the step `epoch` of
        the migration `number` is over.
        """
        with self._host.transaction() as transaction:
            self._hold_step(transaction, number, epoch)
            transaction.run(self._statements("journal_send", home, self._texts(job_ids)))

    def claim(self, home: str, copies: Sequence[tuple[str, str]]) -> list[Standing]:
        """What is to be done with each of `copies`, pairs of a job's id and the name of its copy, which were
        claimed in `home`. Of several of one job that were never asked about, one counts from now on.
        """
        if self._statements.dialect == "postgresql":
            statement = self._statements(
                "journal_claim", home, [job_id for job_id, _ in copies], [copy for _, copy in copies]
            )
        else:
            statement = self._statements("journal_claim", home, json.dumps(list(map(list, copies))))
        with self._host.transaction() as transaction:
            known = {job_id: found for job_id, *found in transaction.run(statement)}
        return [_standing(home, copy, known.get(job_id)) for job_id, copy in copies]

    def take(
        self, number: int, epoch: int, home: str, target: str, copies: Sequence[TakenCopy]
    ) -> list[MovedJob | None]:
        """A mover holds `copies`, each of another job, in `home`: those that it moves to `target`, where the
        jobs live from now on, and None for what it drops. Raises `StoreError` when the step is over.

        What a mover held when it died moves as it was taken first: the broker counts it as delivered once
        more, and can't know that nobody ran it.
        """
        held = [(each.job.record.id, each.name, each.job.attempt, each.job.refunded) for each in copies]
        if self._statements.dialect == "postgresql":
            columns = [list(column) for column in zip(*held, strict=True)]
            statement = self._statements("journal_take", target, *columns, home)
        else:
            statement = self._statements("journal_take", target, json.dumps(held), home)
        with self._host.transaction() as transaction:
            self._hold_step(transaction, number, epoch)
            known = {job_id: found for job_id, *found in transaction.run(statement)}
        return [_on_its_way(each.job, target, *known[each.job.record.id]) for each in copies]

    def arrive(self, number: int, epoch: int, job_ids: Sequence[str]) -> None:
        """What was on its way is in the target. Raises `StoreError` when the step is over."""
        with self._host.transaction() as transaction:
            self._hold_step(transaction, number, epoch)
            transaction.run(self._statements("journal_arrive", self._texts(job_ids)))

    def on_the_way(self) -> int:
        """How many jobs are on their way from a broker: held, or coming again."""
        with self._host.transaction() as transaction:
            row = single(transaction, self._statements("journal_on_the_way"))
        return int(row[0]) if row else 0

    def arrived(self, home: str, below: str, limit: int) -> list[str]:
        """Jobs that a mover brought to `home`, newest id first, below the id `below`."""
        with self._host.transaction() as transaction:
            rows = transaction.run(self._statements("journal_arrived", home, below, limit))
        return [job_id for (job_id,) in rows]

    def known(self, home: str, job_ids: Sequence[str]) -> frozenset[str]:
        """Those of `job_ids` that have their home in `home`."""
        with self._host.transaction() as transaction:
            rows = transaction.run(self._statements("journal_known", home, self._texts(job_ids)))
        return frozenset(job_id for (job_id,) in rows)

    def forget(self, copies: int, limit: int) -> int:
        """Forget at most `limit` jobs of which so many `copies` can be at a broker at most; how many."""
        with self._host.transaction() as transaction:
            return len(transaction.run(self._statements("journal_forget", copies, limit)))

    def add_queues(self, store: str, queues: Iterable[str]) -> None:
        """The broker `store` has these queues: it can't list them."""
        with self._host.transaction() as transaction:
            for queue in queues:
                transaction.run(self._statements("add_queue", store, queue))

    def queues(self, store: str) -> list[str]:
        """Those that were seen at the broker `store`."""
        with self._host.transaction() as transaction:
            return [queue for (queue,) in transaction.run(self._statements("queues", store))]

    def _hold_step(self, transaction: Transaction, number: int, epoch: int) -> None:
        if not transaction.run(self._statements("hold_step", number, epoch)):
            raise StoreError(f"the step {epoch} of the migration is over; a later one has begun")

    def _texts(self, texts: Sequence[str]) -> object:
        return list(texts) if self._statements.dialect == "postgresql" else json.dumps(list(texts))


def _standing(home: str, copy: str, known: Sequence[object] | None) -> Standing:
    if known is None or (known[0], known[1]) == (home, copy):
        return Standing.RUN
    return Standing.LEAVE if known[0] != home and not known[2] else Standing.DROP


def _on_its_way(
    job: MovedJob, target: str, place: str, arrived: int, attempt: int | None, refunded: int | None
) -> MovedJob | None:
    if place != target or arrived:
        return None
    if attempt is None or refunded is None:  # it was taken by a version that did not remember
        return job
    return job._replace(attempt=attempt, refunded=refunded)

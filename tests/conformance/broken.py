"""Drivers with one fault each, on SQLite in memory: what other queues shipped, and what authors overlook.

A suite that can't fail proves nothing. `VARIANTS` names the fault, and the tests that must see it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from jobcontract_sqlite import SQLiteDriver, SQLiteFileDriver, SQLiteOptions
from jobcontract_sqlite.memory import MemoryConnection
from jobcontract_sqlite.pool import FileConnections

from jobcontract.config import StoreSettings
from jobcontract.conformance import Harness
from jobcontract.contract import (
    LOST,
    Capabilities,
    ClaimedRecord,
    Driver,
    Durability,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    State,
    Verdict,
)
from jobcontract.errors import StoreError
from jobcontract.side_doors import Dialect, QueueStats, Row, Statement, Steps, StoredJob, Transaction
from jobcontract.url import StoreURL

_NOW = "(SELECT now FROM jobcontract_clock)"
_HOUR = 3_600_000_000


class Sound(SQLiteDriver):
    """The driver as it should be, with what the faults need."""

    def __init__(self) -> None:
        options = StoreSettings("broken", StoreURL.parse("sqlite://")).read_options(SQLiteOptions)
        super().__init__(MemoryConnection(options), options)
        self.tokens: dict[str, str] = {}

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        claimed = super().claim(queues, limit, lease)
        self.tokens.update({each.lease.job_id: each.lease.token for each in claimed})
        return claimed

    def sql(self, statement: str, *parameters: object) -> list[Any]:
        """Behind the driver's back, and committed."""
        with self.connections.write() as connection:
            return connection.execute(statement, parameters).fetchall()

    def current(self, leases: Sequence[Lease]) -> list[Lease]:
        """The leases with the tokens that their jobs have now: what an unfenced statement amounts to."""
        return [lease._replace(token=self.tokens.get(lease.job_id, lease.token)) for lease in leases]

    def revive(self, leases: Sequence[Lease]) -> None:
        """Make expired leases valid: what a statement amounts to that does not look at the expiry."""
        for lease in leases:
            self.sql(
                f"UPDATE jobcontract_jobs SET lease_until = {_NOW} + {_HOUR} WHERE id = ? AND token = ?",
                lease.job_id,
                lease.token,
            )


# The guard ------------------------------------------------------------------------------------------------


class CompletesById(Sound):
    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        return super().complete(self.current(leases))


class FailsById(Sound):
    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        leases = self.current([each.lease for each in failures])
        return super().fail(
            [each._replace(lease=lease) for each, lease in zip(failures, leases, strict=True)]
        )


class ExtendsById(Sound):
    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        return super().extend(self.current(leases), lease)


class ReleasesById(Sound):
    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        return super().release(self.current(leases), delay)


class CompletesExpired(Sound):
    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        self.revive(leases)
        return super().complete(leases)


class RevivesExpired(Sound):
    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        self.revive(leases)
        return super().extend(leases, lease)


class GivesEveryClaimTheSameToken(Sound):
    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        claimed = super().claim(queues, limit, lease)
        for each in claimed:
            self.sql("UPDATE jobcontract_jobs SET token = 'worker-1' WHERE id = ?", each.lease.job_id)
        return [each._replace(lease=each.lease._replace(token="worker-1")) for each in claimed]


class RescuesInTwoSteps(Sound):
    def rescue(self, limit: int) -> Rescued:
        expired = self.sql(
            f"SELECT id FROM jobcontract_jobs WHERE state = 'running' AND lease_until <= {_NOW} LIMIT ?",
            limit,
        )
        time.sleep(0.002)  # whatever happens between two statements
        for (job_id,) in expired:
            self.sql(
                "UPDATE jobcontract_jobs SET state = 'ready', token = NULL, lease_until = NULL WHERE id = ?",
                job_id,
            )
        return Rescued(len(expired), 0)


class ClaimsInTwoSteps(Sound):
    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        ready = self.sql(
            "SELECT id FROM jobcontract_jobs WHERE state = 'ready' AND queue = ? LIMIT ?", queues[0], limit
        )
        time.sleep(0.001)
        for (job_id,) in ready:
            self.sql(
                "UPDATE jobcontract_jobs SET state = 'ready', token = NULL, lease_until = NULL WHERE id = ?",
                job_id,
            )
        return super().claim(queues, limit, lease)


# Attempts -------------------------------------------------------------------------------------------------


class ReleaseSpendsAnAttempt(Sound):
    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        verdicts = super().release(leases, delay)
        for lease in leases:
            self.sql("UPDATE jobcontract_jobs SET refunded = 0 WHERE id = ?", lease.job_id)
        return verdicts


class ReleaseTakesTheAttemptBack(Sound):
    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        verdicts = super().release(leases, delay)
        for lease in leases:
            self.sql(
                "UPDATE jobcontract_jobs SET refunded = 0, attempt = attempt - 1 WHERE id = ?", lease.job_id
            )
        return verdicts


class DiesOneAttemptTooEarly(Sound):
    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        return super().register(
            [each._replace(max_attempts=max(1, each.max_attempts - 1)) for each in records]
        )


class DiesOneAttemptTooLate(Sound):
    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        return super().register([each._replace(max_attempts=each.max_attempts + 1) for each in records])


class RescueNeverKills(Sound):
    def rescue(self, limit: int) -> Rescued:
        self.sql("UPDATE jobcontract_jobs SET max_attempts = max_attempts + 1 WHERE state = 'running'")
        return super().rescue(limit)


class RequeueGivesNoAttempts(Sound):
    def requeue(self, job_ids: Sequence[str]) -> list[State | None]:
        states = super().requeue(job_ids)
        for job_id in job_ids:
            self.sql("UPDATE jobcontract_jobs SET refunded = attempt - 1 WHERE id = ?", job_id)
        return states


class RequeueCountsFromOneAgain(Sound):
    def requeue(self, job_ids: Sequence[str]) -> list[State | None]:
        states = super().requeue(job_ids)
        for job_id in job_ids:
            self.sql(
                "UPDATE jobcontract_jobs SET refunded = 0, attempt = 0 WHERE id = ? AND state = 'ready'",
                job_id,
            )
        return states


# Time -----------------------------------------------------------------------------------------------------


class ClaimIgnoresRunAt(Sound):
    """The over-claim: it declares scheduling, and hands out jobs of the future."""

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        self.sql(f"UPDATE jobcontract_jobs SET run_at = {_NOW} WHERE run_at > {_NOW}")
        return super().claim(queues, limit, lease)


class RetriesAtOnce(Sound):
    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        return super().fail([each._replace(retry_in=timedelta()) for each in failures])


class TakesTheClientsClockForNow(Sound):
    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        return super().register([each._replace(run_at=each.run_at or datetime.now(UTC)) for each in records])


class MeasuresLeasesByTheClientsClock(Sound):
    def rescue(self, limit: int) -> Rescued:
        now = int(datetime.now(UTC).timestamp() * 1_000_000)
        self.sql(f"UPDATE jobcontract_jobs SET lease_until = {_NOW} WHERE lease_until <= ?", now)
        return super().rescue(limit)


class NeverWakes(Sound):
    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        threading.Event().wait(timeout.total_seconds())
        return False


class WaitAlwaysSaysYes(Sound):
    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        return True


# Keys -----------------------------------------------------------------------------------------------------


class SwallowsConflicts(Sound):
    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        return [replace(each, conflict=False) for each in super().register(records)]


class IgnoresKeys(Sound):
    """The over-claim: it declares deduplication."""

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        return super().register([each._replace(idempotency_key=None, fingerprint=None) for each in records])


class FreesTheKeyWhenDone(Sound):
    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        verdicts = super().complete(leases)
        for lease in leases:
            self.sql("DELETE FROM jobcontract_keys WHERE job_id = ?", lease.job_id)
        return verdicts


class NeverFreesAKey(Sound):
    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int:
        keys = self.sql("SELECT * FROM jobcontract_keys")
        count = super().prune(older_than, states, limit)
        for key in keys:
            self.sql("INSERT OR IGNORE INTO jobcontract_keys VALUES (?, ?, ?, ?)", *key)
        return count


class KeysOfAllQueuesAreOne(Sound):
    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        answers = super().register(records)
        seen: dict[str | None, Registration] = {}
        for record, answer in zip(records, answers, strict=True):
            if record.idempotency_key in seen:
                return [replace(answer, created=False) for answer in answers]
            if record.idempotency_key:
                seen[record.idempotency_key] = answer
        return answers


class RunsAFinishedJobAgain(Sound):
    """Knows only the jobs that are not finished when one is registered again."""

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        for record in records:
            self.sql("DELETE FROM jobcontract_done WHERE id = ?", record.id)
            self.sql("DELETE FROM jobcontract_keys WHERE job_id = ?", record.id)
        return super().register(records)


# What is kept ---------------------------------------------------------------------------------------------


class LosesTheError(Sound):
    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        return super().fail([each._replace(error="failed") for each in failures])


class KeepsNumbersAsAJsonColumnDoes(Sound):
    """What PostgreSQL's jsonb gives back: 1e22 as an integer, names in another order."""

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        return [
            each._replace(record=each.record._replace(input_ref=_as_jsonb(each.record.input_ref)))
            for each in super().claim(queues, limit, lease)
        ]


class LosesHeaders(Sound):
    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        return super().register([each._replace(headers=None) for each in records])


class IgnoresPriorities(Sound):
    """The over-claim: it declares ten levels."""

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        return super().register([each._replace(priority=0) for each in records])


class MixesQueues(Sound):
    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        everything = [name for (name,) in self.sql("SELECT DISTINCT queue FROM jobcontract_jobs")]
        return super().claim(everything or queues, limit, lease)


class ClaimsNewestFirst(Sound):
    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        return super().claim(queues, limit, lease)[::-1]


class StopsAtASpoiltJob(Sound):
    """Decodes before it hands over, and loses the batch to one job that can't be."""

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        claimed = super().claim(queues, limit, lease)
        try:
            for each in claimed:
                dict(json.loads(each.record.input_ref))
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(str(error)[:100]) from None
        return claimed


# Batches --------------------------------------------------------------------------------------------------


class MixesUpVerdicts(Sound):
    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        return super().complete(leases)[::-1]


class AllOrNothing(Sound):
    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        held = super().extend(leases, timedelta(hours=1))
        if not all(verdict.applied for verdict in held):
            return [LOST for _ in leases]
        return super().complete(leases)


class RescuesAllAtOnce(Sound):
    def rescue(self, limit: int) -> Rescued:
        return super().rescue(1000)


# Transactions ---------------------------------------------------------------------------------------------


class SoundFile(SQLiteFileDriver):
    """The driver of a file as it should be."""

    def __init__(self, url: str) -> None:
        parsed = StoreURL.parse(url)
        settings = StoreSettings("broken", parsed)
        options = settings.read_options(SQLiteOptions)
        super().__init__(FileConnections(Path(parsed.path[1:]), options), options)


class CommitsByItself(SoundFile):
    """Writes on a connection of its own, whatever the caller gave it."""

    def register_steps(self, records: Sequence[JobRecord]) -> Steps[list[Registration]]:
        answers = self.register(records)
        yield Statement("SELECT 1", ())
        return answers


class HostsWithoutTransactions(SoundFile):
    """Commits each statement of a block by itself."""

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        with super().transaction():
            pass  # it is initialised
        yield _EachByItself(super().transaction)


class _EachByItself:
    dialect: Dialect = "sqlite"

    def __init__(self, begin: Callable[[], AbstractContextManager[Transaction]]) -> None:
        self._begin = begin

    def run(self, statement: Statement) -> list[Row]:
        with self._begin() as transaction:
            return transaction.run(statement)


# Doors ----------------------------------------------------------------------------------------------------


class ClaimsFromPausedQueues(Sound):
    def pause(self, queue: str) -> None:
        return None


class CancelsRunningJobs(Sound):
    def cancel(self, job_ids: Sequence[str]) -> list[State | None]:
        for job_id in job_ids:
            self.sql(
                "UPDATE jobcontract_jobs SET state = 'ready', token = NULL, lease_until = NULL WHERE id = ?",
                job_id,
            )
        return super().cancel(job_ids)


class PrunesByAgeAlone(Sound):
    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int:
        return super().prune(older_than, {State.DONE, State.DEAD, State.CANCELLED}, limit)


class PrunesTooMuch(Sound):
    def prune(self, older_than: timedelta, states: Collection[State], limit: int) -> int:
        return super().prune(timedelta(), states, limit)


class PagesOverlap(Sound):
    def jobs(self, page: Any) -> list[StoredJob]:
        found = super().jobs(page)
        return [each._replace(cursor=found[0].cursor) for each in found]


class CountsRunningJobsAsReady(Sound):
    def stats(self) -> list[QueueStats]:
        return [row._replace(ready=row.ready + row.running) for row in super().stats()]


class DeclaresADoorThatItHasNot(Sound):
    pause: ClassVar[None] = None  # type: ignore[assignment]  # pyright: ignore

    @property
    def capabilities(self) -> Capabilities:
        declared = super().capabilities
        return replace(declared, side_doors=declared.side_doors | {"pause"})


class DeclaresFsync(Sound):
    """The over-claim: nothing outlives a store in memory."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, durability=Durability.FSYNC)


def _as_jsonb(text: str) -> str:
    def number(literal: str) -> int | float:
        value = float(literal)
        return int(value) if value.is_integer() else value

    try:
        return json.dumps(json.loads(text, parse_float=number), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return text


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken driver, and the tests that must see it."""

    driver: type[Sound]
    seen_by: tuple[str, ...]


STALE = "test_a_stale_token_changes_nothing"
VARIANTS: dict[str, Fault] = {
    fault.driver.__name__: fault
    for fault in (
        Fault(
            CompletesById,
            (f"{STALE}[complete-claimed again after the rescue]", f"{STALE}[complete-nobody's token]"),
        ),
        Fault(
            FailsById,
            (
                f"{STALE}[fail-claimed again after the rescue]",
                f"{STALE}[fail permanently-another job's token]",
            ),
        ),
        Fault(ExtendsById, (f"{STALE}[extend-claimed again after the failure]",)),
        Fault(ReleasesById, (f"{STALE}[release-claimed again after the release]",)),
        Fault(CompletesExpired, (f"{STALE}[complete-expired]", "test_a_lease_can_be_shortened")),
        Fault(RevivesExpired, (f"{STALE}[extend-expired]",)),
        Fault(
            GivesEveryClaimTheSameToken,
            ("test_no_two_claims_share_a_token", f"{STALE}[fail-claimed again after the release]"),
        ),
        Fault(RescuesInTwoSteps, ("test_valid_leases_of_a_job_never_overlap",)),
        Fault(ClaimsInTwoSteps, ("test_many_claimers_share_the_jobs_without_claiming_one_twice",)),
        Fault(ReleaseSpendsAnAttempt, ("test_a_release_spends_no_attempt_and_counts_on",)),
        Fault(ReleaseTakesTheAttemptBack, ("test_a_release_spends_no_attempt_and_counts_on",)),
        Fault(DiesOneAttemptTooEarly, ("test_a_job_dies_when_its_attempts_are_spent_and_not_before",)),
        Fault(DiesOneAttemptTooLate, ("test_a_job_dies_when_its_attempts_are_spent_and_not_before",)),
        Fault(RescueNeverKills, ("test_it_dies_of_it_when_its_attempts_are_spent",)),
        Fault(RequeueGivesNoAttempts, ("test_all_its_attempts_can_be_spent_again",)),
        Fault(RequeueCountsFromOneAgain, ("test_all_its_attempts_can_be_spent_again",)),
        Fault(
            ClaimIgnoresRunAt,
            (
                "test_a_future_job_is_not_claimed",
                "test_a_failed_job_comes_again_no_sooner_than_it_was_told_to",
            ),
        ),
        Fault(RetriesAtOnce, ("test_a_failed_job_comes_again_no_sooner_than_it_was_told_to",)),
        Fault(TakesTheClientsClockForNow, ("test_a_run_at_does_not_ask_the_clients_clock[ahead]",)),
        Fault(MeasuresLeasesByTheClientsClock, ("test_a_lease_does_not_ask_the_clients_clock[ahead]",)),
        Fault(
            NeverWakes,
            ("test_a_registration_of_another_client_wakes_it", "test_with_work_at_hand_it_returns_at_once"),
        ),
        Fault(WaitAlwaysSaysYes, ("test_with_nothing_to_do_it_comes_to_its_timeout",)),
        Fault(SwallowsConflicts, ("test_a_taken_key_is_answered_with_its_holder[another input-done]",)),
        Fault(
            IgnoresKeys,
            (
                "test_a_taken_key_is_answered_with_its_holder[the same-ready]",
                "test_of_many_producers_with_one_key_one_creates_the_job",
            ),
        ),
        Fault(FreesTheKeyWhenDone, ("test_a_taken_key_is_answered_with_its_holder[the same-done]",)),
        Fault(NeverFreesAKey, ("test_a_forgotten_job_gives_its_key_back[done]",)),
        Fault(KeysOfAllQueuesAreOne, ("test_a_key_belongs_to_its_queue",)),
        Fault(RunsAFinishedJobAgain, ("test_the_same_job_registered_again_never_runs_again[done]",)),
        Fault(
            LosesTheError, ("test_the_last_error_is_kept[dead-unicode]", "test_the_last_error_is_the_last")
        ),
        Fault(
            KeepsNumbersAsAJsonColumnDoes,
            ("test_an_input_comes_back_exactly[floats]", "test_an_input_comes_back_exactly[order of names]"),
        ),
        Fault(LosesHeaders, ("test_every_field_comes_back_exactly",)),
        Fault(IgnoresPriorities, ("test_each_level_is_sooner_than_the_one_below",)),
        Fault(MixesQueues, ("test_queues_are_kept_apart",)),
        Fault(
            ClaimsNewestFirst,
            ("test_jobs_come_in_the_order_of_their_registration", "test_jobs_come_by_run_at_then_id"),
        ),
        Fault(StopsAtASpoiltJob, ("test_a_spoilt_job_dies_and_the_others_run[no object]",)),
        Fault(MixesUpVerdicts, ("test_one_lost_lease_takes_no_other_along[complete]",)),
        Fault(AllOrNothing, ("test_one_lost_lease_takes_no_other_along[complete]",)),
        Fault(RescuesAllAtOnce, ("test_a_rescue_takes_at_most_its_limit",)),
        Fault(ClaimsFromPausedQueues, ("test_claims_skip_a_paused_queue_and_no_other",)),
        Fault(CancelsRunningJobs, ("test_a_running_job_cant_be_cancelled",)),
        Fault(PrunesByAgeAlone, ("test_only_jobs_of_the_states_are_forgotten",)),
        Fault(PrunesTooMuch, ("test_jobs_that_finished_lately_are_kept",)),
        Fault(PagesOverlap, ("test_pages_follow_each_other_without_gap_or_overlap",)),
        Fault(CountsRunningJobsAsReady, ("test_jobs_are_counted_by_what_they_do",)),
        Fault(DeclaresADoorThatItHasNot, ("test_the_side_doors_are_those_that_the_driver_has",)),
        Fault(DeclaresFsync, ("test_a_registration_outlives_its_client",)),
    )
}


class BrokenHarness(Harness):
    """Opens one of the variants."""

    several_clients = False
    claimed_jobs = 500
    claimers = 10
    examples = 50
    patience = timedelta(seconds=2)

    def __init__(self, fault: Callable[[], Driver]) -> None:
        self.fault = fault

    def create(self) -> str:
        return "sqlite://"

    def connect(self, url: str) -> Driver:
        return self.fault()

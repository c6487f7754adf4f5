"""Histories that nobody thought of: Hypothesis makes them up, and the driver answers as the model does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.harness import Harness
from jobcontract.conformance.model import Model, ModelJob
from jobcontract.conformance.store import HOUR, NOTHING, Store, failure, job
from jobcontract.contract import (
    Failure,
    Feature,
    Job,
    Lease,
    State,
    Verdict,
)

QUEUES = ("a", "b")
FINISHED = (State.DONE, State.DEAD, State.CANCELLED)

_queues = st.lists(st.sampled_from(QUEUES), min_size=1, max_size=2, unique=True)
_rarely = st.sampled_from([False, False, False, True])
_some = st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True)
"""Which of the jobs or leases at hand; numbers beyond the last are taken modulo their count."""


class StatefulChapter(Chapter):
    """A driver against the model of the contract."""

    def test_the_driver_answers_as_the_model_does(self, store: Store) -> None:
        class Machine(DriverMachine):
            harness = store.harness

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=store.harness.examples,
                stateful_step_count=50,
                deadline=None,
                phases=[Phase.generate, Phase.shrink],
                print_blob=True,
                database=None,
                suppress_health_check=[
                    HealthCheck.too_slow,
                    HealthCheck.data_too_large,
                    HealthCheck.filter_too_much,
                ],
            ),
        )


class DriverMachine(RuleBasedStateMachine):
    """One store and one model of it, through one history."""

    harness: Harness

    def __init__(self) -> None:
        super().__init__()
        self.url = self.harness.create()
        self.store = Store(self.harness, self.url)
        self.driver = self.store.driver
        self.model = Model()
        self.leases: list[Lease] = []
        """Every lease that was ever given out, current or not."""

    def teardown(self) -> None:
        self.store.close()
        self.harness.destroy(self.url)

    def _has(self, feature: Feature) -> bool:
        return self.store.has(feature)

    # Producing --------------------------------------------------------------------------------------------

    @rule(
        drafts=st.lists(
            st.fixed_dictionaries(
                {
                    "queue": st.sampled_from(QUEUES),
                    "idempotency_key": st.sampled_from([None, "x", "y"]),
                    "input_ref": st.sampled_from([{}, {"other": 1}]),
                    "priority": st.integers(0, 9),
                    "max_attempts": st.integers(1, 3),
                    "future": _rarely,
                }
            ),
            min_size=1,
            max_size=4,
        )
    )
    def register(self, drafts: list[dict[str, Any]]) -> None:
        made: list[tuple[Job, bool]] = []
        for draft in drafts:
            future = draft["future"] and self._has("scheduling")
            fields = {name: value for name, value in draft.items() if name != "future"}
            fields["priority"] %= self.store.capabilities.priority_levels
            if not self._has("deduplication"):
                fields["idempotency_key"] = None
            if future:
                fields["run_at"] = self.store.now() + HOUR
            made.append((job(**fields), future))
        self._register(made)

    @rule(which=_some)
    def register_again(self, which: list[int]) -> None:
        known = self._pick(which)
        if known and self._has("deduplication"):
            self._register([(each.job, each.future) for each in known])

    def _register(self, made: list[tuple[Job, bool]]) -> None:
        answers = self.store.register(*(each for each, _ in made))
        assert len(answers) == len(made)
        for (each, future), answer in zip(made, answers, strict=True):
            holder, created, conflict = self.model.register(each, future=future)
            assert (str(answer.job_id), answer.created, answer.conflict) == (holder.id, created, conflict)
            assert answer.state in (holder.state, None)

    # Running ----------------------------------------------------------------------------------------------

    @rule(queues=_queues, limit=st.integers(1, 4))
    def claim(self, queues: list[str], limit: int) -> None:
        self._claim(queues, limit)

    @rule(queues=_queues, limit=st.integers(1, 4), fail=st.booleans())
    def claim_and_give_back(self, queues: list[str], limit: int, fail: bool) -> None:
        """What makes stale tokens: the next claim of these jobs has others."""
        leases = self._claim(queues, limit)
        if leases and fail:
            self._fail([failure(lease) for lease in leases])
        elif leases:
            self._release(leases, NOTHING)

    def _claim(self, queues: list[str], limit: int) -> list[Lease]:
        claimable = {each.id: each for each in self.model.claimable(queues)}
        count = min(limit, len(claimable))
        claimed = (
            self.store.claim_all(count, queues=queues) if count else self.store.claim(limit, queues=queues)
        )
        assert len(claimed) == count
        best = sorted((each.job.priority for each in claimable.values()), reverse=True)[:count]
        assert [record.priority for _, record in claimed] == best, "not by priority"
        for lease, record in claimed:
            assert lease.job_id in claimable, "claimed what was not to be had"
            model = claimable.pop(lease.job_id)
            self.model.claim(lease)
            self.leases.append(lease)
            assert (lease.attempt, lease.refunded) == (model.attempt, model.refunded)
            assert (record.input_ref, record.kind) == (model.job.input_json, model.job.kind)
        return [lease for lease, _ in claimed]

    @rule(which=_some)
    def complete(self, which: list[int]) -> None:
        leases = self._pick_leases(which)
        if leases:
            expected = [self.model.complete(lease) for lease in leases]
            self._assert_verdicts(self.driver.complete(leases), expected)

    @rule(which=_some, later=_rarely, permanent=_rarely, error=st.sampled_from(["", "it failed"]))
    def fail(self, which: list[int], later: bool, permanent: bool, error: str) -> None:
        retry_in = HOUR if later else NOTHING
        leases = self._pick_leases(which)
        if leases:
            self._fail([failure(lease, error, retry_in=retry_in, permanent=permanent) for lease in leases])

    def _fail(self, failures: list[Failure]) -> None:
        expected = [self.model.fail(each) for each in failures]
        self._assert_verdicts(self.driver.fail(failures), expected)

    @rule(which=_some, later=_rarely)
    def release(self, which: list[int], later: bool) -> None:
        leases = self._pick_leases(which)
        if leases:
            self._release(leases, HOUR if later else NOTHING)

    def _release(self, leases: list[Lease], delay: timedelta) -> None:
        expected = [self.model.release(lease, delay) for lease in leases]
        self._assert_verdicts(self.driver.release(leases, delay), expected)

    @rule(which=_some)
    def extend(self, which: list[int]) -> None:
        leases = self._pick_leases(which)
        if leases:
            expected = [self.model.extend(lease) for lease in leases]
            verdicts = self.driver.extend(leases, self.store.long_lease)
            assert [verdict.applied for verdict in verdicts] == expected

    @precondition(lambda self: self._has("timed_lease"))
    @rule(which=_some)
    def run_out(self, which: list[int]) -> None:
        running = [
            each for each in self.model.jobs.values() if each.state is State.RUNNING and not each.expired
        ]
        chosen = {running[number % len(running)].id: None for number in which} if running else {}
        current = {each.token: each for each in running}
        leases = [lease for lease in self.leases if lease.job_id in chosen and lease.token in current]
        if leases:
            self.store.run_out(leases)
            for lease in leases:
                current[lease.token].expired = True

    @precondition(lambda self: self._has("timed_lease"))
    @rule()
    def rescue(self) -> None:
        assert self.store.rescue_all() == self.model.rescue()

    # Operating --------------------------------------------------------------------------------------------

    # One rule for all of them, so that most of a history is work.
    @rule(
        operation=st.sampled_from(["cancel", "requeue", "prune", "pause", "resume", "resume"]),
        which=_some,
        states=st.sets(st.sampled_from(FINISHED), min_size=1),
        queue=st.sampled_from(QUEUES),
    )
    def operate(self, operation: str, which: list[int], states: set[State], queue: str) -> None:
        store, ids = self.store, [each.id for each in self._pick(which)]
        match operation:
            case "cancel" if ids and self._has("cancel"):
                expected = [self.model.cancel(identifier) for identifier in ids]
                assert store.cancellation.cancel(ids) == expected
            case "requeue" if ids and self._has("requeue"):
                expected = [self.model.requeue(identifier) for identifier in ids]
                assert store.requeueing.requeue(ids) == expected
            case "prune" if self._has("prune"):
                assert store.pruning.prune(NOTHING, states, 1000) == self.model.prune(states)
            case "pause" if self._has("pause"):
                store.pausing.pause(queue)
                self.model.paused.add(queue)
            case "resume" if self._has("pause"):
                store.pausing.resume(queue)
                self.model.paused.discard(queue)
            case _:
                pass

    # What must be true all the time -----------------------------------------------------------------------

    @invariant()
    def jobs_are_as_in_the_model(self) -> None:
        if not self._has("lookup"):
            return
        for identifier, model in self.model.jobs.items():
            stored = self.store.stored(identifier)
            assert (stored.state, stored.attempt) == (model.state, model.attempt)
            if model.failed_with is not None:
                assert stored.last_error == model.failed_with

    @invariant()
    def statistics_are_as_in_the_model(self) -> None:
        if not self._has("stats"):
            return
        rows = {row.queue: row for row in self.store.statistics.stats()}
        for queue in QUEUES:
            jobs = [each for each in self.model.jobs.values() if each.job.queue == queue]
            if not jobs and queue not in self.model.paused:
                assert queue not in rows
                continue
            row = rows.get(queue)
            if (
                row is None
                and queue not in self.model.paused
                and {each.state for each in jobs} == {State.DONE}
            ):
                continue  # a store that does not count done jobs may not know the queue any more
            assert row is not None, f"the statistics leave out queue {queue!r}"
            assert row.ready == _count(jobs, lambda each: each.state is State.READY and not each.future)
            assert row.scheduled == _count(jobs, lambda each: each.state is State.READY and each.future)
            assert row.running == _count(jobs, lambda each: each.state is State.RUNNING)
            assert row.expired == _count(jobs, lambda each: each.expired)
            assert row.dead == _count(jobs, lambda each: each.state is State.DEAD)
            assert row.done in (None, _count(jobs, lambda each: each.state is State.DONE))
            assert row.cancelled in (None, _count(jobs, lambda each: each.state is State.CANCELLED))
            assert row.paused == (queue in self.model.paused)

    # Choosing ---------------------------------------------------------------------------------------------

    def _pick(self, which: list[int]) -> list[ModelJob]:
        known = list(self.model.jobs.values())
        return (
            list({id(each): each for each in (known[number % len(known)] for number in which)}.values())
            if known
            else []
        )

    def _pick_leases(self, which: list[int]) -> list[Lease]:
        """Some leases, the latest first, of different jobs, some of them stale."""
        found: dict[str, Lease] = {}
        for number in which if self.leases else []:
            lease = self.leases[-1 - number % len(self.leases)]
            found.setdefault(lease.job_id, lease)
        return list(found.values())

    def _assert_verdicts(self, verdicts: list[Verdict], expected: list[State | None]) -> None:
        assert [verdict.state for verdict in verdicts] == expected
        assert [verdict.applied for verdict in verdicts] == [state is not None for state in expected]


def _count(jobs: list[ModelJob], condition: Callable[[ModelJob], bool]) -> int:
    return sum(1 for each in jobs if condition(each))

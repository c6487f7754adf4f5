"""The checker finds a planted violation of each promise, and accuses nobody without proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.faults.checker import PROMISES, check
from tests.faults.history import Outcome
from tests.faults.story import Story


@dataclass(frozen=True)
class Planted:
    """A history that breaks one promise, and what the checker has to say about it."""

    promise: int
    tell: Callable[[Story], None]
    subject: str
    says: str
    where: tuple[str, ...]


def lost(story: Story) -> None:
    story.register("j")
    story.final()


def forgotten(story: Story) -> None:
    story.register("j")
    story.final(j="ready")


def lost_without_lookup(story: Story) -> None:
    story.setting(lookup=False)
    story.register("j")
    token = story.claim("j")
    story.settle("fail", token, state="ready")
    story.final()


def lost_key_holder(story: Story) -> None:
    story.register("other", key="k", holder="j")
    story.final()


def claimed_after_completion(story: Story) -> None:
    story.register("j")
    story.finish("j")
    story.claim("j", 2)
    story.final(j="done")


def completed_twice(story: Story) -> None:
    story.register("j")
    story.finish("j")
    story.finish("j", 2)
    story.final(j="done")


def completion_undone(story: Story) -> None:
    story.register("j")
    story.finish("j")
    story.final(j="cancelled")


def done_unrun(story: Story) -> None:
    story.register("j")
    story.settle("complete", story.claim("j"), state="done")
    story.final(j="done")


def rolled_back_but_claimed(story: Story) -> None:
    story.register("j", intends="rollback")
    story.finish("j")


def rolled_back_but_there(story: Story) -> None:
    story.register("j", intends="rollback")
    story.final(j="ready")


def rolled_back_but_holds_its_key(story: Story) -> None:
    story.register("j", key="k", intends="rollback")
    story.register("other", key="k", holder="j")
    story.final(j="done")


def committed_without_its_row(story: Story) -> None:
    story.register("j", intends="commit", outcome=Outcome.UNKNOWN)
    story.finish("j")
    story.final(j="done")
    story.tell("business", {"ids": []}, by="runner")


def row_without_its_job(story: Story) -> None:
    story.register("j", intends="commit")
    story.final()
    story.tell("business", {"ids": ["j"]}, by="runner")


def overlapping(story: Story) -> None:
    story.register("j")
    story.claim("j")
    story.claim("j", 2, by="worker-2")


def overlapping_an_extension(story: Story) -> None:
    story.register("j")
    token = story.claim("j", lease=1)
    story.settle("extend", token, at=story.now + 10)
    story.now += 2
    story.claim("j", 2, by="worker-2")


def overlapping_a_refused_failure(story: Story) -> None:
    story.register("j")
    token = story.claim("j")
    story.settle("fail", token, applied=False)
    story.claim("j", 2, by="worker-2")


def stale_completion(story: Story) -> None:
    story.register("j")
    token = story.claim("j", lease=1)
    story.now += 2
    story.claim("j", 2, by="worker-2")
    story.settle("complete", token, state="done")


def completed_after_expiry(story: Story) -> None:
    story.register("j")
    token = story.claim("j", lease=1)
    story.now += 2
    story.settle("complete", token, state="done")


def extended_after_expiry(story: Story) -> None:
    story.register("j")
    token = story.claim("j", lease=1)
    story.now += 2
    story.settle("extend", token, at=story.now + 10)


def done_behind_the_holders_back(story: Story) -> None:
    story.register("j")
    token = story.claim("j")
    story.run("j")
    story.settle("complete", token, applied=False)
    story.final(j="done")


def one_token_twice(story: Story) -> None:
    story.register("j")
    token = story.claim("j", lease=1)
    story.now += 2
    story.claim("j", 2, token=token, by="worker-2")


def two_holders(story: Story) -> None:
    story.register("j", key="k")
    story.register("other", key="k")


def two_runs_of_a_key(story: Story) -> None:
    story.register("j", key="k")
    story.register("other", key="k", outcome=Outcome.UNKNOWN)
    story.finish("j")
    story.finish("other")


def fewer_attempts(story: Story) -> None:
    story.register("j")
    story.settle("fail", story.claim("j", 2), state="ready")
    story.claim("j", 1)


def the_same_attempt(story: Story) -> None:
    story.register("j")
    story.settle("fail", story.claim("j"), state="ready")
    story.claim("j", token="other/1")


def dead_too_soon(story: Story) -> None:
    story.register("j", max_attempts=3)
    story.settle("fail", story.claim("j"), state="dead")
    story.final(j="dead")


def dead_of_a_release(story: Story) -> None:
    story.register("j", max_attempts=2)
    story.settle("release", story.claim("j"), state="ready")
    story.settle("fail", story.claim("j", 2, refunded=1), state="dead")
    story.final(j="dead", attempt=2)


def too_early(story: Story) -> None:
    story.register("j", run_at=story.now + 60)
    story.claim("j")


def retried_too_early(story: Story) -> None:
    story.register("j")
    story.settle("fail", story.claim("j"), state="ready", at=story.now + 60)
    story.claim("j", 2)


def too_late(story: Story) -> None:
    story.register("j")
    story.tell("probe", {"id": "j", "within": 5.0, "promise": 6}, by="prober")
    story.now += 8
    story.claim("j")


def never_rescued(story: Story) -> None:
    story.register("j")
    story.claim("j")
    story.exit("worker-1", "KILL", -9)
    story.final(j="running")


def rescued_late(story: Story) -> None:
    story.setting(rescue=1.0, margin=10.0)
    story.register("j")
    story.claim("j", lease=2)
    story.exit("worker-1", "KILL", -9)
    story.now += 20
    story.claim("j", 2, by="worker-2")


def never_published(story: Story) -> None:
    story.setting(outbox="host", window=10)
    story.register("j", intends="commit", store="host")
    story.final(j="done")


def published_too_often(story: Story) -> None:
    story.setting(outbox="host", window=2)
    story.fault("kill the relay")
    for job in ("j", "k", "l"):
        story.register(job, intends="commit", store="host")
        story.register(job, by="relay-1")
        story.register(job, by="relay-2")


def not_resumed(story: Story) -> None:
    story.tell("step", {"to": "sealed"}, by="coordinator-1", outcome=Outcome.UNKNOWN)


def two_homes(story: Story) -> None:
    story.tell("step", {"to": "sealed"}, by="coordinator-1")
    story.final(j="ready", store="a")
    story.final(j="done", store="b")


def completed_in_both(story: Story) -> None:
    story.tell("step", {"to": "sealed"}, by="coordinator-1")
    story.finish("j", store="a")
    story.finish("j", 2, store="b")


def leased_in_both(story: Story) -> None:
    story.tell("step", {"to": "sealed"}, by="coordinator-1")
    story.claim("j", store="a")
    story.claim("j", 2, store="b", by="worker-2")


def ended_badly(story: Story) -> None:
    story.tell("step", {"command": ["migrate", "complete"]}, {"code": 4}, by="coordinator-1")


def given_up(story: Story) -> None:
    story.tell("step", {"to": "sealed"}, {"code": 0}, by="coordinator-1")
    story.tell("move", {"target": "b"}, by="runner", outcome=Outcome.UNKNOWN)


def claimed_behind_the_fence(story: Story) -> None:
    story.register("j")
    story.step()
    story.gate(3, claims=False)
    story.claim("j")


def registered_behind_the_fence(story: Story) -> None:
    story.step()
    story.gate(3, intake=False)
    story.register("j", by="stale-1")


def registered_by_who_was_refused_to_open(story: Story) -> None:
    story.step()
    story.gate(5, intake=False)
    story.gate(4, holds=5)
    story.register("j", by="stale-1")


def another_job(story: Story) -> None:
    story.step()
    story.register("j", print="cafe")
    story.claim("j", store="b", print="babe")


def created_anew(story: Story) -> None:
    story.step()
    story.register("j")
    story.now += 5
    story.finish("j", store="b")
    story.final(store="b", created=story.now, j="done")


def a_tick_left_out(story: Story) -> None:
    for second in (0, 1, 3):
        story.register(f"j{second}", key=f"schedule:tick:2026-11-30T02:00:0{second}Z")


def left_behind(story: Story) -> None:
    story.register("j")
    story.claim("j")
    story.exit("worker-1", "TERM", 0)


def killed_by_its_end(story: Story) -> None:
    story.exit("worker-1", "TERM", 1)


def shutdown_burns_an_attempt(story: Story) -> None:
    story.register("j")
    story.settle("release", story.claim("j"), state="ready")
    story.claim("j", 2, refunded=0, by="worker-2")


def never_recovered(story: Story) -> None:
    story.fault("restart the server")
    story.register("j")
    story.tell("probe", {"id": "j", "within": 20.0, "promise": 11}, by="prober")


def poisoned_and_stuck(story: Story) -> None:
    story.tell("expect", {"jobs": {"j": "dead"}}, by="runner")
    story.register("j")
    story.final(j="running")


def unknown_kind_discarded(story: Story) -> None:
    story.tell("expect", {"jobs": {"j": "stays"}}, by="runner")
    story.register("j")
    story.final(j="dead", attempt=9)


PLANTED = [
    Planted(1, lost, "j", "acknowledged and lost", ("register",)),
    Planted(1, forgotten, "j", "forgotten: it is ready", ("register",)),
    Planted(1, lost_without_lookup, "j", "acknowledged and lost", ("register",)),
    Planted(1, lost_key_holder, "j", "acknowledged and lost", ("register",)),
    Planted(1, claimed_after_completion, "j", "claimed after it was completed", ("complete", "claim")),
    Planted(1, completed_twice, "j", "completed twice", ("complete", "complete")),
    Planted(1, completion_undone, "j", "is cancelled at the end", ("complete", "final")),
    Planted(1, done_unrun, "j", "no handler came to its end", ("final",)),
    Planted(2, rolled_back_but_claimed, "j", "and was claimed", ("transaction", "claim")),
    Planted(2, rolled_back_but_there, "j", "is ready at the end", ("transaction", "final")),
    Planted(2, rolled_back_but_holds_its_key, "j", "holds its key", ("transaction", "register")),
    Planted(2, committed_without_its_row, "j", "the job is there, and the producer's row", ("transaction",)),
    Planted(2, row_without_its_job, "j", "the producer's row is there, and the job", ("transaction",)),
    Planted(3, overlapping, "j", "while the lease of attempt 1 was valid", ("claim", "claim")),
    Planted(3, overlapping_an_extension, "j", "while the lease of attempt 1 was valid", ("claim", "claim")),
    Planted(
        3, overlapping_a_refused_failure, "j", "while the lease of attempt 1 was valid", ("claim", "claim")
    ),
    Planted(3, stale_completion, "j", "worked during attempt 2", ("claim", "claim", "complete")),
    Planted(3, completed_after_expiry, "j", "after the lease of attempt 1 ran out", ("claim", "complete")),
    Planted(3, extended_after_expiry, "j", "after the lease of attempt 1 ran out", ("claim", "extend")),
    Planted(3, done_behind_the_holders_back, "j", "told that its lease was lost", ("complete", "final")),
    Planted(3, one_token_twice, "j", "a token that was given before", ("claim", "claim")),
    Planted(4, two_holders, "key 'k' of default", "held by j and then by other", ("register", "register")),
    Planted(4, two_runs_of_a_key, "key 'k' of default", "claimed as j and as other", ("claim", "claim")),
    Planted(5, fewer_attempts, "j", "attempt 1 came after attempt 2", ("claim", "claim")),
    Planted(5, the_same_attempt, "j", "attempt 1 came after attempt 1", ("claim", "claim")),
    Planted(5, dead_too_soon, "j", "dead after 1 of 3 attempts", ("final",)),
    Planted(5, dead_of_a_release, "j", "dead after 1 of 2 attempts", ("final",)),
    Planted(6, too_early, "j", "before its run_at", ("register", "claim")),
    Planted(6, retried_too_early, "j", "before its run_at", ("register", "claim")),
    Planted(6, too_late, "j", "instead of within 5 s", ("probe", "claim")),
    Planted(7, never_rescued, "j", "though worker-1 was killed", ("claim", "exit")),
    Planted(7, rescued_late, "j", "of the killed worker-1 ran out", ("claim", "exit", "claim")),
    Planted(8, never_published, "j", "never published", ("transaction",)),
    Planted(8, published_too_often, "relay", "3 jobs were published again", ()),
    Planted(9, not_resumed, "coordinator-1", "not resumed", ("step",)),
    Planted(9, two_homes, "j", "ready in a and done in b", ("final", "final")),
    Planted(9, completed_in_both, "j", "completed in a and in b", ("complete", "complete")),
    Planted(9, leased_in_both, "j", "ran in b while a had leased it", ("claim", "claim")),
    Planted(9, ended_badly, "coordinator-1", "ended with 4", ("step",)),
    Planted(9, given_up, "migration", "did not come to the end", ("move", "step")),
    Planted(
        9, claimed_behind_the_fence, "j", "claimed in a, which was shut in epoch 3", ("set_gate", "claim")
    ),
    Planted(9, registered_behind_the_fence, "j", "a, which was shut in epoch 3", ("set_gate", "register")),
    Planted(
        9, registered_by_who_was_refused_to_open, "j", "which was shut in epoch 5", ("set_gate", "register")
    ),
    Planted(9, another_job, "j", "another in b than was registered", ("register", "claim")),
    Planted(9, created_anew, "j", "after it had been registered", ("register", "final")),
    Planted(10, left_behind, "j", "neither finished nor given back", ("claim", "exit")),
    Planted(10, killed_by_its_end, "worker-1", "ended with 1", ("exit",)),
    Planted(10, shutdown_burns_an_attempt, "j", "was spent all the same", ("release", "claim")),
    Planted(11, never_recovered, "j", "not claimed within 20 s", ("probe",)),
    Planted(11, a_tick_left_out, "schedule tick", "no job between 02:00:01 and 02:00:03", ("register",) * 2),
    Planted(12, poisoned_and_stuck, "j", "should be dead, but is running", ()),
    Planted(12, unknown_kind_discarded, "j", "should wait, but is dead", ()),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: f"{each.promise}-{each.tell.__name__}")
def test_a_planted_violation_is_found(planted: Planted) -> None:
    story = Story()
    planted.tell(story)
    found = [each for each in check(story.history) if each.promise == planted.promise]
    fitting = [each for each in found if each.subject == planted.subject and planted.says in each.says]
    assert fitting, f"found only {[str(each) for each in found]}"
    assert tuple(each.verb for each in fitting[0].where) == planted.where


def test_every_promise_has_a_planted_violation() -> None:
    assert {planted.promise for planted in PLANTED} == {promise.number for promise in PROMISES}


def test_a_sound_history_is_not_accused() -> None:
    story = Story()
    story.setting(rescue=1.0, margin=10.0)
    story.register("plain")
    story.finish("plain")
    story.register("keyed", key="k")
    story.register("again", key="k", holder="keyed")
    story.finish("keyed")
    story.register("gone", key="free", intends="rollback")
    story.register("kept", key="free", intends="commit")
    story.finish("kept")
    story.register("dies", max_attempts=2)
    story.settle("fail", story.claim("dies"), state="ready", at=story.now)
    story.settle("release", story.claim("dies", 2), state="ready", at=story.now)
    story.settle("fail", story.claim("dies", 3, refunded=1), state="dead")
    story.register("hopeless")
    story.settle("fail", story.claim("hopeless"), state="dead", permanent=True)
    story.register("killed")
    story.claim("killed", lease=2)
    story.exit("worker-1", "KILL", -9)
    story.now += 3
    story.finish("killed", 2, by="worker-2")
    story.register("probe", run_at=story.now)
    story.tell("probe", {"id": "probe", "within": 5.0, "promise": 6}, by="prober")
    story.finish("probe", by="worker-2")
    story.exit("worker-2", "TERM")
    story.final(plain="done", keyed="done", kept="done", killed="done", probe="done", hopeless="dead")
    story.final(dies="dead", attempt=3)
    assert check(story.history) == []


def completed_or_not(story: Story) -> None:
    story.settle("complete", story.claim("j"), outcome=Outcome.UNKNOWN)
    story.run("j")


def failed_or_not(story: Story) -> None:
    story.settle("fail", story.claim("j"), outcome=Outcome.UNKNOWN)
    story.finish("j", 2, by="worker-2")


def extended_or_not(story: Story) -> None:
    token = story.claim("j", lease=1)
    story.settle("extend", token, outcome=Outcome.UNKNOWN)
    story.now += 2
    story.run("j")
    story.settle("complete", token, state="done")


@pytest.mark.parametrize(
    "tell", [completed_or_not, failed_or_not, extended_or_not], ids=lambda each: each.__name__
)
def test_what_is_unknown_accuses_nobody(tell: Callable[[Story], None]) -> None:
    story = Story()
    story.register("j", outcome=Outcome.UNKNOWN)
    tell(story)
    story.final(j="done")
    assert check(story.history) == []


def test_a_registration_without_an_answer_may_be_there_or_not() -> None:
    story = Story()
    story.register("j", outcome=Outcome.UNKNOWN)
    story.register("k", intends="commit", outcome=Outcome.UNKNOWN)
    story.final()
    assert check(story.history) == []


def test_what_a_worker_lost_before_it_was_stopped_is_not_its_to_give_back() -> None:
    story = Story()
    story.register("j")
    token = story.claim("j", lease=2)
    story.settle("extend", token, applied=False)
    story.register("k")
    story.claim("k", lease=2)
    story.now += 3
    story.exit("worker-1", "TERM")
    story.finish("j", 2, by="worker-2")
    story.finish("k", 2, by="worker-2")
    story.final(j="done", k="done", attempt=2)
    assert check(story.history) == []


def test_a_sound_migration_is_not_accused() -> None:
    """A registration and a claim race with the fence, a job ends where it was, another moves, and one that is
    done is known in both stores.
    """
    story = Story()
    story.register("stays", key="k", print="cafe")
    token = story.claim("stays", print="cafe")
    story.register("moves")
    story.tell("register", {"jobs": []}, [], lasts=1.0, by="stale-1")  # it began before the fence
    story.step()
    story.gate(3, intake=False)
    story.run("stays")
    story.settle("complete", token, state="done")
    story.gate(4, intake=False, claims=False)
    story.register("refused", by="stale-1", outcome=Outcome.FAIL)
    story.register("known", key="k", holder="stays")
    story.finish("moves", store="b")
    story.gate(5)
    story.register("back")
    story.finish("back")
    story.tell("step", {"to": "completed"}, {"code": 0}, by="coordinator-2")
    story.tell("move", {"target": "b"}, {"turns": 1}, by="runner")
    story.final(stays="done", moves="moved", back="done")
    story.final(store="b", stays="done", moves="done")
    assert check(story.history) == []


def test_an_outage_excuses_a_late_rescue() -> None:
    story = Story()
    story.setting(rescue=1.0, margin=10.0)
    story.register("j")
    story.claim("j", lease=2)
    story.exit("worker-1", "KILL", -9)
    story.fault("stop the server", lasts=20.0)
    story.finish("j", 2, by="worker-2")
    story.final(j="done")
    assert check(story.history) == []


def test_faults_at_another_time_make_no_rescue_late() -> None:
    story = Story()
    story.setting(rescue=1.0, margin=10.0)
    story.fault("long before", lasts=5.0)
    story.register("j")
    story.claim("j", lease=2)
    story.exit("worker-1", "KILL", -9)
    story.now += 3
    story.finish("j", 2, by="worker-2")
    for _ in range(3):
        story.now += 30
        story.fault("long behind")
    story.final(j="done")
    assert check(story.history) == []


def test_a_broker_that_says_that_a_lease_is_lost_has_not_leased_the_job_any_more() -> None:
    """It would have held it for half an hour, but the connection broke."""
    story = Story()
    story.setting(copies=True)
    story.tell("step", {"to": "sealed"}, by="coordinator-1")
    token = story.claim("j", store="a", lease=1800)
    story.settle("complete", token, applied=False, store="a")
    story.claim("j", 2, store="b", by="worker-2")
    assert check(story.history, frozenset({9})) == []


def test_a_killed_worker_has_not_leased_the_job_of_a_broker_any_more() -> None:
    story = Story()
    story.setting(copies=True)
    story.tell("step", {"to": "sealed"}, by="coordinator-1")
    story.claim("j", store="a", lease=1800)
    story.exit("worker-1", "KILL", -9)
    story.claim("j", 2, store="b", by="worker-2")
    assert check(story.history, frozenset({9})) == []

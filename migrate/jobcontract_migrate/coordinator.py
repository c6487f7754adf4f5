"""The coordinator: takes a migration from one state to the next, until where it was told to.

A state machine over the row in the control store (drawn in states.py) and nothing else: whatever a
coordinator knew is in the stores, so that another one, started after a kill, goes on. It goes forward only.
Each step is first written down, with a new epoch, and then done; each effect can be repeated; and a store
that has seen a later epoch refuses whoever acts for an earlier one, so that a coordinator which was only
stopped, and comes back, changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jobcontract.config import Settings
from jobcontract.contract import Driver, State
from jobcontract.errors import JobContractError, StoreError
from jobcontract.side_doors import CarriesCopies, Installation, Lookup, Page, Pausing, QueueStats, Statistics
from jobcontract_migrate.canary import CANARY, send_canary
from jobcontract_migrate.charge import Busy, Charge
from jobcontract_migrate.control import HOLDS_FOR, LIVE_FOR, Conflict, Control, Move
from jobcontract_migrate.ends import Ends, NotNow
from jobcontract_migrate.move import Mover, Reach
from jobcontract_migrate.sentences import (
    already_under_way,
    instead_of_abort,
    instead_of_complete,
    instead_of_reverse,
    why_not_compared,
)
from jobcontract_migrate.states import (
    BEFORE_THE_FENCE,
    BEHIND_THE_FENCE,
    IN_ORDER,
    Phase,
)
from jobcontract_migrate.verify import LAST_ID, Comparison, Difference, Window, repair

_LOOK = 0.1
"""Seconds between two looks at something that will happen."""
_LONGEST_POSTPONEMENT = 30.0
_SHOWN_DIFFERENCES = 1000


class Interrupted(JobContractError):
    """Stopped on request. The same command goes on."""


class VerificationFailed(JobContractError):
    """The stores differ."""

    def __init__(self, message: str, differences: Sequence[Difference]) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


@dataclass(frozen=True, slots=True)
class Options:
    """How a coordinator goes about it."""

    batch: int = 1000
    """Jobs that are moved at a time."""
    cutover_timeout: timedelta = timedelta(seconds=5)
    """How long the source may be fenced before that is given up and tried again later: the longest time in
    which nobody can register."""
    max_rate: float | None = None
    """Jobs per second; None is as fast as it goes."""
    max_target_age: timedelta | None = None
    """The mover rests while the oldest due job at the target has waited for longer."""
    pause_file: Path | None = None
    """The mover rests while there is such a file."""


@dataclass(slots=True)
class Progress:
    """What the coordinator is doing, for whoever watches."""

    move: Move
    moved: int = 0
    """Jobs moved by this process."""
    total: int | None = None
    """How many there were to move when it began, as far as can be told."""
    running: int = 0
    """Jobs that still run at the source."""
    waiting_for: str = ""
    """Why nothing moves just now."""
    acknowledged: tuple[int, int] = (0, 0)
    """How many of the live clients that claim go by the current step, and how many there are."""


def _nothing(point: str) -> None:
    del point


class Coordinator:
    """One process at work on the migration of the control store. Not safe in threads but for `stop`."""

    def __init__(
        self,
        settings: Settings,
        options: Options | None = None,
        *,
        reach: Reach = _nothing,
        watch: Callable[[Progress], None] | None = None,
    ) -> None:
        """`reach` is called at each named point between two effects, `watch` whenever there is news. Contacts
        nothing. Raises `ConfigError` when no control store is configured.
        """
        self._settings = settings
        self._options = options or Options()
        self._reach = reach
        self._watch = watch
        self._stack = ExitStack()
        self.control = Control.open(settings)
        """The control store."""
        self._stack.callback(self.control.close)
        self.ends = Ends(settings, self.control)
        """The stores."""
        self._stack.callback(self.ends.close)
        self._charge = Charge(self.control, self.ends, self._reach)
        self._stopped = threading.Event()
        self._postponed = 0
        self.progress: Progress | None = None

    def close(self) -> None:
        """Be in charge no more, and close every connection."""
        with suppress(StoreError):  # then the time of whoever says nothing runs out
            self._charge.let_go()
        self._stack.close()

    def stop(self) -> None:
        """Have it stop between two batches, with `Interrupted`. Returns at once; for signal handlers."""
        self._stopped.set()

    # -- What a person asks for ----------------------------------------------------------------------------

    def begin(self, source: str, target: str, facts: Mapping[str, object]) -> Move:
        """Write down that jobs are to move from `source` to `target`. Raises `NotNow`."""
        self.control.install()
        last = self.control.read()
        if last is not None and not last.is_over:
            raise NotNow(already_under_way(last))
        move = Move(
            number=last.number + 1 if last else 1,
            source=source,
            target=target,
            state=Phase.PREPARING,
            epoch=last.epoch + 1 if last else 1,
            home=source,
            consulted=None,
            keys_copied=True,
            claimed=(source,),
            fence_until=None,
            paused=False,
            owner=self._charge.owner,
            owner_until=None,
            started_at=0,
            changed_at=0,
            facts=facts,
        )
        if not self.control.add(move, self._charge.owner):
            raise Busy("another coordinator has begun a migration just now; see `jobctl migrate status`")
        self.control.say(move, f"begun: {source} to {target}")
        self._reach("begun")
        return self._charge.take()

    def run(self, until: Phase) -> Move:
        """Go on until `until`. Blocks. Raises `Busy`, `Superseded`, `Interrupted`, `VerificationFailed`, and
        `StoreError`; after each the same call goes on.
        """
        move = self._charge.take()
        steps: dict[Phase, Callable[[Move], Move]] = {
            Phase.PREPARING: self._prepare,
            Phase.DUAL_READ: self._read_both,
            Phase.FENCING: self._cross_the_fence,
            Phase.MOVING: self._move_jobs,
            Phase.VERIFYING: self._verify,
        }
        while move.state in steps and IN_ORDER.index(move.state) < IN_ORDER.index(until):
            self._show(move)
            self._check_stop()
            move = steps[move.state](move)
        if move.state is Phase.SEALED:
            self._sweep(move)
        self._show(move)
        self._charge.let_go()
        return move

    def reverse(self) -> Move:
        """Turn round: what was the target is the source from now on. `run` does the rest. Raises `NotNow`."""
        move = self._charge.take()
        if move.state not in BEHIND_THE_FENCE:
            raise NotNow(instead_of_reverse(move))
        self.ends.source(move.target)
        self._mover(move).finish_hidden(self._options.batch)
        self._reach("reversing")
        # Both stores have had registrations of their own by now: what is there proves nothing any more. And
        # what was compared on the way there says nothing of the way back.
        move = self._charge.keep_facts(
            move, first_source=None, compared=None, differences=None, not_compared=None
        )
        turned = replace(
            move,
            source=move.target,
            target=move.source,
            state=Phase.DUAL_READ,
            epoch=move.epoch + 1,
            claimed=(move.target, move.source),
            consulted=None if move.state is Phase.SEALED else move.consulted,
        )
        return self._charge.advance(move, turned, f"reversed: {turned.source} to {turned.target}")

    def abort(self) -> Move:
        """Give up, while jobs are still registered at the source. Raises `NotNow`."""
        move = self._charge.take()
        if move.state not in BEFORE_THE_FENCE or move.consulted is not None or move.home != move.source:
            raise NotNow(instead_of_abort(move))
        over = replace(
            move, state=Phase.ABORTED, epoch=move.epoch + 1, claimed=(move.source,), consulted=None
        )
        move = self._charge.advance(move, over, "aborted")
        self._charge.let_go()
        return move

    def complete(self) -> Move:
        """Remove the traces at the source: the point of no return. Raises `NotNow`."""
        move = self._charge.take()
        if move.state is not Phase.SEALED:
            raise NotNow(instead_of_complete(move))
        self._sweep(move)
        forgotten = 0
        while count := self.ends.source(move.source).forget_buried(move.epoch, self._options.batch):
            forgotten += count
            self._reach("forgotten")
            self._charge.keep(move)
        self._end_what_stayed_away(move)
        left = 1 if self.ends.is_broker(move.target) else 0
        while self.control.journal.forget(left, self._options.batch):
            self._charge.keep(move)
        over = replace(move, state=Phase.COMPLETED, epoch=move.epoch + 1)
        move = self._charge.advance(move, over, f"completed: {forgotten} traces removed at {move.source}")
        self._charge.let_go()
        return move

    def verify(self, move: Move) -> Iterable[Difference]:
        """The differences between the two stores of `move`, as they are found; changes nothing, and is not in
        charge. Raises `NotNow` when jobs at the target can't be looked up.
        """
        return self._differences(move, self._check_stop)

    def _differences(self, move: Move, at_page: Callable[[], None]) -> Iterable[Difference]:
        comparison = self._comparison(move, at_page)
        if comparison is None:
            raise NotNow(why_not_compared(move))
        return comparison.differences()

    def repair(self) -> tuple[int, list[Difference]]:
        """Restore the jobs that are missing at the target; how many, and what is left."""
        move = self._charge.take()
        if move.state not in BEHIND_THE_FENCE:
            raise NotNow(f"there is nothing to repair while a migration is {move.state.value}")
        found = list(self._differences(move, lambda: self._go_on(move)))
        missing = {each.job_id for each in found if each.finding == "missing"}
        restored = repair(self.ends.source(move.source), self.ends.target(move.target), move.epoch, missing)
        self.control.say(move, f"repaired: {restored} missing jobs were stored again at {move.target}")
        self._charge.let_go()
        return restored, [each for each in found if each.finding != "missing"]

    # -- The steps -----------------------------------------------------------------------------------------

    def _prepare(self, move: Move) -> Move:
        source, target = self.ends.driver(move.source), self.ends.driver(move.target)
        if isinstance(target, Installation):
            target.install()
        self._charge.set_gates(move)  # the target had none before it was installed
        self._reach("installed")
        self._copy_pauses(source, target)
        clock = self._send_canary(move)
        self._reach("canary")
        if "target_clock" not in move.facts and clock is not None:
            move = self._charge.keep_facts(
                move, target_clock=clock.isoformat(), target_was_empty=_is_empty(target)
            )
        for _ in self._mover(move).copy_keys(self._options.batch, only_done=True):
            self._charge.keep(move)
        both = replace(move, state=Phase.DUAL_READ, epoch=move.epoch + 1, claimed=(move.source, move.target))
        return self._charge.advance(move, both, "jobs are claimed at both stores")

    def _read_both(self, move: Move) -> Move:
        if self._postponed:
            pause = min(2.0 ** min(self._postponed, 10), _LONGEST_POSTPONEMENT)
            self._wait(move, lambda: False, "the cut-over was postponed", for_seconds=pause)
        self._wait(move, lambda: self._all_know(move), "")
        self._copy_pauses(self.ends.driver(move.source), self.ends.driver(move.target))
        clock = self._send_canary(move)
        move = self._charge.keep_facts(move, **({} if clock is None else {"fenced_clock": clock.isoformat()}))
        self._reach("fencing")
        fenced = replace(move, state=Phase.FENCING, epoch=move.epoch + 1)
        return self._charge.advance(
            move, fenced, f"{move.source} is fenced", fence=self._options.cutover_timeout.total_seconds()
        )

    def _cross_the_fence(self, move: Move) -> Move:
        """From the fence on nothing is registered anywhere; what was let in before has to end. Then jobs are
        registered at the target. When it takes too long, anybody lifts the fence, and it is tried later.
        """
        deadline = time.monotonic() + self._options.cutover_timeout.total_seconds()
        straddling = self._straddling(move, deadline)
        if not straddling and self.ends.is_broker(move.source):
            # A broker shuts nobody out: who learned of the fence last may have begun just before that.
            straddling = self._straddling(move, deadline)
        if not straddling:
            self._send_canary(move)  # a target that died meanwhile would leave producers without any store
        self._reach("fenced")
        crossed = replace(
            move,
            state=Phase.MOVING,
            epoch=move.epoch + 1,
            home=move.target,
            consulted=move.source,
            keys_copied=False,
            # A broker is the mover's alone from here on: what it holds, workers can't be told to leave.
            claimed=(move.target,) if self.ends.is_broker(move.source) else move.claimed,
        )
        said = f"jobs are registered at {move.target}"
        if not straddling and self.control.advance(crossed, move, self._charge.owner, said):
            self._postponed = 0
            self._reach("crossed")
            return self._charge.entered(crossed)
        self._postponed += 1
        return self._charge.lift_fence(
            move, f"postponed: {len(straddling)} transactions had not ended in time"
        )

    def _straddling(self, move: Move, deadline: float) -> frozenset[str]:
        """Wait for those who registered before; who has not ended in time."""
        source = self.ends.source(move.source)
        straddling = source.open_registrations()
        while straddling and time.monotonic() < deadline:
            self._show(move, f"{len(straddling)} transactions that began before have not ended")
            time.sleep(_LOOK / 5)
            straddling &= source.open_registrations()
        return straddling

    def _move_jobs(self, move: Move) -> Move:
        source = self.ends.driver(move.source)
        mover = self._mover(move)
        progress = self._show(move)
        progress.total = _count(source)
        mover.finish_hidden(self._options.batch)
        if not move.keys_copied:
            for _ in mover.copy_keys(self._options.batch):
                self._charge.keep(move)
                self._check_stop()
            self.control.set_keys_copied(move, self._charge.owner)
            move = replace(move, keys_copied=True)
            self._reach("all keys copied")
        empty_looks = 0
        while empty_looks < 2:  # what was given back between a look at the store and one at the workers
            self._throttle(move)
            began, count = time.monotonic(), 0
            for moved in mover.batches(self._options.batch, lambda: not self._is_to_rest(move)):
                count += moved
                progress.moved += moved
                self._charge.keep(move)
                self._show(move)
            self._check_stop()
            self._pace(count, began)
            empty_looks = empty_looks + 1 if not count and self._is_drained(move, source) else 0
        for _ in mover.copy_keys(self._options.batch):  # what ended at the source meanwhile
            self._charge.keep(move)
        self._reach("drained")
        drained = replace(move, state=Phase.VERIFYING, epoch=move.epoch + 1)
        return self._charge.advance(
            move, drained, f"{move.source} is empty; {progress.moved} jobs moved by this process"
        )

    def _is_drained(self, move: Move, source: Driver) -> bool:
        """Whether nothing is left that could still run at the source; waits a little when there is."""
        if self.ends.is_broker(move.source):
            return self._is_left_alone(move)
        source.rescue(1000)
        rows = source.stats() if isinstance(source, Statistics) else []
        left = sum(row.ready + row.scheduled + row.dead + (row.cancelled or 0) for row in rows)
        running = sum(row.running for row in rows)
        progress = self._show(move, f"{running} jobs still run at {move.source}" if running else "")
        progress.running = running
        if running or left:
            self._charge.keep(move)
            self._check_stop()
            time.sleep(_LOOK)
            return False
        return True

    def _is_left_alone(self, move: Move) -> bool:
        """Whether no worker claims at the broker any more, nor runs a job of it; waits a little when one
        does. The broker itself can't tell.
        """
        clients = self.control.clients(HOLDS_FOR)
        live = [each for each in clients if each.silent_for <= LIVE_FOR]
        behind = sum(each.claims and each.epoch < move.epoch for each in live)
        running = sum(move.source in each.holds for each in clients)
        if not behind and not running:
            return True
        self._show(
            move,
            f"{running} workers still run jobs of {move.source}"
            if running
            else f"{behind} workers do not know yet that {move.source} is left",
        )
        self._charge.keep(move)
        self._check_stop()
        time.sleep(_LOOK)
        return False

    def _verify(self, move: Move) -> Move:
        comparison = self._comparison(move, lambda: self._go_on(move))
        found: list[Difference] = []
        if comparison is None:
            move = self._charge.keep_facts(move, not_compared=why_not_compared(move))
            said = "not compared"
        else:
            for each in comparison.differences():
                found.append(each)
                if len(found) >= _SHOWN_DIFFERENCES:
                    break
            move = self._charge.keep_facts(move, compared=comparison.compared, differences=len(found))
            said = f"{comparison.compared} jobs compared, none differs"
        self._reach("verified")
        if found:
            failed = f"{len(found)} jobs are not at {move.target} as they should be"
            self.control.say(move, f"verification failed: {failed}")
            self._charge.let_go()
            raise VerificationFailed(
                f"{failed}; look with `jobctl migrate verify`, then `jobctl migrate repair` or `jobctl "
                "migrate reverse`",
                found,
            )
        sealed = replace(
            move, state=Phase.SEALED, epoch=move.epoch + 1, claimed=(move.target,), consulted=None
        )
        return self._charge.advance(move, sealed, f"{said}; {move.source} is shut")

    def _end_what_stayed_away(self, move: Move) -> None:
        """After a reversal the target has traces, too: of jobs that went away and ended there. They are done
        from now on, and keep their keys. Left as traces, they would be missed by the next comparison.
        """
        if self.ends.is_broker(move.target):
            return
        store, below = self.ends.source(move.target), LAST_ID
        while page := store.buried(below, self._options.batch):
            below = page[-1].record.id
            now = datetime.now(UTC)
            ended = [job._replace(state=State.DONE, finished_at=max(now, job.created_at)) for job in page]
            self.ends.target(move.target).admit(move.epoch, ended)
            self._charge.keep(move)

    def _sweep(self, move: Move) -> None:
        """What a late worker gave back at the source goes the way of all others."""
        mover = self._mover(move)
        mover.finish_hidden(self._options.batch)
        for _ in mover.batches(self._options.batch, lambda: not self._stopped.is_set()):
            self._charge.keep(move)

    # -- Parts of steps ------------------------------------------------------------------------------------

    def _copy_pauses(self, source: Driver, target: Driver) -> None:
        if isinstance(source, Statistics) and isinstance(target, Pausing):
            for row in source.stats():
                if row.paused:
                    target.pause(row.queue)

    def _send_canary(self, move: Move) -> datetime | None:
        target = move.target
        return send_canary(self.ends.target(target), self.ends.driver(target), move.epoch, target, LIVE_FOR)

    def _all_know(self, move: Move) -> bool:
        """Whether each live client that claims goes by this step: else jobs would wait at the target. Those
        who only register are told by the source, once it is shut.
        """
        clients = [client for client in self.control.clients() if client.claims]
        know = sum(client.epoch >= move.epoch for client in clients)
        progress = self._show(
            move, f"{know} of {len(clients)} workers know that jobs can be at {move.target}"
        )
        progress.acknowledged = know, len(clients)
        return know == len(clients)

    def _throttle(self, move: Move) -> None:
        """Rest while there is a reason to; the first one is shown."""
        self._charge.keep(move)
        while reason := self._reason_to_rest(move):
            self._wait(move, lambda: False, reason, for_seconds=_LOOK * 5)
        self._show(move)

    def _is_to_rest(self, move: Move) -> bool:
        """Whether no further batch should be hidden for now: nobody could claim it meanwhile."""
        return (
            self._stopped.is_set() or self._options.max_rate is not None or bool(self._reason_to_rest(move))
        )

    def _reason_to_rest(self, move: Move) -> str:
        options = self._options
        if self._charge.paused:
            return "paused: `jobctl migrate resume` goes on"
        if options.pause_file is not None and options.pause_file.exists():
            return f"the file {options.pause_file} is there"
        if options.max_target_age is not None:
            target = self.ends.driver(move.target)
            rows = target.stats() if isinstance(target, Statistics) else []
            oldest = max((row.oldest_ready or timedelta() for row in rows), default=timedelta())
            if oldest > options.max_target_age:
                return f"a job at {move.target} has waited for {oldest.total_seconds():.0f} s"
        return ""

    def _pace(self, moved: int, began: float) -> None:
        if self._options.max_rate:
            self._stopped.wait(max(0.0, moved / self._options.max_rate - (time.monotonic() - began)))

    def _comparison(self, move: Move, at_page: Callable[[], None]) -> Comparison | None:
        target = self.ends.driver(move.target)
        if not isinstance(target, Lookup) or isinstance(target, CarriesCopies):
            return None  # of a broker behind an outbox only what waits in the outbox can be looked at
        begin, end = move.facts.get("target_clock"), move.facts.get("fenced_clock")
        window = None
        if end is not None and move.facts.get("first_source") == move.source:
            empty = move.facts.get("target_was_empty")
            since = None if empty or begin is None else datetime.fromisoformat(begin)
            window = Window(since, datetime.fromisoformat(end))
        return Comparison(self.ends.source(move.source), target, window, at_page)

    def _mover(self, move: Move) -> Mover:
        def keep_conflicts(conflicts: Sequence[Conflict]) -> None:
            self.control.add_conflicts(move, conflicts)

        return Mover(
            self.ends.source(move.source),
            self.ends.target(move.target),
            move.epoch,
            keep_conflicts,
            self._reach,
        )

    # -- Waiting, and being watched ------------------------------------------------------------------------

    def _wait(
        self, move: Move, condition: Callable[[], bool], reason: str, *, for_seconds: float | None = None
    ) -> None:
        """Until `condition` holds, or for so long."""
        deadline = None if for_seconds is None else time.monotonic() + for_seconds
        while not condition():
            if deadline is not None and time.monotonic() >= deadline:
                return
            if reason:
                self._show(move, reason)
            self._charge.keep(move)
            self._check_stop()
            time.sleep(_LOOK)

    def _show(self, move: Move, waiting_for: str = "") -> Progress:
        progress = self.progress = self.progress or Progress(move)
        progress.move, progress.waiting_for = move, waiting_for
        if self._watch is not None:
            self._watch(progress)
        return progress

    def _go_on(self, move: Move) -> None:
        """Between two parts of something long. Raises `Superseded` and `Interrupted`."""
        self._charge.keep(move)
        self._check_stop()

    def _check_stop(self) -> None:
        if self._stopped.is_set():
            raise Interrupted("interrupted; the same command goes on, and `jobctl migrate status` says where")


def _is_empty(target: Driver) -> bool:
    return isinstance(target, Lookup) and not any(
        stored.record.kind != CANARY for stored in target.jobs(Page(limit=10))
    )


def _count(source: Driver) -> int | None:
    if not isinstance(source, Statistics):
        return None
    rows: list[QueueStats] = source.stats()
    return sum(row.ready + row.scheduled + row.running + row.dead + (row.cancelled or 0) for row in rows)

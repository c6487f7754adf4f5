"""The coordinator: takes a migration from one state to the next, until where it was told to.

A state machine over the row in the control store (drawn in states.py) and nothing else: whatever a
coordinator knew is in the stores, so that another one, started after a kill, goes on. It goes forward only.
Each step is first written down, with a new epoch, and then done; each effect can be repeated; and a store
that has seen a later epoch refuses whoever acts for an earlier one, so that a coordinator which was only
stopped, and comes back, changes nothing.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, cast
from uuid import UUID, uuid4

from jobcontract.config import Settings
from jobcontract.contract import (
    Driver,
    Installation,
    Job,
    Lookup,
    Movable,
    MovedJob,
    Page,
    Pausing,
    QueueStats,
    State,
    Statistics,
)
from jobcontract.errors import JobContractError, StoreUnavailable
from jobcontract.identifiers import new_job_id
from jobcontract.registry import open_store
from jobcontract_migrate.control import LIVE_FOR, Conflict, Control, Move
from jobcontract_migrate.move import Mover, Reach
from jobcontract_migrate.states import (
    BEFORE_THE_FENCE,
    BEHIND_THE_FENCE,
    IN_ORDER,
    Phase,
    source_gate,
    target_gate,
)
from jobcontract_migrate.verify import CANARY, Comparison, Difference, Window, repair

_LOOK = 0.1
"""Seconds between two looks at something that will happen."""
_KEEP = 1.0
"""Seconds between two words of a coordinator at work."""
_LONGEST_POSTPONEMENT = 30.0
_SHOWN_DIFFERENCES = 1000
_CANARY_LEASE = timedelta(seconds=60)


class Busy(JobContractError):
    """Another coordinator is at work."""


class Superseded(JobContractError):
    """Another coordinator has taken over; this one has stopped."""


class Interrupted(JobContractError):
    """Stopped on request. The same command goes on."""


class NotNow(JobContractError):
    """What was asked for can't be done in this state; the sentence says what can."""


class VerificationFailed(JobContractError):
    """The stores differ."""

    def __init__(self, message: str, differences: Sequence[Difference]) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


class MovableDriver(Movable, Driver, Protocol):
    """A store that can be source and target."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a coordinator goes about it."""

    batch: int = 500
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
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._stores: dict[str, MovableDriver] = {}
        self._stopped = threading.Event()
        self._kept_at = 0.0
        self._postponed = 0
        self._paused = False
        self.progress: Progress | None = None

    def close(self) -> None:
        """Close every connection."""
        self._stack.close()

    def stop(self) -> None:
        """Have it stop between two batches, with `Interrupted`. Returns at once; for signal handlers."""
        self._stopped.set()

    def store(self, name: str) -> MovableDriver:
        """The store called `name`, past any route. Raises `NotNow` when jobs can't move to and from it."""
        if name not in self._stores:
            driver = open_store(self._settings.store(name), self._settings)
            self._stack.callback(driver.close)
            if not isinstance(driver, Movable):
                raise NotNow(
                    f"jobs can't be moved to or from the backend {name!r}: its driver has no side door for it"
                )
            self._stores[name] = cast(MovableDriver, driver)
        return self._stores[name]

    # -- What a person asks for ----------------------------------------------------------------------------

    def begin(self, source: str, target: str, facts: Mapping[str, object]) -> Move:
        """Write down that jobs are to move from `source` to `target`. Raises `NotNow`."""
        self.control.install()
        last = self.control.read()
        if last is not None and not last.is_over:
            raise NotNow(_under_way(last))
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
            owner=self._owner,
            owner_until=None,
            started_at=0,
            changed_at=0,
            facts=facts,
        )
        if not self.control.add(move, self._owner):
            raise Busy("another coordinator has begun a migration just now; see `jobctl migrate status`")
        self.control.say(move, f"begun: {source} to {target}")
        self._reach("begun")
        return self._own()

    def run(self, until: Phase) -> Move:
        """Go on until `until`. Blocks. Raises `Busy`, `Superseded`, `Interrupted`, `VerificationFailed`, and
        `StoreError`; after each the same call goes on.
        """
        move = self._own()
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
        self.control.let_go(move, self._owner)
        return move

    def reverse(self) -> Move:
        """Turn round: what was the target is the source from now on. `run` does the rest. Raises `NotNow`."""
        move = self._own()
        if move.state not in BEHIND_THE_FENCE:
            raise NotNow(_instead_of_reverse(move))
        self._mover(move).finish_hidden(self._options.batch)
        self._reach("reversing")
        turned = replace(
            move,
            source=move.target,
            target=move.source,
            state=Phase.DUAL_READ,
            epoch=move.epoch + 1,
            claimed=(move.target, move.source),
            consulted=None if move.state is Phase.SEALED else move.consulted,
        )
        return self._advance(move, turned, f"reversed: {turned.source} to {turned.target}")

    def abort(self) -> Move:
        """Give up, while jobs are still registered at the source. Raises `NotNow`."""
        move = self._own()
        if move.state not in BEFORE_THE_FENCE or move.consulted is not None or move.home != move.source:
            raise NotNow(_instead_of_abort(move))
        over = replace(
            move, state=Phase.ABORTED, epoch=move.epoch + 1, claimed=(move.source,), consulted=None
        )
        move = self._advance(move, over, "aborted")
        self.control.let_go(move, self._owner)
        return move

    def complete(self) -> Move:
        """Remove the traces at the source: the point of no return. Raises `NotNow`."""
        move = self._own()
        if move.state is not Phase.SEALED:
            raise NotNow(_instead_of_complete(move))
        self._sweep(move)
        forgotten = 0
        while count := self.store(move.source).forget_buried(move.epoch, self._options.batch):
            forgotten += count
            self._reach("forgotten")
            self._keep(move)
        over = replace(move, state=Phase.COMPLETED, epoch=move.epoch + 1)
        move = self._advance(move, over, f"completed: {forgotten} traces removed at {move.source}")
        self.control.let_go(move, self._owner)
        return move

    def verify(self, move: Move) -> Iterable[Difference]:
        """The differences between the two stores of `move`, as they are found; changes nothing."""
        comparison = self._comparison(move)
        return [] if comparison is None else comparison.differences()

    def repair(self) -> tuple[int, list[Difference]]:
        """Restore the jobs that are missing at the target; how many, and what is left."""
        move = self._own()
        if move.state not in BEHIND_THE_FENCE:
            raise NotNow(f"there is nothing to repair while a migration is {move.state.value}")
        found = list(self.verify(move))
        missing = {each.job_id for each in found if each.finding == "missing"}
        restored = repair(self.store(move.source), self.store(move.target), move.epoch, missing)
        self.control.say(move, f"repaired: {restored} missing jobs were stored again at {move.target}")
        self.control.let_go(move, self._owner)
        return restored, [each for each in found if each.finding != "missing"]

    # -- The steps -----------------------------------------------------------------------------------------

    def _prepare(self, move: Move) -> Move:
        source, target = self.store(move.source), self.store(move.target)
        if isinstance(target, Installation):
            target.install()
        self._set_gates(move)  # the target had none before it was installed
        self._reach("installed")
        self._copy_pauses(source, target)
        clock = self._send_canary(move, target)
        self._reach("canary")
        if "target_clock" not in move.facts and clock is not None:
            move = self._keep_facts(move, target_clock=clock.isoformat(), target_was_empty=_is_empty(target))
        for _ in self._mover(move).copy_keys(self._options.batch, only_done=True):
            self._keep(move)
        both = replace(move, state=Phase.DUAL_READ, epoch=move.epoch + 1, claimed=(move.source, move.target))
        return self._advance(move, both, "jobs are claimed at both stores")

    def _read_both(self, move: Move) -> Move:
        if self._postponed:
            pause = min(2.0 ** min(self._postponed, 10), _LONGEST_POSTPONEMENT)
            self._wait(move, lambda: False, "the cut-over was postponed", for_seconds=pause)
        self._wait(move, lambda: self._all_know(move), "")
        source = self.store(move.source)
        self._copy_pauses(source, self.store(move.target))
        clock = self._send_canary(move, self.store(move.target))
        move = self._keep_facts(move, **({} if clock is None else {"fenced_clock": clock.isoformat()}))
        self._reach("fencing")
        fenced = replace(move, state=Phase.FENCING, epoch=move.epoch + 1)
        return self._advance(
            move, fenced, f"{move.source} is fenced", fence=self._options.cutover_timeout.total_seconds()
        )

    def _cross_the_fence(self, move: Move) -> Move:
        """From the fence on nothing is registered anywhere; what was let in before has to end. Then jobs are
        registered at the target. When it takes too long, anybody lifts the fence, and it is tried later.
        """
        source = self.store(move.source)
        straddling = source.open_registrations()
        deadline = time.monotonic() + self._options.cutover_timeout.total_seconds()
        while straddling and time.monotonic() < deadline:
            self._show(move, f"{len(straddling)} transactions that began before have not ended")
            time.sleep(_LOOK / 5)
            straddling &= source.open_registrations()
        self._reach("fenced")
        crossed = replace(
            move,
            state=Phase.MOVING,
            epoch=move.epoch + 1,
            home=move.target,
            consulted=move.source,
            keys_copied=False,
        )
        said = f"jobs are registered at {move.target}"
        if not straddling and self.control.advance(crossed, move, self._owner, said):
            self._postponed = 0
            self._reach("crossed")
            return self._entered(crossed)
        self._postponed += 1
        return self._lift_fence(move, f"postponed: {len(straddling)} transactions had not ended in time")

    def _lift_fence(self, move: Move, said: str) -> Move:
        while not self.control.lift_fence(move, said):
            now = self.control.read()
            if now is None or now.state is not Phase.FENCING:
                break  # a client was faster
            self._keep(move)
            time.sleep(_LOOK)
        self._reach("lifted")
        return self._entered(self._current(move))

    def _move_jobs(self, move: Move) -> Move:
        source = self.store(move.source)
        mover = self._mover(move)
        progress = self._show(move)
        progress.total = _count(source)
        mover.finish_hidden(self._options.batch)
        if not move.keys_copied:
            for _ in mover.copy_keys(self._options.batch):
                self._keep(move)
                self._check_stop()
            self.control.set_keys_copied(move, self._owner)
            move = replace(move, keys_copied=True)
            self._reach("all keys copied")
        while True:
            self._throttle(move)
            began = time.monotonic()
            moved = mover.batch(self._options.batch)
            progress.moved += moved
            self._pace(moved, began)
            if not moved and self._is_drained(move, source):
                break
        for _ in mover.copy_keys(self._options.batch):  # what ended at the source meanwhile
            self._keep(move)
        self._reach("drained")
        drained = replace(move, state=Phase.VERIFYING, epoch=move.epoch + 1)
        return self._advance(
            move, drained, f"{move.source} is empty; {progress.moved} jobs moved by this process"
        )

    def _is_drained(self, move: Move, source: MovableDriver) -> bool:
        """Whether nothing is left that could still run at the source; waits a little when there is."""
        source.rescue(1000)
        rows = source.stats() if isinstance(source, Statistics) else []
        left = sum(row.ready + row.scheduled + row.dead + (row.cancelled or 0) for row in rows)
        running = sum(row.running for row in rows)
        progress = self._show(move, f"{running} jobs still run at {move.source}" if running else "")
        progress.running = running
        if running or left:
            self._keep(move)
            self._check_stop()
            time.sleep(_LOOK)
            return False
        return True

    def _verify(self, move: Move) -> Move:
        comparison = self._comparison(move)
        found: list[Difference] = []
        compared = 0
        if comparison is not None:
            for each in comparison.differences():
                found.append(each)
                self._keep(move)
                if len(found) >= _SHOWN_DIFFERENCES:
                    break
            compared = comparison.compared
        move = self._keep_facts(move, compared=compared, differences=len(found))
        self._reach("verified")
        if found:
            said = f"{len(found)} jobs are not at {move.target} as they should be"
            self.control.say(move, f"verification failed: {said}")
            self.control.let_go(move, self._owner)
            raise VerificationFailed(
                f"{said}; look with `jobctl migrate verify`, then `jobctl migrate repair` or `jobctl migrate "
                "reverse`",
                found,
            )
        sealed = replace(
            move, state=Phase.SEALED, epoch=move.epoch + 1, claimed=(move.target,), consulted=None
        )
        return self._advance(move, sealed, f"{compared} jobs compared, none differs; {move.source} is shut")

    def _sweep(self, move: Move) -> None:
        """What a late worker gave back at the source goes the way of all others."""
        mover = self._mover(move)
        mover.finish_hidden(self._options.batch)
        while mover.batch(self._options.batch):
            self._keep(move)

    # -- Parts of steps ------------------------------------------------------------------------------------

    def _copy_pauses(self, source: Driver, target: Driver) -> None:
        if isinstance(source, Statistics) and isinstance(target, Pausing):
            for row in source.stats():
                if row.paused:
                    target.pause(row.queue)

    def _send_canary(self, move: Move, target: MovableDriver) -> datetime | None:
        """Have a job admitted, claimed and completed at the target: it works. Its clock, where a lease tells
        it.
        """
        canary = Job(kind=CANARY, queue=CANARY, id=UUID(str(new_job_id())))
        record = canary.to_record()._replace(run_at=datetime.fromtimestamp(0).astimezone())
        came = MovedJob(record, State.READY, 0, 0, datetime.fromtimestamp(0).astimezone(), None, None)
        target.admit(move.epoch, [came])
        deadline = time.monotonic() + LIVE_FOR
        while time.monotonic() < deadline:
            for claimed in target.claim([CANARY], 10, _CANARY_LEASE):
                target.complete([claimed.lease])
                if claimed.record.id == record.id:
                    return claimed.lease.expires_at - _CANARY_LEASE
            time.sleep(_LOOK)
        raise StoreUnavailable(
            f"a job that was stored in {move.target!r} to try it did not come back in time"
        )

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
        self._keep(move)
        while reason := self._reason_to_rest(move):
            self._wait(move, lambda: False, reason, for_seconds=_LOOK * 5)
        self._show(move)

    def _reason_to_rest(self, move: Move) -> str:
        options = self._options
        if self._paused:
            return "paused: `jobctl migrate resume` goes on"
        if options.pause_file is not None and options.pause_file.exists():
            return f"the file {options.pause_file} is there"
        if options.max_target_age is not None:
            target = self.store(move.target)
            rows = target.stats() if isinstance(target, Statistics) else []
            oldest = max((row.oldest_ready or timedelta() for row in rows), default=timedelta())
            if oldest > options.max_target_age:
                return f"a job at {move.target} has waited for {oldest.total_seconds():.0f} s"
        return ""

    def _pace(self, moved: int, began: float) -> None:
        if self._options.max_rate:
            self._stopped.wait(max(0.0, moved / self._options.max_rate - (time.monotonic() - began)))

    def _comparison(self, move: Move) -> Comparison | None:
        target = self.store(move.target)
        if not isinstance(target, Lookup):
            return None
        begin, end = move.facts.get("target_clock"), move.facts.get("fenced_clock")
        window = None
        if end is not None and move.facts.get("first_source") == move.source:
            empty = move.facts.get("target_was_empty")
            since = None if empty or begin is None else datetime.fromisoformat(begin)
            window = Window(since, datetime.fromisoformat(end))
        return Comparison(self.store(move.source), target, window)

    def _mover(self, move: Move) -> Mover:
        def keep_conflicts(conflicts: Sequence[Conflict]) -> None:
            self.control.add_conflicts(move, conflicts)

        return Mover(
            self.store(move.source), self.store(move.target), move.epoch, keep_conflicts, self._reach
        )

    # -- Being in charge -----------------------------------------------------------------------------------

    def _own(self) -> Move:
        """Take charge, and with it a new epoch: what an earlier owner still does is refused from then on."""
        move = self.control.read() if self.control.is_installed() else None
        if move is None or move.is_over:
            raise NotNow("no migration is under way; begin one with `jobctl migrate --from A --to B`")
        if not self.control.take_over(move, self._owner, move.owner if _is_dead(move.owner) else None):
            owner = (move.owner or "?").rpartition(":")[0]
            raise Busy(f"another coordinator is at work ({owner}); see `jobctl migrate status`")
        self._kept_at = time.monotonic()
        before = self._current(move)
        if before.owner == move.owner:
            return self._entered(before)
        if before.state is Phase.FENCING:  # nobody can tell how much of it is left
            back = replace(before, state=Phase.DUAL_READ, epoch=before.epoch + 1)
            if self.control.advance(
                back, before, self._owner, "a coordinator took over, and lifted the fence"
            ):
                return self._entered(back)
            return self._lift_fence(before, "a coordinator took over, and the fence had run out")
        return self._advance(before, replace(before, epoch=before.epoch + 1), "a coordinator took over")

    def _advance(self, before: Move, move: Move, said: str, fence: float | None = None) -> Move:
        if not self.control.advance(move, before, self._owner, said, fence):
            raise Superseded("another coordinator has taken over; see `jobctl migrate status`")
        self._reach(f"now {move.state.value}")
        return self._entered(move)

    def _entered(self, move: Move) -> Move:
        """What the stores let in follows from the state."""
        self._set_gates(move)
        self._reach(f"gates of {move.state.value}")
        return self._current(move)

    def _set_gates(self, move: Move) -> None:
        source, target = self.store(move.source), self.store(move.target)
        wanted = source_gate(move.state, move.epoch)
        if source.set_gate(wanted) != wanted:
            raise Superseded(f"the store {move.source!r} has seen a later step than {move.epoch}")
        if move.state is Phase.PREPARING and isinstance(target, Installation):
            target.install()
        wanted = target_gate(move.state, move.epoch, target.gate())
        if target.set_gate(wanted) != wanted:
            raise Superseded(f"the store {move.target!r} has seen a later step than {move.epoch}")

    def _current(self, move: Move) -> Move:
        found = self.control.read()
        if found is None or found.number != move.number:
            raise Superseded("another migration has begun; see `jobctl migrate status`")
        return found

    def _keep(self, move: Move) -> None:
        """Say, now and then, that this coordinator is at work."""
        if time.monotonic() - self._kept_at < _KEEP:
            return
        paused = self.control.keep(move, self._owner)
        if paused is None:
            raise Superseded("another coordinator has taken over; see `jobctl migrate status`")
        self._paused = paused
        self._kept_at = time.monotonic()

    def _keep_facts(self, move: Move, **facts: Any) -> Move:
        found = replace(move, facts={**move.facts, **facts})
        self.control.set_facts(found, self._owner, found.facts)
        return found

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
            self._keep(move)
            self._check_stop()
            time.sleep(_LOOK)

    def _show(self, move: Move, waiting_for: str = "") -> Progress:
        progress = self.progress = self.progress or Progress(move)
        progress.move, progress.waiting_for = move, waiting_for
        if self._watch is not None:
            self._watch(progress)
        return progress

    def _check_stop(self) -> None:
        if self._stopped.is_set():
            raise Interrupted("interrupted; the same command goes on, and `jobctl migrate status` says where")


def _is_dead(owner: str | None) -> bool:
    """Whether `owner` was a process of this machine, and is none any more."""
    if owner is None:
        return False
    host, _, rest = owner.partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _is_empty(target: Driver) -> bool:
    return isinstance(target, Lookup) and not any(
        stored.record.kind != CANARY for stored in target.jobs(Page(limit=10))
    )


def _count(source: Driver) -> int | None:
    if not isinstance(source, Statistics):
        return None
    rows: list[QueueStats] = source.stats()
    return sum(row.ready + row.scheduled + row.running + row.dead + (row.cancelled or 0) for row in rows)


def _under_way(move: Move) -> str:
    return (
        f"a migration from {move.source!r} to {move.target!r} is under way ({move.state.value}); finish it "
        "with `jobctl migrate complete`, or go back with `jobctl migrate reverse` or `abort`"
    )


def _instead_of_reverse(move: Move) -> str:
    return (
        f"nothing was moved yet ({move.state.value}); `jobctl migrate abort` gives up, "
        "`jobctl migrate resume` goes on"
    )


def _instead_of_abort(move: Move) -> str:
    return (
        f"jobs are registered at {move.home!r} already ({move.state.value}); `jobctl migrate reverse` brings "
        "them back"
    )


def _instead_of_complete(move: Move) -> str:
    return (
        f"it can only be completed when it is sealed, and it is {move.state.value}; "
        "`jobctl migrate resume` goes on"
    )

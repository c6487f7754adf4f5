"""Being in charge of a migration: at most one coordinator is, and what it does is of a step that it began.

Whoever takes charge begins a new step by it, so that what an earlier owner still does is refused: by the
control store, which names owner and epoch in each statement, and by both stores, which know the epoch.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

from jobcontract.errors import JobContractError
from jobcontract.side_doors import Installation
from jobcontract_migrate.control import Control, Move
from jobcontract_migrate.ends import Ends, NotNow
from jobcontract_migrate.move import Reach
from jobcontract_migrate.states import Phase, source_gate, target_gate

_LOOK = 0.1
_KEEP = 1.0
"""Seconds between two words of a coordinator at work."""


class Busy(JobContractError):
    """Another coordinator is at work."""


class Superseded(JobContractError):
    """Another coordinator has taken over; this one has stopped."""


class Charge:
    """One coordinator's claim to be the only one. Not safe in threads."""

    def __init__(self, control: Control, ends: Ends, reach: Reach) -> None:
        """Contacts nothing."""
        self._control = control
        self._ends = ends
        self._reach = reach
        self._kept_at = 0.0
        self._held: Move | None = None
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        """This coordinator's name."""
        self.paused = False
        """Whether somebody wants the mover to rest, as of the last word to the control store."""

    def take(self) -> Move:
        """Take charge of the migration that is under way, and with it a new epoch. Raises `NotNow` when there
        is none, `Busy` when another coordinator is at work.
        """
        move = self._control.read() if self._control.is_installed() else None
        if move is None or move.is_over:
            raise NotNow("no migration is under way; begin one with `jobctl migrate --from A --to B`")
        if not self._control.take_over(move, self.owner, move.owner if is_dead(move.owner) else None):
            owner = (move.owner or "?").rpartition(":")[0]
            raise Busy(f"another coordinator is at work ({owner}); see `jobctl migrate status`")
        self._kept_at, self._held = time.monotonic(), move
        before = self._current(move)
        if before.owner == move.owner:
            return self.entered(before)
        if before.state is Phase.FENCING:  # nobody can tell how much of it is left
            back = replace(before, state=Phase.DUAL_READ, epoch=before.epoch + 1)
            if self._control.advance(
                back, before, self.owner, "a coordinator took over, and lifted the fence"
            ):
                return self.entered(back)
            return self.lift_fence(before, "a coordinator took over, and the fence had run out")
        return self.advance(before, replace(before, epoch=before.epoch + 1), "a coordinator took over")

    def advance(self, before: Move, move: Move, said: str, fence: float | None = None) -> Move:
        """The next step, with what there is to say about it; `fence` is how many seconds at the longest the
        source is shut. Raises `Superseded`.
        """
        if not self._control.advance(move, before, self.owner, said, fence):
            raise Superseded("another coordinator has taken over; see `jobctl migrate status`")
        self._reach(f"now {move.state.value}")
        return self.entered(move)

    def entered(self, move: Move) -> Move:
        """`move` is where it stands: what the stores let in follows from that. Raises `Superseded`."""
        self.set_gates(move)
        self._reach(f"gates of {move.state.value}")
        return self._current(move)

    def set_gates(self, move: Move) -> None:
        """Tell both stores what they let in. Raises `Superseded` when one has seen a later step."""
        source, target = self._ends.source(move.source), self._ends.target(move.target)
        wanted = source_gate(move.state, move.epoch)
        if source.set_gate(wanted) != wanted:
            raise Superseded(f"the store {move.source!r} has seen a later step than {move.epoch}")
        driver = self._ends.driver(move.target)
        if move.state is Phase.PREPARING and isinstance(driver, Installation):
            driver.install()
        wanted = target_gate(move.state, move.epoch, target.gate())
        if target.set_gate(wanted) != wanted:
            raise Superseded(f"the store {move.target!r} has seen a later step than {move.epoch}")

    def lift_fence(self, move: Move, said: str) -> Move:
        """Wait until the time of the fence is over, and open the source again."""
        while not self._control.lift_fence(move, said):
            now = self._control.read()
            if now is None or now.state is not Phase.FENCING:
                break  # a client was faster
            self.keep(move)
            time.sleep(_LOOK)
        self._reach("lifted")
        return self.entered(self._current(move))

    def keep(self, move: Move) -> None:
        """Say, now and then, that this coordinator is at work. Raises `Superseded`."""
        if time.monotonic() - self._kept_at < _KEEP:
            return
        paused = self._control.keep(move, self.owner)
        if paused is None:
            raise Superseded("another coordinator has taken over; see `jobctl migrate status`")
        self.paused = paused
        self._kept_at = time.monotonic()

    def keep_facts(self, move: Move, **facts: Any) -> Move:
        """Remember further facts for the report."""
        found = replace(move, facts={**move.facts, **facts})
        self._control.set_facts(found, self.owner, found.facts)
        return found

    def let_go(self) -> None:
        """Be in charge no more: the next one need not wait, and `status` names nobody."""
        if self._held is not None:
            self._control.let_go(self._held, self.owner)
            self._held = None

    def _current(self, move: Move) -> Move:
        found = self._control.read()
        if found is None or found.number != move.number:
            raise Superseded("another migration has begun; see `jobctl migrate status`")
        return found


def is_dead(owner: str | None) -> bool:
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

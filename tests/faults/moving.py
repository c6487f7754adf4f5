"""Whoever has the jobs moved: gives `jobctl migrate` the next command until it has happened, as a person on
call does, whatever kills or stops the command.

::

    migrate --from old --to new -> reverse -> reverse -> ... as long as faults go on ... -> complete
"""

from __future__ import annotations

import threading
import time

from jobcontract_migrate.control import Move
from jobcontract_migrate.states import BEHIND_THE_FENCE, Phase

from tests.faults.fleet import Fleet, tail
from tests.faults.history import Recorder
from tests.faults.moving_stages import MovingStage
from tests.faults.programs import COMMAND
from tests.faults.run_file import NEW, OLD

WITHIN = 240.0
"""Seconds for all of it."""
STEP_WITHIN = 90.0
"""Seconds after which a command that says nothing is looked at: it is killed, and the next one goes on."""
DIFFER = 3
"""The exit code when the stores differ."""
BATCH = "20"
PAUSE = 0.3


class Migration(threading.Thread):
    """Runs beside the nemesis. Goes there, back, and there again, at least; `end` lets it come to its end."""

    def __init__(self, stage: MovingStage, fleet: Fleet, recorder: Recorder, *, back: bool = True) -> None:
        super().__init__(daemon=True)
        self._stage = stage
        self._fleet = fleet
        self._recorder = recorder
        self._back = back
        self._ending = threading.Event()
        self.problem = ""
        """Why it did not come to its end."""

    def end(self) -> None:
        """Block until the jobs are in `NEW` and the migration is completed, or that took too long."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        asked = {"source": OLD, "target": NEW, "back": self._back}
        with self._recorder.operation("move", asked) as answer:
            try:
                self._go()
            except Exception as problem:
                self.problem = str(problem)
            if self.problem:
                raise SystemExit  # of this thread: what is recorded is that nobody knows
            answer.answered = {"turns": self.turns}

    turns = 0
    """How often it was sealed."""

    def _go(self) -> None:
        self._until_sealed(NEW)
        while self._back and (self.turns < 3 or not self._ending.is_set()):
            self._until_sealed(OLD)
            self._until_sealed(NEW)
        self._ending.wait()
        deadline = time.monotonic() + WITHIN
        code = 0
        while (move := self._look(deadline)).state is not Phase.COMPLETED:
            code = self._step("migrate complete --yes" if move.state is Phase.SEALED else "migrate resume")
        while code:  # it was killed when all was done
            code = self._step("migrate status")

    def _until_sealed(self, target: str) -> None:
        deadline = time.monotonic() + WITHIN
        while True:
            move = self._look(deadline) if self.turns or target != NEW else self._stage.move()
            if move is None:
                self._step(f"migrate --from {OLD} --to {NEW} --yes --batch {BATCH}")
            elif move.target == target:
                if move.state is Phase.SEALED and move.owner is None:
                    break
                self._step(f"migrate resume --batch {BATCH}")
            else:
                assert move.state in BEHIND_THE_FENCE
                self._step(f"migrate reverse --yes --batch {BATCH}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"jobs were not in {target} within {WITHIN:g} s")
        self.turns += 1

    def _look(self, deadline: float) -> Move:
        while (move := self._stage.move()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError("the control store does not say where jobs live")
            time.sleep(PAUSE)
        return move

    def _step(self, command: str) -> int:
        """How it ended."""
        member = self._fleet.spawn("coordinator", **{COMMAND: command})
        if not member.wait(STEP_WITHIN):
            member.kill()
        if member.code == DIFFER:
            raise AssertionError(f"the stores differ; the log ends:\n{tail(member.log)}")
        if member.code:
            time.sleep(PAUSE)
        return member.code or 0

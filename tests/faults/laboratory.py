"""One run: a stage, a fleet, a nemesis; then peace, and the judge.

::

    start -> attack (until the producers are done and every fault has had its turn) -> peace -> drain -> probe
          -> stop everybody -> list what the store has -> check
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from jobcontract import Backend, Job
from jobcontract.contract import (
    ConnectionLease,
    Deduplication,
    Transactional,
)
from tests.faults.checker import check
from tests.faults.facts import Facts, Setting
from tests.faults.fleet import Fleet
from tests.faults.history import History, Recorder
from tests.faults.nemesis import FAULTS, Field
from tests.faults.promises import jobs
from tests.faults.promises.violation import Violation
from tests.faults.recording import record
from tests.faults.run_file import OUTBOX, STORE, RunFile
from tests.faults.stages import FindPrograms, Stage, listing, looks_up
from tests.servers.binaries import find_programs

RESCUE = 0.5
PRODUCED_WITHIN = 300.0
PROBES = 5
MARGIN = 120.0
"""Seconds that a job which was rescued may wait behind the backlog of a busy machine."""
RECOVERED_WITHIN = 30.0
CLAIMED_WITHIN = 10.0
POISONED = 5
UNKNOWN = 3


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What a run is made of, but for its seed."""

    name: str
    stage: type[Stage]
    faults: tuple[str, ...]
    """Names in `nemesis.FAULTS`; all get their turn, in an order of the seed's choice, `rounds` times."""
    rounds: int = 1
    jobs: int = 1000
    """For each producer."""
    producers: int = 2
    workers: int = 3
    pace: float = 0.02
    """Seconds between two batches of a producer."""
    slow_share: float = 0.004
    """How many of the jobs have a handler that takes longer than a lease."""
    odd: bool = True
    """Whether some jobs are of an unknown kind, or poisoned where the store can be."""
    drained_within: float = 120.0
    """Seconds that everything has to be done after the last fault."""
    bad: str = ""
    """The fault that the product is built with (`tests.faults.broken`): a red control."""
    must_break: frozenset[int] = frozenset()
    """The promises of which a red control breaks at least one; that it breaks none is the failure."""
    judged: Literal["promises", "loss", "nothing"] = "promises"
    """All promises; only that nothing acknowledged is lost; or nothing, where the store's setting promises
    nothing, and what is lost is counted.
    """


@dataclass
class Report:
    """What came of a run."""

    scenario: str
    seed: int
    store: str
    durability: str
    faults: dict[str, int]
    jobs: int = 0
    acknowledged: int = 0
    """Jobs whose producer was told that they are stored."""
    rolled_back: int = 0
    executions: int = 0
    """Handlers that came to their end."""
    lost: int = 0
    """Acknowledged jobs that were lost or forgotten."""
    again: int = 0
    """Executions beyond the first of a job that is done: what at-least-once means in figures."""
    seconds: float = 0.0
    judged: str = "promises"
    violations: list[Violation] = field(default_factory=list[Violation])

    must_break: frozenset[int] = frozenset()

    @property
    def passed(self) -> bool:
        """Nothing was broken; of a product that is broken on purpose, what had to be."""
        broken = {violation.promise for violation in self.violations}
        return bool(broken & self.must_break) if self.must_break else not broken

    @property
    def figures(self) -> dict[str, Any]:
        """All but the violations themselves."""
        told = asdict(self) | {
            "violations": len(self.violations),
            "seconds": round(self.seconds, 1),
            "must_break": sorted(self.must_break),
            "broken": dict(sorted(Counter(each.promise for each in self.violations).items())),
        }
        return told


class Laboratory:
    """Runs a scenario in a folder, which keeps the history and the logs."""

    def __init__(
        self, scenario: Scenario, seed: int, folder: Path, programs: FindPrograms = find_programs
    ) -> None:
        self.programs = programs
        self.scenario = scenario
        self.seed = seed
        self.folder = folder
        self.chance = random.Random(f"{seed}/nemesis")
        self.recorder = Recorder(folder, "runner")
        self.odd: list[str] = []

    def run(self) -> Report:
        """Blocks for the whole of it. Raises when the run itself fails, which is no verdict."""
        began = time.monotonic()
        with self.scenario.stage(self.folder, self.programs) as stage:
            with stage.look() as backend:
                self._prepare(stage, backend)
            with Fleet(self.folder, self.recorder) as fleet:
                self._attack(stage, fleet)
                with stage.look() as backend:
                    record(backend.driver, self.recorder, OUTBOX if stage.outbox_url else STORE)
                    self._drain(stage, backend, fleet)
                    self._probe(backend)
                    fleet.terminate("relay")
                    fleet.terminate("worker")
                    self._list(backend)
                    store, durability = backend.capabilities.store, backend.capabilities.durability
            if (ids := stage.business()) is not None:
                self.recorder.note("business", ids=ids)
        history = History.read(self.folder)
        report = measure(Facts(history), self.scenario.name, self.seed)
        report.store, report.durability = store, durability
        match self.scenario.judged:
            case "promises":
                report.violations = check(history)
            case "loss":
                report.violations = [each for each in check(history, frozenset({1})) if each.is_loss]
            case "nothing":
                pass
        report.judged = self.scenario.judged
        report.must_break = self.scenario.must_break
        report.seconds = time.monotonic() - began
        return report

    # -- Before ---------------------------------------------------------------------------------------------

    def _prepare(self, stage: Stage, backend: Backend) -> None:
        backend.install()
        can = backend.capabilities
        joins = can.transactional is not Transactional.NONE
        RunFile(
            seed=self.seed,
            jobs=self.scenario.jobs,
            pace=self.scenario.pace,
            lease=stage.lease,
            rescue=RESCUE,
            keys=can.deduplication is not Deduplication.NONE,
            future=can.scheduling is not None,
            transactions=stage.transactions if joins else "",
            hold=stage.hold,
            slow=stage.lease * 1.5,
            slow_share=self.scenario.slow_share,
            outbox=bool(stage.outbox_url),
            bad=self.scenario.bad,
        ).write(self.folder)
        stage.write_settings()
        setting = Setting(
            lease="connection" if isinstance(can.lease, ConnectionLease) else "timed",
            lookup=looks_up(backend),
            copies=can.deduplication is Deduplication.NONE,
            rescue=RESCUE,
            outbox=OUTBOX if stage.outbox_url else "",
            window=stage.window,
            margin=MARGIN,
        )
        self.recorder.note("setting", **asdict(setting), scenario=self.scenario.name, seed=self.seed)
        record(backend.driver, self.recorder, OUTBOX if stage.outbox_url else STORE)
        if self.scenario.odd:
            self._register_odd_ones(stage, backend)

    def _register_odd_ones(self, stage: Stage, backend: Backend) -> None:
        poisoned = [] if stage.outbox_url else [Job(kind="work", max_attempts=20) for _ in range(POISONED)]
        # Each worker that is frozen or killed while it holds one spends an attempt of it.
        unknown = [Job(kind="nobody-knows-it", max_attempts=1000) for _ in range(UNKNOWN)]
        self.odd = [str(job.id) for job in (*poisoned, *unknown)]
        fates = {str(job.id): "dead" for job in poisoned} | {str(job.id): "stays" for job in unknown}
        self.recorder.note("expect", jobs=fates)
        backend.register_many([*poisoned, *unknown])
        stage.poison([str(job.id) for job in poisoned])

    # -- The attack -----------------------------------------------------------------------------------------

    def _attack(self, stage: Stage, fleet: Fleet) -> None:
        if stage.outbox_url:
            fleet.spawn("relay")
        for _ in range(self.scenario.workers):
            fleet.spawn("worker")
        for _ in range(self.scenario.producers):
            fleet.spawn("producer")
        fleet.await_beginning()
        for name in self._order():
            time.sleep(self.chance.uniform(0.1, 1.0))
            with self.recorder.operation("fault", {"name": name}):
                FAULTS[name](Field(stage, fleet, self.chance))
        stage.heal()
        fleet.await_end("producer", PRODUCED_WITHIN)

    def _order(self) -> Sequence[str]:
        names = list(self.scenario.faults) * self.scenario.rounds
        self.chance.shuffle(names)
        return names

    # -- Afterwards -----------------------------------------------------------------------------------------

    def _drain(self, stage: Stage, backend: Backend, fleet: Fleet) -> None:
        """Until nothing is left but what has to stay. That something is left is for the judge to say."""
        deadline = time.monotonic() + self.scenario.drained_within
        stays = UNKNOWN if self.scenario.odd else 0
        while time.monotonic() < deadline and stage.left(backend) > stays:
            assert fleet.alive("worker"), "no worker is left"
            time.sleep(0.1)

    def _probe(self, backend: Backend) -> None:
        """Jobs that are due now, while the workers have nothing to do. The first shows that all came back."""
        for number in range(PROBES):
            job = Job(kind="work", max_attempts=20)
            promise, within = (11, RECOVERED_WITHIN) if number == 0 else (6, CLAIMED_WITHIN)
            asked = {"id": str(job.id), "within": within, "promise": promise}
            with self.recorder.operation("probe", asked):
                backend.register(job)
                deadline = time.monotonic() + within
                while time.monotonic() < deadline and not self._has_ended(job):
                    time.sleep(0.02)

    def _has_ended(self, job: Job) -> bool:
        """By the ledger, of which the end is read."""
        for path in self.folder.glob("worker-*.jsonl"):
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 10_000))
                if f'"end","store":"","asked":{{"id":"{job.id}"'.encode() in file.read():
                    return True
        return False

    def _list(self, backend: Backend) -> None:
        with self.recorder.operation("final", {}, store=STORE) as answer:
            answer.answered = [
                {"id": str(each.id), "state": each.state, "attempt": each.attempt}
                for each in listing(backend)
            ]


def measure(facts: Facts, scenario: str, seed: int) -> Report:
    """The figures of a run."""
    executed = Counter(by.asked["id"] for by in facts.history.of("end"))
    return Report(
        scenario=scenario,
        seed=seed,
        store="",
        durability="",
        faults=dict(sorted(Counter(str(by.asked["name"]) for by in facts.faults).items())),
        jobs=len(facts.registered),
        acknowledged=len(facts.holders),
        rolled_back=len(facts.rolled_back),
        executions=executed.total(),
        lost=sum(each.is_loss for each in jobs.lost(facts)),
        again=executed.total() - len(executed),
    )

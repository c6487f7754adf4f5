"""One run: a stage, a fleet, a nemesis; then peace, and the judge.

::

    start -> attack (until the producers are done and every fault has had its turn) -> peace -> drain -> probe
          -> stop everybody -> list what the store has -> check
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from jobcontract import Backend, Job
from jobcontract.contract import (
    ConnectionLease,
    Deduplication,
    Transactional,
)
from jobcontract.side_doors import Notes
from tests.faults.checker import check
from tests.faults.facts import Facts, Setting
from tests.faults.fleet import Fleet
from tests.faults.history import History, Outcome, Recorder
from tests.faults.moving import Migration
from tests.faults.moving_stages import MovingStage
from tests.faults.nemesis import FAULTS, Field
from tests.faults.promises import jobs, leases
from tests.faults.promises.violation import Violation
from tests.faults.run_file import OUTBOX, RunFile, enough
from tests.faults.stages import FindPrograms, NoVictim, Stage, keeps_copies, looks_up
from tests.servers.binaries import find_programs

RESCUE = 0.5
PRODUCED_WITHIN = 300.0
PROBES = 5
MARGIN = 120.0
"""Seconds that a job which was rescued may wait behind the backlog of a busy machine."""
RECOVERED_WITHIN = 30.0
CLAIMED_WITHIN = 10.0
POISONED = 5
FORGETFUL = frozenset({"kill the server", "lose power", "fail over"})
"""The faults at which a store may forget what it has acknowledged."""
WITHOUT = frozenset(
    {"exhaust the connections", "fill a disk", "fill the memory", "hold the write lock", "raise the alarm"}
)
"""The faults by which a store is short of something that it needs: somebody has to notice."""
ENOUGH = 0.6
"""The share of what was planned that has to have happened."""
MOVED = 0.05
"""The share of the planned jobs that have to have been moved: workers go on meanwhile, and leave few."""
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
    """For each producer, at least: it goes on, slowly, until all faults have had their turn."""
    producers: int = 2
    workers: int = 3
    schedulers: int = 2
    pace: float = 0.02
    """Seconds between two batches of a producer."""
    slow_share: float = 0.004
    """How many of the jobs have a handler that takes longer than a lease."""
    hold_share: float = 0.1
    """How many transactions of producers stay open for a while."""
    odd: bool = True
    """Whether some jobs are of an unknown kind, or poisoned where the store can be."""
    drained_within: float = 120.0
    """Seconds that everything has to be done after the last fault."""
    back: bool = True
    """Where jobs move: whether they also move back, and there again."""
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
    orphans: int = 0
    """Leases of workers that were killed."""
    rescued_after: float = 0.0
    """Seconds from the end of such a lease to the next one, at most, where no fault was under way."""
    back_after: float = 0.0
    """Seconds after which the first job was claimed that was registered when all faults were over."""
    claimed_after: float = 0.0
    """Seconds after which a job was claimed that was due while workers had nothing to do, at most."""
    seconds: float = 0.0
    command: str = ""
    """What makes such a run again."""
    judged: str = "promises"
    violations: list[Violation] = field(default_factory=list[Violation])

    thin: list[str] = field(default_factory=list[str])
    """Why a run in which nothing was broken proves nothing: too little happened."""
    moved: int = 0
    """Jobs that were on their way to another store."""
    refused: int = 0
    """Registrations by a client that named the old store and was refused."""

    must_break: frozenset[int] = frozenset()

    @property
    def passed(self) -> bool:
        """Nothing was broken, and enough happened; in a red control, what had to break did."""
        broken = {violation.promise for violation in self.violations}
        return bool(broken & self.must_break) if self.must_break else not broken and not self.thin

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
        self.schedules = False
        """Whether the store can have work that recurs."""

    def run(self) -> Report:
        """Blocks for the whole of it. Raises when the run itself fails, which is no verdict."""
        began = time.monotonic()
        with self.scenario.stage(self.folder, self.programs) as stage:
            with stage.look() as backend:
                self._prepare(stage, backend)
            with Fleet(self.folder, self.recorder) as fleet:
                self._attack(stage, fleet)
                with stage.look() as backend:
                    stage.watch(backend, self.recorder)
                    self._drain(stage, backend, fleet)
                    self._probe(backend)
                    for role in ("stale", "relay", "worker"):
                        fleet.terminate(role)
                    self._list(stage, backend)
                    store, durability = backend.capabilities.store, backend.capabilities.durability
            if (ids := stage.business()) is not None:
                self.recorder.note("business", ids=ids)
        history = History.read(self.folder)
        facts = Facts(history)
        report = measure(facts, self.scenario.name, self.seed)
        report.store, report.durability = store, durability
        match self.scenario.judged:
            case "promises":
                report.violations = check(history)
            case "loss":
                report.violations = [each for each in check(history, frozenset({1})) if each.is_loss]
            case "nothing":
                pass
        report.thin = list(too_little(facts, report, self.scenario))
        report.judged = self.scenario.judged
        report.must_break = self.scenario.must_break
        report.seconds = time.monotonic() - began
        return report

    # -- Before ---------------------------------------------------------------------------------------------

    def _prepare(self, stage: Stage, backend: Backend) -> None:
        stage.install(backend)
        can = backend.capabilities
        self.schedules = isinstance(backend.driver, Notes) and can.scheduling is not None
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
            hold_share=self.scenario.hold_share,
            slow=stage.lease * 1.5,
            slow_share=self.scenario.slow_share,
            outbox=bool(stage.outbox_url),
            bad=self.scenario.bad,
            moves=isinstance(stage, MovingStage),
        ).write(self.folder)
        stage.write_settings()
        stores = stage.stores(backend)
        held = any(isinstance(store.capabilities.lease, ConnectionLease) for store in stores)
        setting = Setting(
            lease="connection" if held else "timed",
            lookup=all(map(looks_up, stores)),
            copies=any(map(keeps_copies, stores)),
            rescue=RESCUE,
            outbox=OUTBOX if stage.outbox_url else "",
            window=stage.window,
            margin=MARGIN,
        )
        self.recorder.note("setting", **asdict(setting), scenario=self.scenario.name, seed=self.seed)
        stage.watch(backend, self.recorder)
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
        if stage.relays:
            fleet.spawn("relay")
        for _ in range(self.scenario.workers):
            fleet.spawn("worker")
        for _ in range(self.scenario.producers):
            fleet.spawn("producer")
        if self.schedules:
            for _ in range(self.scenario.schedulers):
                fleet.spawn("scheduler")
        migration = None
        if isinstance(stage, MovingStage):
            fleet.spawn("stale")
            migration = Migration(stage, fleet, self.recorder, back=self.scenario.back)
        fleet.await_beginning()
        if migration is not None:
            migration.start()
        for name in self._order():
            time.sleep(self.chance.uniform(0.1, 1.0))
            with self.recorder.operation("fault", {"name": name}) as answer:
                try:
                    FAULTS[name](Field(stage, fleet, self.chance, migration))
                except NoVictim:
                    answer.outcome = Outcome.FAIL
        stage.heal()
        if migration is not None:
            migration.end()
        enough(self.folder).touch()
        fleet.await_end("producer", PRODUCED_WITHIN)
        fleet.terminate("scheduler")

    def _order(self) -> Sequence[str]:
        names = list(self.scenario.faults) * self.scenario.rounds
        self.chance.shuffle(names)
        return names

    # -- Afterwards -----------------------------------------------------------------------------------------

    def _drain(self, stage: Stage, backend: Backend, fleet: Fleet) -> None:
        """Until nothing is left but what has to stay. That something is left is for the judge to say."""
        deadline = time.monotonic() + self.scenario.drained_within
        stays = UNKNOWN if self.scenario.odd else 0
        seen_more_at = time.monotonic()
        while (now := time.monotonic()) < deadline:
            assert fleet.alive("worker"), "no worker is left"
            if stage.left(backend) > stays:
                seen_more_at = now
            elif now - seen_more_at >= stage.stale:
                return
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

    def _list(self, stage: Stage, backend: Backend) -> None:
        for store, listed in stage.listings(backend):
            with self.recorder.operation("final", {}, store=store) as answer:
                answer.answered = [
                    {
                        "id": str(each.id),
                        "state": each.state,
                        "attempt": each.attempt,
                        "created": each.created_at.timestamp(),
                    }
                    for each in listed
                ]


def measure(facts: Facts, scenario: str, seed: int) -> Report:
    """The figures of a run."""
    executed = Counter(by.asked["id"] for by in facts.history.of("end"))
    orphans = list(leases.orphans(facts))
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
        orphans=len(orphans),
        rescued_after=max((round(each.waited, 2) for each in orphans), default=0.0),
        back_after=_slowest(facts, 11),
        claimed_after=_slowest(facts, 6),
        moved=len({each["id"] for by in facts.history.of("admit", "carry") for each in by.asked["jobs"]}),
        refused=sum(
            by.outcome is Outcome.FAIL and by.process.startswith("stale")
            for by in facts.history.of("register")
        ),
    )


def _slowest(facts: Facts, promise: int) -> float:
    return max((round(waited, 3) for _, _, waited in leases.probed(facts, promise)), default=0.0)


def too_little(facts: Facts, report: Report, scenario: Scenario) -> Iterator[str]:
    """What did not happen without which a run proves nothing. A tenth of the jobs is rolled back, and as many
    are somebody else's key.
    """
    planned = scenario.jobs * scenario.producers
    if report.acknowledged < planned * ENOUGH:
        yield f"only {report.acknowledged} jobs of {planned} were acknowledged"
    if scenario.judged == "promises" and report.executions < report.acknowledged * ENOUGH:
        yield f"only {report.executions} executions of {report.acknowledged} jobs"
    for name in sorted(set(scenario.faults) - set(report.faults)):
        yield f"{name}: struck nobody"
    losing = [each for each in facts.faults if each.asked["name"] in FORGETFUL]
    if losing and not any(facts.at_stake(each.invoked) for each in losing):
        yield f"nothing was there to be lost when it came to {losing[0].asked['name']}"
    for name in sorted(WITHOUT & set(report.faults)):
        if not any(facts.felt(each) for each in facts.faults if each.asked["name"] == name):
            yield f"{name}: nobody felt it"
    if "shift a clock" in scenario.faults and not facts.shifted:
        yield "nothing ran where the clock was shifted"
    if issubclass(scenario.stage, MovingStage):
        if report.moved < planned * MOVED:
            yield f"only {report.moved} jobs were moved"
        if not report.refused:
            yield "nobody was refused by the fence"

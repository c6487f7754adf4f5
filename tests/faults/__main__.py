"""`python -m tests.faults [SCENARIO...]`: run scenarios, and say which promises they broke."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import click

from tests.faults.disks import NotPossible
from tests.faults.figures import keep
from tests.faults.laboratory import Laboratory, Report
from tests.faults.scenarios import ATTACKS, MOVES, SCENARIOS

SHOWN = 20


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(SCENARIOS)))
@click.option("--seed", "seeds", multiple=True, type=int, help="Of a run; several are several runs.")
@click.option("--minutes", type=float, help="Go on with random seeds for so long.")
@click.option("--jobs", type=int, help="For each producer.")
@click.option("--rounds", type=int, help="How often each fault has its turn.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keep histories and logs there.")
@click.option(
    "--figures", type=click.Path(path_type=Path), help="Add the figures of what passed to this file."
)
def main(
    names: tuple[str, ...],
    seeds: tuple[int, ...],
    minutes: float | None,
    jobs: int | None,
    rounds: int | None,
    folder: Path | None,
    figures: Path | None,
) -> None:
    """Run SCENARIOs (all of them when none is named). Exits with 1 when a promise was broken, or when a
    product that is broken on purpose was not found out.
    """
    chosen = names or tuple(SCENARIOS if minutes is None else (each.name for each in (*ATTACKS, *MOVES)))
    until = None if minutes is None else time.monotonic() + minutes * 60
    reports: list[Report] = []
    waiting = [(name, seed) for seed in (seeds or (1,)) for name in chosen] if until is None else []
    while waiting or (until is not None and time.monotonic() < until):
        name, seed = waiting.pop(0) if waiting else (random.choice(chosen), random.randrange(1_000_000))
        try:
            reports.append(_run(name, seed, jobs, rounds, folder))
        except NotPossible as reason:
            click.echo(f"not run: {reason}")
            continue
        if figures is not None and reports[-1].passed:
            keep(figures, reports[-1])
    sys.exit(not all(report.passed for report in reports))


def _run(name: str, seed: int, jobs: int | None, rounds: int | None, kept: Path | None) -> Report:
    asked = again(name, seed, jobs, rounds)
    scenario = SCENARIOS[name]
    scenario = replace(scenario, jobs=jobs or scenario.jobs, rounds=rounds or scenario.rounds)
    parent = kept or Path(tempfile.mkdtemp(prefix="jobcontract-faults-"))
    folder = parent / f"{name}-{seed}"
    folder.mkdir(parents=True)
    click.echo(f"{name}, seed {seed}: ", nl=False)
    report = Laboratory(scenario, seed, folder).run()
    report.command = asked
    told = report.figures
    click.echo(
        f"{told['acknowledged']} jobs acknowledged, {told['executions']} executions, "
        f"{sum(report.faults.values())} faults, {told['seconds']} s: "
        f"{_verdict(report)}"
    )
    if report.passed and kept is None:
        shutil.rmtree(parent)
    for reason in report.thin:
        click.echo(f"  too little happened: {reason}")
    for violation in report.violations[: 3 if report.passed else SHOWN]:
        click.echo(f"  {violation}")
    if not report.passed:
        click.echo(f"  again: {asked}; its history: {folder}")
    return report


def again(name: str, seed: int, jobs: int | None, rounds: int | None) -> str:
    """The command that makes the same plan: the seed decides it with the number of jobs and of faults."""
    sizes = (("jobs", jobs), ("rounds", rounds))
    options = "".join(f" --{option} {number}" for option, number in sizes if number is not None)
    return f"python -m tests.faults {name} --seed {seed}{options}"


def _verdict(report: Report) -> str:
    if not report.violations:
        if report.thin:
            return "no violations, and it PROVES NOTHING"
        return "no violations" if report.passed else "NO violations, and there must be some"
    broken = ", ".join(map(str, sorted({violation.promise for violation in report.violations})))
    as_expected = ", as it must" if report.passed else ""
    return f"{len(report.violations)} violations of promise {broken}{as_expected}"


if __name__ == "__main__":
    main()

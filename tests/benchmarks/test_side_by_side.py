"""The comparison runs from end to end: tiny, and without peers, which only `make bench` installs."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.side_by_side.__main__ import main
from benchmarks.side_by_side.contestants import CONTESTANTS, Role
from benchmarks.side_by_side.environments import PROGRAMS
from benchmarks.side_by_side.plot import write_plots
from benchmarks.side_by_side.results import Results
from benchmarks.side_by_side.scenarios import SCENARIOS
from benchmarks.side_by_side.table import tables

SHORT = ("drain", "drain-backlog", "drain-future", "latency", "traffic", "size")
TINY = [
    "--rounds",
    "1",
    "--jobs",
    "3000",
    "--paced",
    "10",
    "--rate",
    "100",
    "--backlog",
    "4000",
    "--future",
    "3000",
    "--bulk",
    "3000",
    "--idle",
    "1",
]


def test_the_bare_store_runs_through_the_harness(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    what = ["--stores", "postgres", "--contestants", "bare loop", "--scenarios", *SHORT]
    assert main([*what, *TINY, "--output", str(output)]) == 0
    results = Results.read(output)
    for scenario in SCENARIOS:
        entries = list(results.of(scenario.name, "postgres"))
        assert len(entries) == (scenario.name in SHORT)
        for entry in entries:
            assert entry.values.keys() == scenario.units.keys()
            assert all(value > 0 for values in entry.values.values() for value in values)


@pytest.fixture
def results() -> Results:
    results = Results(servers={"postgres": "PostgreSQL 15: fsync on"})
    for name, role, rates in (
        ("jobcontract", "ours", [10_000.0, 12_000.0, 11_000.0]),
        ("bare loop", "bare", [20_000.0]),
    ):
        results.entry("drain", name, "postgres", role).values["jobs"] = rates
    results.entry("drain", "some peer", "postgres", "peer").cannot = "it has no such thing"
    return results


def test_the_table_shows_the_median_and_the_spread_the_best_first(results: Results) -> None:
    rows = [line for line in tables(results).splitlines() if "/s" not in line and line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == ["| bare loop", "| **jobcontract**", "| some peer"]
    assert "11,000 (10,000 to 12,000)" in rows[2]
    assert "it has no such thing" in rows[3]


def test_a_plot_has_a_bar_for_each_contestant_that_has_values(results: Results, tmp_path: Path) -> None:
    (path,) = write_plots(results, tmp_path)
    assert path.name == "drain-postgres.svg"
    picture = ElementTree.parse(path)
    assert len(picture.findall(".//{*}rect")) == 2
    assert {"jobcontract", "bare loop", "11,000"} <= {text.text for text in picture.findall(".//{*}text")}


def test_results_come_back_as_they_were_written(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == results


def test_every_contestant_has_its_program_and_a_peer_has_pinned_versions() -> None:
    for one in CONTESTANTS:
        folder = PROGRAMS / "peers" if one.role is Role.PEER else PROGRAMS
        assert (folder / f"{one.program}.py").exists(), one.key
        assert all("==" in requirement for requirement in one.requirements)
        assert bool(one.requirements) is (one.role is Role.PEER)
    assert len({one.key for one in CONTESTANTS}) == len(CONTESTANTS)


def test_rounds_are_added_to_a_run_of_the_same_sizes_only(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    what = ["--stores", "redis", "--contestants", "bare loop", "--scenarios", "register-bulk"]
    assert main([*what, *TINY, "--output", str(output)]) == 0
    assert main([*what, *TINY, "--output", str(output), "--add"]) == 0
    (entry,) = Results.read(output).of("register-bulk", "redis")
    assert len(entry.values["jobs"]) == 2
    assert main([*what, *TINY, "--bulk", "4000", "--output", str(output), "--add"]) == 2

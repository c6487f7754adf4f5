"""`jobctl migrate`, as a person or a script runs it."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from jobcontract_migrate import Phase

from jobcontract import Job
from tests.migrate.conftest import MakeStage
from tests.migrate.stage import Stage, all_jobs, until

MOVE = ("migrate", "--from", "old", "--to", "new")


def test_the_command_plans_moves_and_reports(files: Stage) -> None:
    files.backend("old").register_many([Job(kind="work") for _ in range(30)])
    plan = files.jobctl(*MOVE, "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert "30 ready, 0 scheduled, 0 running, 0 dead, 0 cancelled" in plan.stdout
    assert files.jobctl("migrate", "status").returncode == 3
    declined = files.jobctl(*MOVE)
    assert (declined.returncode, "nobody answered" in declined.stderr) == (1, True)
    ran = files.jobctl(*MOVE, "--yes", "--json", "--batch", "7")
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout[ran.stdout.index("{") :])
    assert (report["state"], report["compared"], report["differences"]) == ("sealed", 30, 0)
    assert report["began_with"]["ready"] == 30
    status = json.loads(files.jobctl("migrate", "status", "--json").stdout)
    assert (status["state"], status["jobs_go_to"], status["coordinator"]) == ("sealed", "new", None)
    assert "jobctl migrate complete" in status["next"]
    assert len(all_jobs(files.store("new"))) == 30


def test_the_plan_says_when_nobody_can_be_seen_yet(tmp_path: Path) -> None:
    """The control store's tables are made by `jobctl init`; before, no client can say that it follows."""
    stage = Stage(tmp_path, "old", {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("old", "new")})
    stage.backend("old").install()
    before = stage.jobctl(*MOVE, "--dry-run")
    assert (before.returncode, "run `jobctl init`" in before.stdout) == (0, True), before.stderr
    assert stage.jobctl("init").returncode == 0
    assert "run `jobctl init`" not in stage.jobctl(*MOVE, "--dry-run").stdout
    stage.close()


def test_the_same_command_goes_on_and_says_when_it_is_done(files: Stage) -> None:
    assert files.jobctl(*MOVE, "--yes", "--until", "dual_read").returncode == 0
    assert files.move().state is Phase.DUAL_READ
    assert files.jobctl(*MOVE, "--yes").returncode == 0
    assert files.jobctl(*MOVE, "--yes").returncode == 0  # start twice
    assert files.jobctl("migrate", "resume").returncode == 0
    assert files.jobctl("migrate", "resume").returncode == 0  # resume twice
    assert files.move().state is Phase.SEALED


def test_there_and_back_and_the_end(files: Stage) -> None:
    files.backend("old").register_many([Job(kind="work") for _ in range(3)])
    assert files.jobctl(*MOVE, "--yes").returncode == 0
    assert files.jobctl("migrate", "reverse", "--yes").returncode == 0
    assert files.move().home == "old"
    assert files.jobctl("migrate", "reverse", "--yes").returncode == 0  # reverse twice
    assert files.move().home == "new"
    refused = files.jobctl("migrate", "abort")
    assert (refused.returncode, "`jobctl migrate reverse`" in refused.stderr) == (2, True)
    refused = files.jobctl("migrate", "pause")
    assert (refused.returncode, "it is sealed" in refused.stderr) == (2, True)
    ran = files.jobctl("migrate", "complete", "--yes")
    assert (ran.returncode, ran.stdout) == (0, "completed; jobs live in new\n"), ran.stderr
    refused = files.jobctl("migrate", "reverse", "--yes")
    assert (refused.returncode, "no migration is under way" in refused.stderr) == (2, True)
    again = files.jobctl("migrate", "--from", "new", "--to", "old", "--yes")
    assert again.returncode == 0, again.stderr
    assert len(all_jobs(files.store("old"))) == 3


def test_giving_up_before_the_cut_over(files: Stage) -> None:
    backend = files.backend()
    backend.register(Job(kind="work"))
    assert files.jobctl(*MOVE, "--yes", "--until", "dual_read").returncode == 0
    refused = files.jobctl("migrate", "reverse", "--yes")
    assert (refused.returncode, "`jobctl migrate abort` gives up" in refused.stderr) == (2, True)
    ran = files.jobctl("migrate", "abort")
    assert (ran.returncode, ran.stdout) == (0, "aborted; jobs live in old\n"), ran.stderr
    assert backend.register(Job(kind="work")).created
    claims = backend.claim(limit=10)
    assert len(claims) == 2
    backend.complete_many(claims)
    assert files.jobctl(*MOVE, "--yes").returncode == 0


def test_an_interruption_can_be_resumed(files: Stage, tmp_path: Path) -> None:
    files.backend("old").register_many([Job(kind="work") for _ in range(20)])
    rest = tmp_path / "rest"
    rest.touch()
    arguments = ("-m", "jobcontract", *MOVE, "--yes", "--pause-file", str(rest))
    with files.process(*arguments) as running:
        control = files.control()
        until(lambda: control.is_installed() and (move := control.read()) is not None and move.home == "new")
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
        assert (running.returncode, "the same command goes on" in said) == (4, True), said
    rest.unlink()
    assert files.jobctl(*MOVE, "--yes").returncode == 0
    assert len(all_jobs(files.store("new"))) == 20


def test_a_pause_holds_until_it_is_resumed(files: Stage) -> None:
    files.backend("old").register_many([Job(kind="work") for _ in range(20)])
    reasons: set[str] = set()
    coordinator = files.coordinator(watch=lambda progress: reasons.add(progress.waiting_for), batch=5)
    coordinator.begin("old", "new", {"first_source": "old"})
    coordinator.run(Phase.MOVING)
    assert files.jobctl("migrate", "pause").returncode == 0
    with files.process("-m", "jobcontract", "migrate", "resume") as running:
        _, said = running.communicate(timeout=60)
        assert running.returncode == 0, said
    assert files.move().state is Phase.SEALED


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--from", "old", "--to", "nowhere"), "there is no backend 'nowhere'"),
        (("--from", "old", "--to", "old"), "source and target are the same store"),
        (("--from", "new", "--to", "old"), "jobs live in 'old', not in 'new'"),
        (("--from", "old"), "--from and --to say which stores."),
        (("--from", "old", "--to", "sqlite:///x.db"), "clients follow names"),
    ],
)
def test_what_cant_be_is_refused_in_one_sentence(
    files: Stage, arguments: tuple[str, ...], sentence: str
) -> None:
    ran = files.jobctl("migrate", *arguments, "--yes")
    assert (ran.returncode, sentence in ran.stderr) == (2, True), ran.stderr
    assert files.control().read() is None


def test_a_pair_that_is_not_built_is_refused(make_stage: MakeStage, tmp_path: Path) -> None:
    files = (f"sqlite:///{tmp_path}/{name}.db" for name in ("old", "new"))
    stage = make_stage("old", outbox="old", old=next(files), new=next(files))
    ran = stage.jobctl(*MOVE, "--yes")
    assert ran.returncode == 2
    assert "jobs can't be moved to the backend 'new': its driver has no side door for it yet" in ran.stderr


def test_without_a_control_store_it_says_what_to_set(files: Stage) -> None:
    files.file.write_text(files.file.read_text().replace('control = "old"\n', ""))
    ran = files.jobctl(*MOVE, "--yes")
    assert (ran.returncode, 'set control = "..."' in ran.stderr) == (2, True), ran.stderr


def test_other_commands_follow(files: Stage) -> None:
    files.backend("old").register_many([Job(kind="work") for _ in range(3)])
    files.migrate(cutover_timeout=timedelta(seconds=5))
    stats = files.jobctl("stats", "--json")
    assert stats.returncode == 0, stats.stderr
    assert '"ready": 3' in stats.stdout
    assert files.jobctl("jobs", "list", "--json").stdout.count('"work"') == 3


def test_of_two_commands_at_once_one_works(files: Stage, tmp_path: Path) -> None:
    files.backend("old").register_many([Job(kind="work") for _ in range(20)])
    rest = tmp_path / "rest"
    rest.touch()
    with files.process("-m", "jobcontract", *MOVE, "--yes", "--pause-file", str(rest)) as running:
        control = files.control()
        until(lambda: control.is_installed() and (move := control.read()) is not None and move.home == "new")
        for arguments in ((*MOVE, "--yes"), ("migrate", "resume"), ("migrate", "reverse", "--yes")):
            other = files.jobctl(*arguments)
            assert (other.returncode, "another coordinator is at work" in other.stderr) == (1, True)
        rest.unlink()
        _, said = running.communicate(timeout=60)
        assert running.returncode == 0, said
    assert len(all_jobs(files.store("new"))) == 20

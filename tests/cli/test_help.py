"""Every command has help, examples that run, and its place in docs/cli.md."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shlex
import sqlite3
import subprocess
from pathlib import Path
from uuid import UUID

import click
import pytest

from jobcontract import Backend, Job, State, get_backend
from jobcontract.cli import root
from jobcontract.cli.command import SHARED_OPTIONS, Command
from jobcontract.config import load_settings
from tests.cli.conftest import Run, put
from tests.cli.reference import BEGIN, DOCUMENT, reference
from tests.cli.shown import put_jobctl_into, run_shown, started
from tests.cli.tree import Entry, entries, examples_of, runs

ENTRIES = entries()
VERBS = [entry for entry in ENTRIES if runs(entry.command)]
EXAMPLES = [*root.EXAMPLES] + [example for entry in VERBS for example in examples_of(entry.command)]
each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.path)
each_verb = pytest.mark.parametrize("entry", VERBS, ids=lambda entry: entry.path)


@each_entry
def test_each_command_has_help_whose_first_sentence_fits_a_line(entry: Entry) -> None:
    assert entry.command.help
    assert not entry.command.get_short_help_str(limit=65).endswith("...")


@each_verb
def test_each_command_has_an_example_of_its_own(entry: Entry) -> None:
    text = "\n".join(examples_of(entry.command)) or entry.command.help or ""
    assert f"{entry.path}" in text


@each_verb
def test_each_option_has_help(entry: Entry) -> None:
    for parameter in entry.command.get_params(entry.context):
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


@each_verb
def test_each_command_of_ours_takes_the_shared_options(entry: Entry) -> None:
    if isinstance(entry.command, Command):
        wanted = SHARED_OPTIONS if entry.command.takes_backend else SHARED_OPTIONS - {"backend"}
        assert wanted <= {parameter.name for parameter in entry.command.params}


def test_reading_commands_speak_json() -> None:
    """What a program might read: everything but what only acts and what prints lines for programs anyway."""
    silent = {
        "jobctl worker",
        "jobctl metrics",
        "jobctl queues pause",
        "jobctl queues resume",
        "jobctl dead export",
        "jobctl schedule run",
        "jobctl schedule sql",
        "jobctl migrate abort",
        "jobctl migrate complete",
        "jobctl migrate pause",
    }
    without = {
        entry.path
        for entry in VERBS
        if isinstance(entry.command, Command)
        and "as_json" not in {parameter.name for parameter in entry.command.params}
    }
    assert without == silent


def test_the_help_shows_options_examples_and_exit_codes(run: Run) -> None:
    help_of_register = run("register", "--help").out
    assert "Common options:\n  --config FILE" in help_of_register
    assert "Examples:\n  jobctl register send_mail" in help_of_register
    help_of_all = run("--help").out
    for code in ("0", "1", "2", "3", "130", "141"):
        assert re.search(rf"^  {code} +\w", help_of_all, re.MULTILINE)


def test_the_reference_in_the_documentation_is_that_of_the_commands() -> None:
    text = DOCUMENT.read_text().partition(BEGIN)[2]
    assert text == reference(), "run: python -m tests.cli.reference"


def test_the_prose_of_the_documentation_names_commands_that_exist() -> None:
    paths = {entry.path for entry in ENTRIES}
    prose = DOCUMENT.read_text().partition(BEGIN)[0]
    groups = {entry.path for entry in ENTRIES if isinstance(entry.command, click.Group)}
    for found in re.findall(r"jobctl ([a-z]+)(?: ([a-z]+))?", prose):
        path = f"jobctl {found[0]}"
        assert path in paths, path
        if path in groups and found[1]:
            assert f"{path} {found[1]}" in paths


@pytest.fixture
def stage(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A folder in which the examples make sense; the environment to run them in."""
    (folder / "jobcontract.toml").write_text(
        'default = "local"\n'
        '[backends.local]\nurl = "sqlite:///jobcontract.db"\n'
        '[backends.other]\nurl = "sqlite:///other.db"\n'
        '[backends.rabbitmq]\nurl = "sqlite:///target.db"\noutbox = "local"\n'
        '[schedules.nightly]\ncron = "0 2 * * *"\nkind = "send_mail"\n'
    )
    (folder / "app.py").write_text(
        "from jobcontract import Handlers\n"
        "handlers = Handlers()\n"
        "@handlers.handler('send_mail')\n"
        "def send_mail(input): pass\n"
    )
    lines = '{"kind": "send_mail", "idempotency_key": "1"}\n{"kind": "send_mail"}\n'
    (folder / "jobs.jsonl").write_text(lines)
    (folder / "jobs.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    for name in ("other", "jobcontract"):
        with get_backend(f"sqlite:///{folder}/{name}.db") as backend:
            backend.install()
            if name == "jobcontract":
                _fill(backend)
    with get_backend("rabbitmq", settings=load_settings(folder / "jobcontract.toml")) as backend:
        backend.install()
        backend.register(Job(kind="send_mail", id=UUID("0197b3a2-0000-7000-8000-000000000001")))
    with contextlib.closing(sqlite3.connect(folder / "jobcontract.db")) as connection, connection:
        connection.execute(
            "UPDATE jobcontract_outbox SET parked_at = 1, attempts = 10, last_error = 'refused'"
        )
    programs = tmp_path_factory.mktemp("bin")
    put_jobctl_into(programs)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


def _fill(backend: Backend) -> None:
    put(backend, State.DEAD, kind="send_mail", id="0197b3a2-0000-7000-8000-000000000002")
    put(backend, State.READY, kind="send_mail", id="0197b3a2-0000-7000-8000-000000000001")


def _set_a_job_running(folder: Path) -> None:
    with get_backend(f"sqlite:///{folder}/jobcontract.db") as backend:
        put(backend, State.RUNNING, kind="send_mail", id="0197b3a2-0000-7000-8000-000000000003", queue="stop")


def _set_up_a_migration(example: str, folder: Path, environment: dict[str, str]) -> None:
    """Two stores, and a migration between them where the example is about one that is under way."""
    (folder / "jobcontract.toml").write_text(
        'default = "postgres"\ncontrol = "postgres"\n'
        '[backends.postgres]\nurl = "sqlite:///jobcontract.db"\n'
        '[backends.redis]\nurl = "sqlite:///target.db"\n'
    )
    early = re.search("migrate (abort|pause|resume)", example)
    run = ["jobctl", "migrate", "--from", "postgres", "--to", "redis", "--yes"]
    if "--from" not in example:
        run += ["--until", "dual_read"] if early else []
        subprocess.run(run, cwd=folder, env=environment, check=True, capture_output=True)


SPEAKING = [
    (entry.path, example)
    for entry in VERBS
    if "as_json" in {parameter.name for parameter in entry.command.params}
    and entry.path not in ("jobctl bench", "jobctl demo")  # whose own tests read their JSON
    for example in [*examples_of(entry.command)][:1]
]


@pytest.mark.parametrize(("path", "example"), SPEAKING, ids=str)
def test_what_is_printed_for_programs_is_json_in_ascii(
    path: str, example: str, stage: dict[str, str], folder: Path, run: Run
) -> None:
    _prepare(example, folder, stage)
    words = [word for word in shlex.split(example, comments=True)[1:] if word not in ("--json", "--watch")]
    if path == "jobctl relay":
        words.append("--check")
    ran = run(*words, "--json")
    assert ran.code in (0, 1), ran.err
    assert ran.out.isascii()
    assert isinstance(json.loads(ran.out), (dict, list))


def _prepare(example: str, folder: Path, environment: dict[str, str]) -> None:
    if example.startswith("jobctl migrate"):
        _set_up_a_migration(example, folder, environment)
    if example.startswith("jobctl jobs stop"):  # only there, for others would wait for it
        _set_a_job_running(folder)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_each_example_runs(example: str, stage: dict[str, str], folder: Path) -> None:
    _prepare(example, folder, stage)
    ran = run_shown(example, folder, stage)
    ailing = "jobctl doctor" in example  # the stage has a parked job
    if "schedule sql" in example:  # the stage has no PostgreSQL
        assert ran.code == 3
        return
    assert ran.code in ((0, 130) if started(example) else (1,) if ailing else (0,)), ran.out

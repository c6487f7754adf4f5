"""Commands of other packages, found by entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jobcontract import Backend
from tests.cli.conftest import Ran, Run

MODULE = """
import click
from jobcontract.cli.command import Command
from jobcontract.cli.session import pass_session

@click.command(cls=Command, examples=("jobctl hello",))
@pass_session
def hello(session):
    \"\"\"Greet the store.\"\"\"
    click.echo(f"hello {session.backend().capabilities.store}")

@click.command()
@click.argument("name")
def plain(name):
    \"\"\"A command that knows nothing of jobctl.\"\"\"
    click.echo(f"plain {name}")

stats = hello
number = 7
"""
ENTRY_POINTS = """
[jobcontract.commands]
hello = their_commands:hello
plain = their_commands:plain
stats = their_commands:stats
number = their_commands:number
missing = their_commands:nothing
broken = their_broken_commands:anything
"""


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of strangers, as an installer lays it down."""
    site = tmp_path_factory.mktemp("site")
    (site / "their_commands.py").write_text(MODULE)
    (site / "their_broken_commands.py").write_text("raise RuntimeError('no\\nluck \\x1b[2J')")
    _install(site, "their-package", ENTRY_POINTS)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])


def _install(site: Path, name: str, entry_points: str) -> None:
    folder = site / f"{name.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(entry_points)


def test_they_stand_in_the_help_and_run_with_the_chosen_store(run: Run, backend: Backend) -> None:
    assert "  hello     Greet the store.\n" in run("--help").out
    assert run("hello").out.startswith("hello SQLite ")
    assert run("hello", "--backend", "sqlite:///none.db").code == 1
    assert run("plain", "x") == Ran(0, "plain x\n", "")


def test_the_names_of_our_own_can_not_be_taken(run: Run, backend: Backend) -> None:
    assert run("stats") == Ran(0, "", "no queue has jobs or is paused\n")


def test_one_that_can_not_be_loaded_is_one_line_of_warning_in_the_help(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    assert sorted(ran.err.splitlines()) == [
        "Warning: the command 'broken' of package their-package can't be loaded "
        "(RuntimeError: no luck \\x1b[2J)",
        "Warning: the command 'missing' of package their-package can't be loaded "
        "(AttributeError: module 'their_commands' has no attribute 'nothing')",
        "Warning: the command 'number' of package their-package can't be loaded "
        "(their_commands:number is a int, not a click.Command)",
    ]
    assert "  broken    (can't be loaded)\n" in ran.out
    assert "  prune " in ran.out


def test_one_that_can_not_be_loaded_fails_when_it_is_called_and_troubles_no_other(
    run: Run, backend: Backend
) -> None:
    ran = run("number", "whatever", "--option")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "Error: the command 'number' of package their-package can't be loaded "
        "(their_commands:number is a int, not a click.Command)\n"
    )
    assert run("queues", "list").err == "no queue has jobs or is paused\n"


def test_they_are_suggested_too(run: Run) -> None:
    assert run("helo").err.splitlines()[0] == "Error: There is no command 'helo'; did you mean 'hello'?"

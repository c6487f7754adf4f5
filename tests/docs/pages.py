"""A page of the documentation, worked through as its reader would: what it shows is written and run.

What stands in a fence is taken by its language:

- ``python``: written to the file that a first line ``# app.py`` names, else run;
- ``toml``: from now on the configuration, which has to load;
- ``console``: each line behind ``$`` is a command that has to succeed, unless an error is shown below it. One
  that goes on is stopped once it is at work. Lines below it are what it prints; ``...`` stands for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jobcontract.config import load_settings
from tests.cli.shown import put_jobctl_into, run_shown

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)```([a-z]+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:py|toml|ini))\n")
_NOT_RUN = ("pip install ", "make ")  # what they name is checked by test_documents
SHOWN_ONLY = frozenset({"text", "yaml", "json", "ini"})


class Fence(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


class Shown(NamedTuple):
    """A command of a page, and what the page says that it prints."""

    command: str
    output: str


def fences(page: Path) -> list[Fence]:
    """The fences of `page`, except those for Sphinx."""
    found = _FENCE.findall(page.read_text())
    return [
        Fence(language, re.sub(rf"^{indentation}", "", text, flags=re.MULTILINE))
        for indentation, language, text in found
    ]


def commands(text: str) -> Iterator[Shown]:
    """The commands of a fence ``console``."""
    joined = text.replace("\\\n", "")
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Shown(command, output.strip("\n"))


class Reader:
    """Works through pages in `folder`."""

    def __init__(self, folder: Path, replaced: Mapping[str, str] | None = None) -> None:
        """`replaced`: addresses that pages show, and what stands for them here."""
        self.folder = folder
        self._replaced = replaced or {}
        programs = folder / "bin"
        programs.mkdir()
        put_jobctl_into(programs)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("JOBCONTRACT_")}
        self.environment = {
            **inherited,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "COLUMNS": "120",
        }

    def work_through(self, page: Path, *, left_out: frozenset[str] = frozenset()) -> None:
        """Do what `page` says, in its order; `left_out` are commands that another test runs."""
        for fence in fences(page):
            text = fence.text
            for address, real in self._replaced.items():
                text = text.replace(address, real)
            match fence.language:
                case "python":
                    self._python(text)
                case "toml":
                    self._settings(text)
                case "console":
                    for shown in commands(text):
                        if shown.command not in left_out:
                            self._command(shown)
                case _:
                    assert fence.language in SHOWN_ONLY, f"nobody runs {fence.language}"

    def _python(self, text: str) -> None:
        named = _FILE.match(text)
        if named:
            (self.folder / named[1]).write_text(text)
            return
        ran = subprocess.run(
            [sys.executable, "-c", text],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ran.returncode == 0, f"{text}\n{ran.stderr}"

    def _settings(self, text: str) -> None:
        named = _FILE.match(text)
        file = self.folder / (named[1] if named else "jobcontract.toml")
        file.write_text(text)
        load_settings(file, environment={})

    def _command(self, shown: Shown) -> None:
        if shown.command.startswith(_NOT_RUN):
            return
        ran = run_shown(shown.command, self.folder, self.environment, answer="y\n")
        fails = re.search(r"^(Traceback|Error: )", shown.output, re.MULTILINE) is not None
        assert (ran.code in (0, 130)) is not fails, f"$ {shown.command}\n{ran.out}"
        if shown.output:
            assert _matches(shown.output, ran.out), f"$ {shown.command}\n{ran.out}\nis not\n{shown.output}"


def _matches(wanted: str, found: str) -> bool:
    """Whether `found` is `wanted`, where ``...`` stands for anything and white space for any; so does an id
    that is cut short, for the day of its job is in its first digits.
    """
    wanted = re.sub(r"\b[0-9a-f]{6}\.\.\.", "...", wanted)
    pattern = re.escape(" ".join(wanted.split())).replace(re.escape("..."), ".*?")
    return re.fullmatch(pattern, " ".join(found.split())) is not None

"""What the Makefile's tools find on a machine."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

PYTHONS = runpy.run_path(str(Path(__file__).parents[2] / "tools/pythons.py"))
find = cast(Callable[[str], "str | None"], PYTHONS["find"])


def script(path: Path, text: str) -> None:
    """A program at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_the_declared_pythons_begin_with_the_oldest_that_is_accepted() -> None:
    declared = PYTHONS["declared_versions"]()
    assert declared[0] == "3.11"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in declared


def test_an_interpreter_on_the_path_is_found(programs: Path) -> None:
    assert find("3.12") is None
    script(programs / "python3.12", "echo 3.12")
    assert find("3.12") == str(programs / "python3.12")


def test_a_shim_that_does_not_work_is_passed_over_for_what_pyenv_has(programs: Path, tmp_path: Path) -> None:
    script(programs / "python3.13", "echo 'version 3.13 is not switched on' >&2; exit 127")
    script(programs / "pyenv", f"echo {tmp_path}/pyenv")
    assert find("3.13") is None
    installed = tmp_path / "pyenv/versions/3.13.0/bin/python3.13"
    script(installed, "echo 3.13")
    assert find("3.13") == str(installed)


def test_an_interpreter_that_calls_itself_something_else_is_not_believed(programs: Path) -> None:
    script(programs / "python3.14", "echo 3.9")
    assert find("3.14") is None


def test_what_uv_has_is_found(programs: Path, tmp_path: Path) -> None:
    script(tmp_path / "uv-python3.14", "echo 3.14")
    script(programs / "uv", f"echo {tmp_path}/uv-python3.14")
    assert find("3.14") == f"{tmp_path}/uv-python3.14"

"""The virtual environments of the peers: one each, beside this file, made at the first use."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.side_by_side.contestants import Contestant, Role

FOLDER = Path(__file__).parent / ".environments"
PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]


class NotInstallable(Exception):
    """A peer can't be installed here; the message ends with what pip said."""


def command(contestant: Contestant) -> tuple[list[str], dict[str, str]]:
    """The words that start the contestant's program, and what they need in the process environment.

    Makes the peer's environment where it is missing or was made for other versions: minutes, the first time.

    Raises:
        NotInstallable: pip failed.
    """
    if contestant.role is not Role.PEER:
        module = f"benchmarks.side_by_side.programs.{contestant.program}"
        return [sys.executable, "-m", module], {"PYTHONPATH": str(ROOT)}
    python = _environment(contestant) / "bin" / "python"
    return [str(python), str(PROGRAMS / "peers" / f"{contestant.program}.py")], {"PYTHONPATH": str(PROGRAMS)}


def _environment(contestant: Contestant) -> Path:
    folder = FOLDER / contestant.program
    stamp = folder / "requirements.txt"
    wanted = "\n".join((f"# Python {sys.version.split()[0]}", *contestant.requirements)) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    for words in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *contestant.requirements],
    ):
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        if result.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise NotInstallable(f"{contestant.name}: {result.stderr.strip()[-2000:]}")
    stamp.write_text(wanted)
    return folder

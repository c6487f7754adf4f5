"""Run the benchmarks one after the other: `make bench`, or some: ``make bench ARGS="pinned_horizon"``.

Each is a module of this folder with a `main`, and can be run alone with options of its own:
``python -m benchmarks.NAME --help``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def names() -> list[str]:
    """The benchmarks there are."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def main() -> int:
    """Run those named in the arguments, or all; 1 when one failed."""
    wanted = sys.argv[1:] or names()
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    failed: list[str] = []
    for name in wanted:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

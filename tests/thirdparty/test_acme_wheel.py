"""A stranger's driver from its own wheel: found by its entry point, held to the suite that jobcontract ships.

Both wheels are built from this tree and installed into a fresh environment. Their dependencies are those of
the environment that runs this test, seen through a path file: nothing is fetched, and the editable install of
this tree is not seen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TREE = HERE.parent.parent


@dataclass(frozen=True)
class Installed:
    """The environment, and a folder far from this tree."""

    python: Path
    folder: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run its Python, as a user's shell would."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))
        }
        return subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env={**kept, **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    wheels = tmp_path_factory.mktemp("wheels")
    for project in (TREE, HERE / "acme"):
        _run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(project))
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    found = sorted(str(wheel) for wheel in wheels.glob("*.whl"))
    assert [Path(wheel).name.partition("-")[0] for wheel in found] == ["acme_queue", "jobcontract"]
    _run("-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", *found)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    folder = tmp_path_factory.mktemp("acme")
    shutil.copy(HERE / "acme" / "test_acme.py", folder)
    return Installed(python, folder)


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_the_wheels_that_are_tested(installed: Installed) -> None:
    source = "import acme_queue, jobcontract; print(acme_queue.__file__); print(jobcontract.__file__)"
    done = installed.run("-c", source)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert Path(line).is_relative_to(installed.python.parent.parent)


def test_its_driver_is_found_by_its_scheme(installed: Installed) -> None:
    source = """
from jobcontract import Job, get_backend
backend = get_backend("acme://demo", require=["deduplication", "cancel"])
backend.register(Job(kind="greet", input_ref={"name": "Zoë"}))
(claim,) = backend.claim()
backend.complete(claim)
print(backend.capabilities.store, claim.job.input_ref)
"""
    done = installed.run("-X", "utf8", "-c", source)
    assert (done.returncode, done.stdout) == (0, "Acme 1.0 {'name': 'Zoë'}\n"), done.stderr


def test_it_passes_the_suite(installed: Installed) -> None:
    done = installed.run("-m", "pytest", "-q", "test_acme.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "TestAcme: Acme 1.0" in done.stdout
    assert "not declared: fsync, lookup, move, notes, prune, requeue, stats, transactions" in done.stdout


def test_with_a_fault_in_it_it_fails_and_says_where(installed: Installed) -> None:
    done = installed.run(
        "-m", "pytest", "-q", "--tb=short", "test_acme.py", "-k", "stale", ACME_SCHEME="acme-faulty"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert (
        "TestAcme.test_a_stale_token_changes_nothing[complete-claimed again after the rescue]" in done.stdout
    )
    assert "a token that is not current was honoured: Verdict(applied=True, state=<State.DONE" in done.stdout


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("jobcontract", ("pytest", "hypothesis", "_pytest")),
        ("jobcontract", ("psycopg", "redis", "pika", "sqlalchemy", "django")),
        (
            "jobcontract.conformance",
            ("jobcontract_sqlite", "jobcontract_postgres", "jobcontract_redis", "psycopg"),
        ),
    ],
)
def test_what_is_not_needed_is_not_imported(
    installed: Installed, module: str, absent: tuple[str, ...]
) -> None:
    source = f"import sys, {module}; print(sorted(set(sys.modules) & set({absent!r})))"
    done = installed.run("-c", source)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_without_its_extra_the_suite_says_what_to_install(installed: Installed) -> None:
    source = "import sys; sys.modules['pytest'] = None; import jobcontract.conformance"
    done = installed.run("-c", source)
    assert done.returncode == 1
    assert "pip install 'jobcontract[conformance]'" in done.stderr.splitlines()[-1]

"""Handlers are found by MODULE:ATTRIBUTE, and what is in the way is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobcontract import ConfigError
from jobcontract.worker import load_handlers

GOOD = """
from jobcontract import Handlers

handlers = Handlers()
empty = Handlers()
number = 5

class app:
    handlers = handlers

@handlers.handler("job")
def job(input): ...
"""


@pytest.fixture(autouse=True)
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with modules; none of them is imported before or after the test."""
    (tmp_path / "good_app.py").write_text(GOOD)
    (tmp_path / "nothing_app.py").write_text("number = 5\n")
    (tmp_path / "broken_app.py").write_text("\n\nraise RuntimeError('no database')\n")
    (tmp_path / "invalid_app.py").write_text("def (\n")
    (tmp_path / "leaving_app.py").write_text("raise SystemExit('no')\n")
    (tmp_path / "importing_app.py").write_text("import no_such_library\n")
    package = tmp_path / "package_app"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "jobs.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0].endswith("_app")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "target", ["good_app:handlers", "package_app.jobs:handlers", "good_app:app.handlers"]
)
def test_handlers_are_found_in_the_working_directory(target: str) -> None:
    assert load_handlers(target).kinds == ["job"]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("good_app", "write MODULE:ATTRIBUTE"),
        (":handlers", "write MODULE:ATTRIBUTE"),
        ("good_app:", "write MODULE:ATTRIBUTE"),
        ("good_app:handler", "has no 'handler'; did you mean good_app:handlers?"),
        ("good_app:number", "is a int, not a jobcontract.Handlers; did you mean good_app:"),
        ("good_app:empty", "good_app:empty has no handlers; register at least one with @empty.handler"),
        ("nothing_app:handlers", "nothing in nothing_app is a jobcontract.Handlers"),
        ("missing_app:handlers", "there is no module 'missing_app' in "),
        ("package_app.tasks:handlers", "there is no module 'package_app.tasks' in "),
        ("importing_app:handlers", "importing importing_app failed: ModuleNotFoundError: .*no_such_library"),
        ("broken_app:handlers", r"importing broken_app failed: RuntimeError: no database \(.*py, line 3\)"),
        ("invalid_app:handlers", "importing invalid_app failed: SyntaxError"),
        ("leaving_app:handlers", "importing leaving_app failed: SystemExit: no"),
    ],
)
def test_what_is_in_the_way_is_named(target: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refusal:
        load_handlers(target)

    assert "\n" not in str(refusal.value)


def test_the_cause_stays_with_the_error() -> None:
    with pytest.raises(ConfigError) as refusal:
        load_handlers("broken_app:handlers")

    assert isinstance(refusal.value.__cause__, RuntimeError)

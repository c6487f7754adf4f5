"""docs/writing-a-driver.md shows what is really run: the example's own files, every member of the door."""

from __future__ import annotations

import re
from pathlib import Path

from jobcontract.conformance import Harness
from jobcontract.contract import Driver

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "writing-a-driver.md").read_text()
ACME = ROOT / "tests" / "thirdparty" / "acme"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)


def test_the_test_file_is_the_one_that_acme_is_tested_with() -> None:
    (shown,) = blocks("python")
    assert shown in (ACME / "test_acme.py").read_text()


def test_the_entry_point_is_acmes() -> None:
    (shown,) = blocks("toml")
    assert shown in (ACME / "pyproject.toml").read_text()


def test_every_member_of_a_driver_has_its_row() -> None:
    members = {name for name in vars(Driver) if not name.startswith("_")}
    assert set(re.findall(r"^\| `(\w+)", DOCUMENT, re.MULTILINE)) == members
    assert len(members) == 10


def test_the_members_of_a_harness_exist() -> None:
    named = re.search(
        r"The other members of `Harness`\nopen more of the suite: (.*?), and numbers", DOCUMENT, re.DOTALL
    )
    assert named is not None
    for name in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", named[1], flags=re.DOTALL)):
        assert hasattr(Harness, name)

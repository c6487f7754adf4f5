"""The documents say what is there: links lead somewhere, targets exist, the example configuration loads."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from jobcontract.config import load_settings

ROOT = Path(__file__).parents[2]
TRACKED = subprocess.run(
    ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split("\0")
DOCUMENTS = [ROOT / name for name in TRACKED if name.endswith(".md")]
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_and_each_named_file_exists(document: Path) -> None:
    text = document.read_text()
    linked = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text)
    named = re.findall(
        r"`((?:docs|jobcontract|backends|outbox|migrate|tests|benchmarks|tools)/[\w./-]*)`", text
    )
    missing = [
        name
        for name in (*linked, *named)
        if not ((document.parent / name).exists() or (ROOT / name).exists())
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_make_target_that_a_document_names_exists(document: Path) -> None:
    named = set(re.findall(r"(?:^\$ |`)make ([a-z][a-z-]*)", document.read_text(), flags=re.MULTILINE))
    assert {target for target in named if not re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)} == set()


def test_the_example_configuration_fits_the_compose_file() -> None:
    settings = load_settings(ROOT / "jobcontract.example.toml", environment={})
    compose = (ROOT / "docker-compose.yml").read_text()
    published = set(re.findall(r'"127\.0\.0\.1:(\d+):\d+"', compose))
    for name in settings.backends:
        url = settings.store(name).url
        assert all(str(host.port) in published for host in url.hosts), name


def test_the_compose_file_checks_the_health_of_each_server() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    assert compose.count("image:") == compose.count("healthcheck:") == 3


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_each_extra_that_a_text_names_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {
        extra
        for name in TRACKED
        if name.endswith((".md", ".py")) and (ROOT / name).exists() and not name.startswith("tests/")
        for found in re.findall(r"jobcontract\[([a-z,]+)\]", (ROOT / name).read_text())
        for extra in found.split(",")
    }
    assert named <= set(project["optional-dependencies"])

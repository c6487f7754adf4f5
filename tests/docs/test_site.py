"""The documentation as a site: it builds without a warning, and each link in it leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.timeout(300)  # some seconds of work, on a machine that may have other work


class Links(HTMLParser):
    """What a page links to, and the names of its places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            if value and (name == "href" or (name == "src" and tag in ("img", "script"))):
                self.targets.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert built.returncode == 0, built.stderr
    assert " ".join(command[1:-1]) in (ROOT / "Makefile").read_text()  # as `make docs` builds it
    return folder


def test_each_link_leads_to_a_place_in_the_site(site: Path) -> None:
    pages = {page: Links(page.read_text()) for page in site.rglob("*.html")}
    broken: list[str] = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            places = pages[file].places if file in pages else set[str]()
            if not file.exists() or (file in pages and parts.fragment and parts.fragment not in places):
                broken.append(f"{page.relative_to(site)} -> {target}")
    assert broken == []
    assert len(pages) > 25


def test_the_reference_shows_what_the_docstrings_say(site: Path) -> None:
    """A directive that finds nothing builds, too."""
    python = (site / "reference/python.html").read_text()
    for name in ("get_backend", "Backend.register", "Job.idempotency_key", "JobContext.check_cancelled"):
        assert f'id="jobcontract.{name}"' in python
    configuration = (site / "reference/configuration.html").read_text()
    for setting in (
        "pool_size",
        "wait_replicas",
        "create_queues",
        "busy_timeout",
        "rescue_interval",
        "catch_up",
    ):
        assert setting in configuration

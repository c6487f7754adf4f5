"""The demo tells the truth: what it prints is what the application's tables hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobcontract.demo import embedded
from jobcontract.demo.documents import extract_terms, find_documents
from jobcontract.errors import ConfigError
from tests.cli.process import until

DOCUMENTS = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Some texts, and what must not be taken for one."""
    found = tmp_path / "documents"
    found.mkdir()
    for number in range(DOCUMENTS):
        (found / f"{number}.txt").write_text(f"lorem ipsum dolor {'sit amet ' * number}")
    (found / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    (found / "latin.txt").write_bytes("grüße".encode("latin-1"))
    (found / "empty.txt").touch()
    return found


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "jobcontract", "demo", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=110)


def test_the_jobs_move_while_the_workers_run(folder: Path) -> None:
    ended = run_demo("--documents", str(folder), "--migrate", "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["moved"] >= DOCUMENTS // 2
    assert (found["documents"], found["results"], found["lost"], found["doubled"]) == (
        DOCUMENTS,
        DOCUMENTS,
        0,
        0,
    )
    assert found["jobs_done"] == DOCUMENTS


def test_nothing_is_lost_and_nothing_doubled_though_a_worker_is_killed(folder: Path) -> None:
    ended = run_demo("--documents", str(folder), "--json")
    assert ended.returncode == 0, ended.stderr
    outcome = json.loads(ended.stdout)
    assert (outcome["documents"], outcome["results"], outcome["jobs_done"]) == (DOCUMENTS,) * 3
    assert (outcome["lost"], outcome["doubled"]) == (0, 0)
    assert outcome["attempts"] >= DOCUMENTS
    assert outcome["store"].startswith("PostgreSQL" if embedded.is_available() else "SQLite")
    assert "Killed worker" in ended.stderr


def test_it_leaves_no_file_behind(folder: Path) -> None:
    before = set(Path("/tmp").glob("jobcontract-demo-*"))
    assert run_demo("--documents", str(folder)).returncode == 0
    left = set(Path("/tmp").glob("jobcontract-demo-*")) - before
    # Those of other demos, which other tests may run meanwhile, go with them.
    until(lambda: not any(directory.exists() for directory in left), patience=100)


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    ended = run_demo("--documents", str(tmp_path / "nowhere"))
    assert ended.returncode == 2
    assert ended.stderr.strip() == f"Error: DOCUMENTS: {tmp_path}/nowhere is not a folder"


def test_only_texts_are_documents(folder: Path) -> None:
    assert len(find_documents(folder)) == DOCUMENTS
    for path in folder.glob("*.txt"):
        path.unlink()
    with pytest.raises(ConfigError, match="holds no text files"):
        find_documents(folder)


def test_terms_are_the_most_frequent_words() -> None:
    assert extract_terms("To be, or not to be: not TO_BE 42", most=2) == {"not": 2}

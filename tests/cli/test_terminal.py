"""Terminals and pipes, with real ones."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from jobcontract import Backend, Job, State
from tests.cli.conftest import Ran, put
from tests.cli.process import JOBCTL, Process, until


class Terminal:
    """A pseudo-terminal of some width; collects what is written to it."""

    def __init__(self, columns: int = 100) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._read = bytearray()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        while True:
            try:
                chunk = os.read(self._ours, 65536)
            except OSError:  # the last process has closed its end
                return
            if not chunk:
                return
            self._read += chunk

    def type(self, text: str) -> None:
        """Type on its keyboard."""
        os.write(self._ours, text.encode())

    @property
    def text(self) -> str:
        """What was written until now."""
        return bytes(self._read).decode()

    def close(self) -> str:
        """Everything that was written."""
        os.close(self.theirs)
        self._thread.join(10)
        os.close(self._ours)
        return self.text


COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
    ids=str,
)
def test_a_terminal_gets_colours_unless_it_does_not_want_them(
    backend: Backend, folder: Path, environment: dict[str, str], coloured: bool
) -> None:
    put(backend, State.DEAD)
    terminal = Terminal()
    with Process(
        "stats", "--watch", folder=folder, stdout=terminal.theirs, environment=environment
    ) as jobctl:
        until(lambda: "READY" in terminal.text)
        jobctl.interrupt()
        assert jobctl.end().code == 130
    written = terminal.close()
    # Bold is no colour.
    colours = [code for code in COLOURS.findall(written) if code not in ("\x1b[1m", "\x1b[0m")]
    assert bool(colours) is coloured


def test_a_table_is_as_wide_as_the_terminal_and_in_a_pipe_as_its_content(
    backend: Backend, folder: Path
) -> None:
    job = put(backend, State.DEAD, idempotency_key="k" * 300, error="e" * 150)
    terminal = Terminal(columns=120)
    with Process("jobs", "list", folder=folder, stdout=terminal.theirs) as jobctl:
        assert jobctl.end().code == 0
    rows = COLOURS.sub("", terminal.close()).splitlines()
    assert len(rows) == 2
    assert all(len(row) <= 120 for row in rows)
    assert rows[1].startswith(str(job.id))
    with Process("jobs", "list", folder=folder) as jobctl:
        plain = jobctl.end().out
    assert "k" * 300 in plain
    assert "e" * 150 in plain
    assert not COLOURS.search(plain)


def test_progress_is_shown_on_a_terminal_only(backend: Backend, folder: Path) -> None:
    (folder / "jobs.jsonl").write_text('{"kind": "k"}\n' * 3000)
    terminal = Terminal()
    with Process("register", "--from-file", "jobs.jsonl", folder=folder, stderr=terminal.theirs) as jobctl:
        assert jobctl.end().out == "registered 3,000 jobs\n"
    written = terminal.close()
    assert "Checking" in written
    assert "Registering" in written
    with Process("register", "--from-file", "jobs.jsonl", folder=folder) as jobctl:
        assert jobctl.end() == Ran(0, "registered 3,000 jobs\n", "")


def test_a_question_is_asked_on_the_terminal_and_ctrl_c_changes_nothing(
    backend: Backend, folder: Path
) -> None:
    put(backend, State.DEAD)
    terminal = Terminal()
    with Process(
        *("dead", "requeue", "--all"), folder=folder, stdin=terminal.theirs, stderr=terminal.theirs
    ) as jobctl:
        until(lambda: "[y/N]" in terminal.text)
        jobctl.interrupt()
        assert jobctl.end().code == 130
    with Process(
        *("dead", "requeue", "--all"), folder=folder, stdin=terminal.theirs, stderr=terminal.theirs
    ) as jobctl:
        assert backend.claim() == []
        until(lambda: terminal.text.count("[y/N]") == 2)
        terminal.type("y\n")
        assert jobctl.end().out == "sent 1 job back\n"
    terminal.close()


@pytest.mark.parametrize("signal", ["interrupt", "terminate"])
def test_the_live_view_gives_the_cursor_back(backend: Backend, folder: Path, signal: str) -> None:
    put(backend, State.READY)
    terminal = Terminal()
    with Process(
        *("stats", "--watch", "--interval", "100ms"),
        folder=folder,
        stdout=terminal.theirs,
        environment={"TERM": "xterm"},
    ) as jobctl:
        until(lambda: terminal.text.count("QUEUE") > 1)
        getattr(jobctl, signal)()
        assert jobctl.end().code == 130
    written = terminal.close()
    assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l") >= 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_ends_it_quietly(backend: Backend, folder: Path, unbuffered: str) -> None:
    environment = {"PYTHONUNBUFFERED": unbuffered}
    backend.register_many([Job(kind="k", idempotency_key="x" * 200 + str(n)) for n in range(500)])
    for arguments in (["jobs", "list", "--limit", "500"], ["jobs", "list", "--limit", "500", "--json"]):
        with Process(*arguments, folder=folder, environment=environment) as jobctl:
            assert jobctl.popen.stdout is not None
            jobctl.popen.stdout.readline()
            jobctl.popen.stdout.close()
            assert jobctl.popen.wait(60) == 141
            assert jobctl.popen.stderr is not None
            assert jobctl.popen.stderr.read() == b""


def test_help_to_a_reader_that_goes_away_is_quiet_too(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with (
        os.fdopen(write, "wb") as closed,
        Process("register", "--help", folder=folder, stdout=closed) as jobctl,
    ):
        assert jobctl.end() == Ran(141, "", "")


def test_a_full_disk_behind_the_output_is_a_sentence(backend: Backend, folder: Path) -> None:
    with open("/dev/full", "wb") as full, Process("stats", "--json", folder=folder, stdout=full) as jobctl:
        assert jobctl.end() == Ran(1, "", "Error: No space left on device\n")


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-"])
def test_a_closed_standard_stream_is_no_crash(backend: Backend, folder: Path, redirection: str) -> None:
    ran = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *JOBCTL, "stats"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0
    assert "Traceback" not in ran.stdout + ran.stderr


def test_an_output_that_knows_latin_1_only_gets_escapes(backend: Backend, folder: Path) -> None:
    put(backend, State.READY, idempotency_key="ключ")
    with Process(
        "jobs", "list", folder=folder, environment={"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    ) as jobctl:
        ran = jobctl.end()
    assert (ran.code, ran.err) == (0, "")
    assert "\\u043a\\u043b\\u044e\\u0447" in ran.out


def test_the_module_and_the_script_are_the_same(folder: Path) -> None:
    script = Path(sys.executable).with_name("jobctl")
    outputs = [
        subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        for command in (JOBCTL, [str(script)])
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("jobctl ")

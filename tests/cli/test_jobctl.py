"""`jobctl` as a whole: exit codes, sentences, tracebacks, secrets, options anywhere, suggestions."""

from __future__ import annotations

import logging
import re
import sqlite3
from pathlib import Path

import click
import pytest

from jobcontract import Backend, State
from jobcontract.cli import exits, root
from jobcontract.cli.escape import ascii_json, brief, escape, one_line, without_url_passwords
from jobcontract.cli.session import Session
from jobcontract.errors import JobContractError
from tests.cli.conftest import Ran, Run, put

SECRET = "canary/p@ss word%"
QUOTED = "canary%2Fp%40ss%20word%25"


def test_without_a_command_the_help_is_an_error(run: Run) -> None:
    for arguments in ([], ["jobs"]):
        ran = run(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("Usage: jobctl ")


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert re.fullmatch(r"jobctl \d+\.\d+\.\d+\n", run("--version").out)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["stast"], "There is no command 'stast'; did you mean 'stats'?"),
        (["job"], "There is no command 'job'; did you mean 'jobs'?"),
        (["retry"], "There is no command 'retry'; did you mean 'jobs retry'?"),
        (["requeue"], "There is no command 'requeue'; did you mean 'dead requeue'?"),
        (["jobs", "cancl"], "There is no command 'cancl'; did you mean 'cancel'?"),
        (["frobnicate"], "There is no command 'frobnicate'"),
    ],
)
def test_an_unknown_command_names_the_nearest(run: Run, arguments: list[str], suggestion: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[0] == f"Error: {suggestion}"


def test_an_unknown_option_names_the_nearest(run: Run) -> None:
    ran = run("stats", "--wach")
    assert ran.code == 2
    assert "--watch" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--backend", "sqlite:///other.db", "stats"],
        ["stats", "--backend", "sqlite:///other.db"],
        ["--backend", "sqlite:///no.db", "stats", "--backend", "sqlite:///other.db"],
        ["--config", "other.toml", "stats"],
        ["stats", "--config", "other.toml"],
    ],
    ids=" ".join,
)
def test_the_store_is_chosen_before_or_after_the_command(
    run: Run, folder: Path, arguments: list[str]
) -> None:
    (folder / "other.toml").write_text('[backends.other]\nurl = "sqlite:///other.db"\n')
    run("init", "--backend", "sqlite:///other.db")
    assert run(*arguments) == Ran(0, "", "no queue has jobs or is paused\n")


def test_the_environment_chooses_the_store(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBCONTRACT_BACKENDS__B__URL", "sqlite:///b.db")
    monkeypatch.setenv("JOBCONTRACT_DEFAULT", "b")
    assert run("init").out.startswith("sqlite:///b.db: initialised")


def test_a_store_that_fails_is_exit_code_1_and_one_sentence(run: Run) -> None:
    ran = run("stats")
    assert (ran.code, ran.out) == (1, "")
    assert re.fullmatch(r"Error: the SQLite store .* does not exist yet; run `jobctl init`\n", ran.err)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["stats", "--backend", "nope"], "there is no backend 'nope'"),
        (["stats", "--backend", "mysql://db"], "no driver for 'mysql' URLs is installed"),
        (["stats", "--config", "none.toml"], "the configuration file none.toml does not exist"),
        (["stats", "--backend", "sqlite:///a.db?bad=1"], "'bad' is not a setting"),
    ],
)
def test_a_bad_setting_is_exit_code_2_and_one_sentence(run: Run, arguments: list[str], sentence: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(rf"Error: .*{re.escape(sentence)}.*\n", ran.err)


def test_with_v_an_error_has_its_traceback_before_the_sentence(run: Run) -> None:
    ran = run("stats", "-v")
    assert ran.err.startswith("Traceback (most recent call last):\n")
    assert ran.err.splitlines()[-1].startswith("Error: the SQLite store ")


def test_v_says_what_is_asked_of_the_store(run: Run, backend: Backend) -> None:
    assert "]: stats on default: ok in " in run("-v", "stats", "-v").err
    assert run("stats").err == "no queue has jobs or is paused\n"


@pytest.mark.parametrize("verbose", [[], ["-v"], ["-vv"]], ids=len)
@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "--backend", f"postgresql://app:{QUOTED}@127.0.0.1:1/db?connect_timeout=1"],
        ["stats", "--backend", f"mysql://app:{QUOTED}@db/app"],
        ["stats", "--backend", f"postgresql://app:{SECRET}@db/app"],
        [f"postgresql://app:{QUOTED}@db/app"],
        ["stats", f"postgresql://app:{QUOTED}@db/app"],
        ["backends", f"postgresql://app:{QUOTED}@127.0.0.1:1/db?connect_timeout=1"],
        ["prune", "--older-than", "1d", "--backend", f"postgresql://app:{QUOTED}@127.0.0.1:1/db"],
        ["init", "--dry-run", "--backend", f"postgresql://app:{QUOTED}@127.0.0.1:1/db?connect_timeout=1"],
    ],
    ids=lambda arguments: arguments[0][:12],
)
def test_a_password_is_never_shown(run: Run, arguments: list[str], verbose: list[str]) -> None:
    ran = run(*arguments, *verbose)
    assert ran.code in (1, 2)
    assert "canary" not in ran.out + ran.err


def test_an_error_that_nobody_foresaw_is_a_sentence_without_the_password(
    run: Run, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    (folder / "jobcontract.toml").write_text(
        f'[backends.a]\nurl = "postgresql://app:{QUOTED}@127.0.0.1/db"\n'
    )

    @click.command()
    @click.pass_context
    def explode(context: click.Context) -> None:
        session = context.ensure_object(Session)
        password = session.store().url.password
        assert password is not None
        raise RuntimeError(f"can't connect with {password.get_secret_value()}\nor {QUOTED}")

    monkeypatch.setitem(root.jobctl.commands, "explode", explode)
    ran = run("explode")
    assert ran == Ran(
        1,
        "",
        "Error: unexpected RuntimeError: can't connect with *** or *** "
        "(run it again with -v for the traceback)\n",
    )
    verbose = run("-v", "explode")
    assert "Traceback" in verbose.err
    assert "canary" not in verbose.err


def test_log_lines_of_strangers_are_escaped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def shout() -> None:
        logging.getLogger("app").warning("boom \x1b[2J at postgresql://app:canary@db/app")

    monkeypatch.setitem(root.jobctl.commands, "shout", shout)
    err = run("shout").err
    assert "boom \\x1b[2J at postgresql://app:***@db/app" in err


def test_every_error_of_the_library_has_a_code() -> None:
    def classes(base: type[JobContractError]) -> list[type[JobContractError]]:
        return [base, *(found for child in base.__subclasses__() for found in classes(child))]

    codes = {
        kind.__name__: exits.code_of(kind.__new__(kind)).value
        for kind in classes(JobContractError)
        if kind.__module__ == "jobcontract.errors"
    }
    assert codes == {
        "JobContractError": 1,
        "ConfigError": 2,
        "DriverNotInstalled": 2,
        "InvalidJob": 2,
        "LeaseLost": 1,
        "Unsupported": 3,
        "StoreError": 1,
        "InstallationError": 1,
        "StoreUnavailable": 1,
        "StoreClosed": 1,
    }


def test_an_error_of_the_store_stays_one_line(run: Run, backend: Backend, folder: Path) -> None:
    put(backend, State.READY)
    with sqlite3.connect(folder / "jobcontract.db") as connection:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON jobcontract_jobs "
            "BEGIN SELECT RAISE(FAIL, 'no\nmore \x1b[2J'); END"
        )
    ran = run("register", "k")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "\x1b" not in ran.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("zażółć 漢字 \u3000 é", "zażółć 漢字 \u3000 é"),
        ("\x00\x1b\x7f\x9b", "\\x00\\x1b\\x7f\\x9b"),
        ("a\u202eb\u2066c\u061c", "a\\u202eb\\u2066c\\u061c"),
        ("\u2028\ufeff\U000e0041", "\\u2028\\ufeff\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("a\tb\nc", "a\\x09b\\x0ac"),
    ],
)
def test_what_is_not_printable_is_made_visible(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_newlines_are_kept_only_where_they_are_wanted() -> None:
    assert escape("a\nb\x07", keep="\n") == "a\nb\\x07"
    assert one_line("a\nb\r\nc\x07") == "a b c\\x07"


def test_brief_is_the_line_that_says_what_happened() -> None:
    assert brief("\nValueError: no\n  at app.py:17 in embed\n") == "ValueError: no"
    assert brief("Traceback (most recent call last):\n  x\nValueError: no\n\n") == "ValueError: no"
    assert brief("x" * 300) == "x" * 197 + "..."
    assert brief(None) == ""


def test_json_is_printable_ascii() -> None:
    text = ascii_json({"a": "\x7f\u202e\ud800é"})
    assert text == '{"a": "\\u007f\\u202e\\ud800\\u00e9"}'


def test_passwords_of_urls_are_found_in_any_text() -> None:
    assert without_url_passwords("a postgresql://u:p:@x@h/d, redis://:s@h b") == (
        "a postgresql://u:***@h/d, redis://:***@h b"
    )

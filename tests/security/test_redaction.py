"""A password appears in nothing that is shown, on whatever way a URL is mistyped, and whatever the store
does.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobcontract import get_backend
from jobcontract.config import Settings
from jobcontract.errors import JobContractError
from tests.cli.conftest import folder, invoke, logging_as_before

__all__ = ["folder", "logging_as_before"]

CANARY = "c4n4ryp4ssw0rd"
NOBODY = "127.0.0.1:1"
"""Where nobody listens."""
URLS = (
    f"postgresql://someone:{CANARY}@{NOBODY}/db?timeout=2s",
    f"redis://someone:{CANARY}@{NOBODY}/0?timeout=2s",
    f"rediss://:{CANARY}@{NOBODY}/0?timeout=2s",
    f"redis+sentinel://someone:{CANARY}@{NOBODY}/main?timeout=2s",
    f"redis+sentinel://{NOBODY}/main?timeout=2s&sentinel_password={CANARY}",
    f"redis+cluster://someone:{CANARY}@{NOBODY}?timeout=2s",
    f"amqp://someone:{CANARY}@{NOBODY}/v?timeout=2s",
)


def slips(url: str) -> Iterator[str]:
    """`url` with one character left out or put in, everywhere but within the canary."""
    start = url.index(CANARY)
    for at in range(len(url) + 1):
        if start < at < start + len(CANARY):
            continue
        for character in "@:/?#% =&":
            yield url[:at] + character + url[at:]
        if at < len(url) and at != start:
            yield url[:at] + url[at + 1 :]


def shown_by(url: str) -> str:
    """All that using `url` shows: representations, and what is raised. Contacts nobody."""
    try:
        backend = get_backend(url, settings=Settings())
        return f"{backend!r} {backend.driver!r} {vars(backend)!r} {vars(backend.driver)!r}"
    except JobContractError as error:
        return "".join(traceback.format_exception(error)) + repr(error) + repr(error.__context__)


@pytest.mark.parametrize("url", URLS, ids=lambda url: url.partition(":")[0])
def test_no_slip_in_a_url_shows_its_password(url: str) -> None:
    tried = list(slips(url))
    assert len(tried) > 300
    leaking = [each for each in tried if CANARY in shown_by(each)]
    assert leaking == []


@pytest.mark.parametrize("url", URLS, ids=lambda url: url.partition(":")[0])
def test_a_store_that_is_away_shows_no_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with get_backend(url, settings=Settings()) as backend, pytest.raises(JobContractError) as raised:
        backend.claim()
    error = raised.value
    told = "".join(traceback.format_exception(error)) + repr(error.__context__) + caplog.text
    assert CANARY not in told


@pytest.mark.parametrize(
    "command",
    [
        "config show",
        "config show --json",
        "backends",
        "backends --json",
        "stats --backend b0 -vv",
        "init --all -vv",
        "doctor --json",
        "doctor -vv",
        "metrics --once -vv",
        "prune --older-than 1d --backend b1 -vv",
        "dead list --backend b6 -vv",
    ],
)
def test_no_command_shows_a_password(command: str, folder: Path) -> None:
    tables = [f'[backends.b{number}]\nurl = "{url}"\n' for number, url in enumerate(URLS)]
    (folder / "jobcontract.toml").write_text('default = "b0"\n' + "".join(tables))
    ran = invoke(*command.split())
    assert CANARY not in ran.out + ran.err
    assert ran.out + ran.err, "it has said something"

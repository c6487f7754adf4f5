"""`get_backend`: from a name or a URL to a driver, by configuration alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jobcontract import Job, get_backend
from jobcontract.config import load_settings
from jobcontract.errors import ConfigError, Unsupported

CANARY = "cAnArY"
NOTHING = load_settings(environment={})


def test_a_url_is_enough() -> None:
    with get_backend("sqlite://", settings=NOTHING) as backend:
        assert backend.register(Job(kind="k")).created


def test_a_required_feature_is_checked_at_start() -> None:
    with get_backend("sqlite://", require=["lookup"], settings=NOTHING) as backend:
        assert backend.name == "url"
    with pytest.raises(Unsupported, match="lacks fsync"):
        get_backend("sqlite://", require=["fsync"], settings=NOTHING)


def test_a_feature_that_does_not_exist_is_refused() -> None:
    unknown: list[object] = ["lookups"]
    with pytest.raises(ConfigError, match="'lookups' is not a feature; known are: cancel, deduplication"):
        get_backend("sqlite://", require=unknown, settings=NOTHING)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("sqllite:///jobs.db", "no driver for 'sqllite' URLs is installed; did you mean 'sqlite'?"),
        ("xyzzy://h/db", "no driver for 'xyzzy' URLs is installed; known are: "),
        ("sqlite:///jobs.db?synchronus=OFF", "'synchronus' is not a setting; did you mean 'synchronous'?"),
        ("sqlite://host/jobs.db", "a sqlite URL has no host"),
        ("nonsense", "there is no backend 'nonsense'"),
    ],
)
def test_a_mistake_is_found_before_anything_is_opened(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        get_backend(url, settings=NOTHING)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "client", "extra"),
    [
        ("postgresql", "psycopg", "postgres"),
        ("redis", "redis", "redis"),
        ("amqp", "pika", "rabbitmq"),
    ],
)
def test_a_missing_client_library_names_the_extra(scheme: str, client: str, extra: str) -> None:
    source = f"""
import sys
sys.modules[{client!r}] = None
from jobcontract.errors import DriverNotInstalled
from jobcontract.registry import load_opener
try:
    load_opener({scheme!r})
except DriverNotInstalled as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith(f"run: pip install 'jobcontract[{extra}]'")


@pytest.mark.parametrize("scheme", ["postgresql", "redis", "amqp", "sqlite", "xyzzy"])
@pytest.mark.parametrize("rest", [f"u:{CANARY}@h:port/db", f"u:{CANARY}@h/db?nonsense=1", f"u:{CANARY}@@h"])
def test_no_mistake_shows_a_password(scheme: str, rest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        get_backend(f"{scheme}://{rest}", settings=NOTHING)
    assert CANARY not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None

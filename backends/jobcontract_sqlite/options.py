"""What can be set about a SQLite store, and where its URL points."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from jobcontract.config import StoreOptions, StoreSettings
from jobcontract.durations import Duration, PositiveDuration
from jobcontract.errors import ConfigError


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


class SQLiteOptions(StoreOptions):
    """The keys of a SQLite backend's table, and the parameters of its URL."""

    synchronous: Annotated[Literal["FULL", "NORMAL", "OFF"], BeforeValidator(_upper)] = "FULL"
    """When SQLite waits for the disk. FULL: at every commit. NORMAL: at checkpoints. OFF: never."""
    busy_timeout: Annotated[PositiveDuration, Field(le=timedelta(days=1))] = timedelta(seconds=5)
    """How long a call waits for the other processes on the file before it raises `StoreUnavailable`: a day at
    most.
    """
    retention: Annotated[Duration, Field(le=timedelta(days=36_500))] = timedelta(days=14)
    """How long done and cancelled jobs, and their keys, are kept before `rescue` drops them: up to 36500
    days; 0 is for ever. Dead jobs stay until they are pruned.
    """


def path_of(settings: StoreSettings) -> Path | None:
    """The absolute path of the store's file; None is in memory. Raises `ConfigError`."""
    url = settings.url
    if url.hosts or url.username or url.password:
        raise ConfigError(
            f"backend {settings.name!r}: a sqlite URL has no host or user; write sqlite:///relative.db, "
            "sqlite:////absolute.db, or sqlite:// for a store in memory"
        )
    if not url.path:
        return None
    name = url.path[1:]
    if name in ("", ":memory:") or name.endswith("/"):
        raise ConfigError(
            f"backend {settings.name!r}: the sqlite URL names no file; write sqlite:///relative.db, "
            "sqlite:////absolute.db, or sqlite:// for a store in memory"
        )
    return Path.cwd() / name

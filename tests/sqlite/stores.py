"""Stores and jobs for these tests, also for the processes that they start."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, cast

from jobcontract_sqlite import SQLiteDriver, SQLiteFileDriver, open_driver

from jobcontract.config import StoreSettings
from jobcontract.contract import ClaimedRecord, Job, JobRecord
from jobcontract.url import StoreURL

Edit: TypeAlias = Callable[..., list[tuple[object, ...]]]
"""The fixture `edit`: (sql, *parameters) -> rows."""
Advance: TypeAlias = Callable[[timedelta], None]
"""The fixture `advance`."""

opened: weakref.WeakSet[SQLiteDriver] = weakref.WeakSet()
"""What the fixture `close_what_was_opened` closes."""

MINUTE = timedelta(minutes=1)
QUEUES = ["default"]


def open_url(url: str, **options: object) -> SQLiteDriver:
    """The driver that the configuration would open for `url`."""
    driver = open_driver(StoreSettings("store", StoreURL.parse(url), options))
    opened.add(driver)
    return driver


def open_file(path: Path | str, **options: object) -> SQLiteFileDriver:
    """The driver of the file at `path`."""
    return cast(SQLiteFileDriver, open_url(f"sqlite:///{path}", **options))


class FileStore:
    """A store in a file, with the few things that most tests do to it."""

    def __init__(self, path: Path, **options: object) -> None:
        self.path = path
        self.driver = open_file(path, **options)

    def add(self, count: int = 1, **fields: Any) -> list[str]:
        """Register `count` jobs with these fields; their ids."""
        records = [record(**fields) for _ in range(count)]
        assert all(each.created for each in self.driver.register(records))
        return [each.id for each in records]

    def claim(
        self, limit: int = 1, lease: timedelta = MINUTE, queues: list[str] = QUEUES
    ) -> list[ClaimedRecord]:
        """Claim at most `limit` jobs."""
        return self.driver.claim(queues, limit, lease)

    def close(self) -> None:
        """Close the driver."""
        self.driver.close()


def record(kind: str = "extract", **fields: Any) -> JobRecord:  # Any: the fields of `Job`, which checks them
    """A valid job, as it goes to a driver."""
    return Job(kind=kind, **fields).to_record()

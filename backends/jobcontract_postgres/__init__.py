"""PostgreSQL as a store of jobs."""

from __future__ import annotations

from jobcontract.config import StoreSettings
from jobcontract.contract import Driver
from jobcontract_postgres.driver import PostgresDriver


def open_driver(settings: StoreSettings) -> Driver:
    """The driver for `settings`. Contacts nothing. Raises `ConfigError` for a bad option."""
    return PostgresDriver(settings)

"""PostgreSQL as a store of jobs."""

from __future__ import annotations

from jobcontract.config import StoreSettings
from jobcontract_postgres.driver import PostgresDriver

__all__ = ["PostgresDriver", "open_driver"]


def open_driver(settings: StoreSettings) -> PostgresDriver:
    """The driver for `settings`. Contacts nothing. Raises `ConfigError` for a bad option."""
    return PostgresDriver(settings)

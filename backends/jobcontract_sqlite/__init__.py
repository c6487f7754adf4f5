"""The SQLite driver: jobs in one file, shared by the processes of one machine, or in memory for tests.

==========================  ===========================================================================
``sqlite:///relative.db``   a file below the working directory
``sqlite:////absolute.db``  a file by its absolute path
``sqlite://``               in memory: one store per driver object, shared by its threads, gone with it
==========================  ===========================================================================
"""

from __future__ import annotations

from jobcontract.config import StoreSettings
from jobcontract_sqlite.driver import SQLiteDriver
from jobcontract_sqlite.file_driver import SQLiteFileDriver
from jobcontract_sqlite.memory import MemoryConnection
from jobcontract_sqlite.options import SQLiteOptions, path_of
from jobcontract_sqlite.pool import FileConnections

__all__ = ["SQLiteDriver", "SQLiteFileDriver", "SQLiteOptions", "open_driver"]


def open_driver(settings: StoreSettings) -> SQLiteDriver:
    """The driver for `settings`. Opens nothing yet. Raises `ConfigError` for a bad URL, option or SQLite
    version.
    """
    path = path_of(settings)
    options = settings.read_options(SQLiteOptions)
    if path is None:
        return SQLiteDriver(MemoryConnection(options), options)
    return SQLiteFileDriver(FileConnections(path, options), options)

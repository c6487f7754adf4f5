"""A store in memory that takes jobs on any connection."""

from __future__ import annotations

from collections.abc import Iterable

from jobcontract.arguments import Registrable
from jobcontract.backend import Backend
from jobcontract.config import StoreSettings
from jobcontract.connections import bind
from jobcontract.contract import Registration
from jobcontract.registry import load_opener
from jobcontract.url import StoreURL


class MemoryBackend(Backend):
    """A `Backend` on ``sqlite://``, installed and empty; gone when it is closed.

    It can't join a transaction of another database. A job that is registered with `connection` is stored at
    once, and stays when the transaction is rolled back: a test about that needs the application's own
    database. What is wrong with the connection is raised all the same.
    """

    def __init__(self, name: str = "memory") -> None:
        settings = StoreSettings(name, StoreURL.parse("sqlite://"))
        opener = load_opener("sqlite")
        super().__init__(name, lambda: opener(settings))
        self.install()

    def register_many(
        self, jobs: Iterable[Registrable], *, connection: object | None = None
    ) -> list[Registration]:
        """`Backend.register_many`, at once."""
        if connection is not None:
            bind(connection)
        return super().register_many(jobs)

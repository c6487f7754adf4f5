"""What the suite has to know about a store: one class, of which one method must be written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import ClassVar, Literal, TypeAlias

from jobcontract.config import StoreSettings
from jobcontract.contract import Driver
from jobcontract.registry import load_opener
from jobcontract.url import StoreURL

Transactions: TypeAlias = Mapping[str, Callable[[], AbstractContextManager[object]]]
AsyncTransactions: TypeAlias = Mapping[str, Callable[[], AbstractAsyncContextManager[object]]]


class NotOffered(Exception):
    """The harness has no such thing. The tests that need it are not tried, and the summary says so."""

    def __init__(self, what: str, *asked_with: object) -> None:
        super().__init__(what, *asked_with)
        self.what = what


class Harness(ABC):
    """How the suite makes and opens the stores that it tests.

    Only `create` must be written. Each further method opens more of the suite, and its absence is named in
    the summary of the run. The attributes fit the suite to slow stores.
    """

    several_clients: ClassVar[bool] = True
    """Whether `connect` can be called again for the same store. False for a store inside of its driver."""
    installed: ClassVar[bool] = False
    """Whether the stores that `create` gives are installed already."""
    clock: ClassVar[Literal["server", "process"]] = "server"
    """Whose clock the store goes by: "process" where it has none but ours, so that shifting says nothing."""
    listens: ClassVar[bool] = True
    """Whether a client hears of a commit. False behind a pooler that keeps it back: it looks instead."""
    claimers: ClassVar[int] = 50
    """How many threads claim at once in the test of that."""
    claimed_jobs: ClassVar[int] = 10_000
    """How many jobs they share. Fewer for a slow store."""
    large_batch: ClassVar[int] = 10_000
    """How many jobs one call of `Backend.register_many` is tried with."""
    examples: ClassVar[int] = 20
    """How many histories the stateful test makes up."""
    patience: ClassVar[timedelta] = timedelta(seconds=30)
    """How long the suite waits for something that has to happen. Nothing is judged by how long it took."""

    @abstractmethod
    def create(self) -> str:
        """The URL of a store that is empty and used by nobody else. Called for every test, by one twice.

        The suite installs it (`Installation`), if the driver has that door.
        """

    def destroy(self, url: str) -> None:
        """Remove the store at `url`, whose clients are all closed. By default it is left where it is."""
        del url

    def connect(self, url: str) -> Driver:
        """A client of the store at `url`. By default that of the installed driver for the URL's scheme."""
        parsed = StoreURL.parse(url)
        return load_opener(parsed.scheme)(StoreSettings("conformance", parsed))

    def transactions(self, url: str) -> Transactions:
        """For a driver with `JoinsTransactions`: by the name of a kind of connection, what opens one.

        Each gives a connection in an open transaction, which commits at the end of the block and rolls back
        when the block raises.
        """
        raise NotOffered("transactions", url)

    def async_transactions(self, url: str) -> AsyncTransactions:
        """`transactions`, for the kinds that are awaited."""
        raise NotOffered("async_transactions", url)

    def corrupt(self, url: str, job_id: str, input_ref: str) -> None:
        """Overwrite the stored input of a job with text that need not be JSON, past the driver."""
        raise NotOffered("corrupt", url, job_id, input_ref)

    def disconnect(self, driver: Driver) -> None:
        """Cut the connections of this client, as a network would. Needed where a lease is a connection."""
        raise NotOffered("disconnect", driver)

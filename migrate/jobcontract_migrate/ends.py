"""The two ends of a move: each store as a driver, and by the doors through which jobs leave and come.

Most drivers have these doors themselves (`Movable`). What a broker lacks of them, `BrokerEnd` has.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol, cast

from jobcontract.config import Settings
from jobcontract.contract import Driver
from jobcontract.errors import JobContractError
from jobcontract.registry import open_store
from jobcontract.side_doors import CarriesCopies, Gated, Movable, MovesIn, MovesOut
from jobcontract_migrate.broker import BrokerDriver, BrokerEnd
from jobcontract_migrate.control import Control


class NotNow(JobContractError):
    """What was asked for can't be done in this state, or with this store; the sentence says what can."""


class Source(Gated, MovesOut, Protocol):
    """Where jobs come from."""


class Target(Gated, MovesIn, Protocol):
    """Where jobs go to."""


class Ends:
    """The stores of a configuration, opened when they are asked for, past any route."""

    def __init__(self, settings: Settings, control: Control) -> None:
        self._settings = settings
        self._control = control
        self._stack = ExitStack()
        self._drivers: dict[str, Driver] = {}
        self._brokers: dict[str, BrokerEnd] = {}

    def driver(self, name: str) -> Driver:
        """The driver of the backend `name`. Contacts nothing."""
        if name not in self._drivers:
            driver = open_store(self._settings.store(name), self._settings)
            self._stack.callback(driver.close)
            self._drivers[name] = driver
        return self._drivers[name]

    def source(self, name: str) -> Source:
        """The doors through which jobs leave the store `name`. Raises `NotNow`."""
        if not can_be_source(self.driver(name)):
            raise NotNow(refusal_as_source(name))
        return self._doors_of(name)

    def target(self, name: str) -> Target:
        """The doors through which jobs come to the store `name`. Raises `NotNow`."""
        if not can_be_target(self.driver(name)):
            raise NotNow(refusal_as_target(name))
        return self._doors_of(name)

    def is_broker(self, name: str) -> bool:
        """Whether the store `name` knows no job by its id."""
        return isinstance(self.driver(name), CarriesCopies)

    def _doors_of(self, name: str) -> Movable:
        driver = self.driver(name)
        if isinstance(driver, Movable):
            return driver
        if name not in self._brokers:
            self._brokers[name] = BrokerEnd(cast(BrokerDriver, driver), name, self._control)
        return self._brokers[name]

    def close(self) -> None:
        """Close every connection."""
        self._stack.close()


def can_be_source(driver: Driver) -> bool:
    """Whether jobs can leave the store of `driver`."""
    return isinstance(driver, Movable | CarriesCopies)


def can_be_target(driver: Driver) -> bool:
    """Whether jobs can come to the store of `driver`."""
    return isinstance(driver, Movable | CarriesCopies)


def refusal_as_source(name: str) -> str:
    """Why jobs can't leave it."""
    return f"jobs can't be moved from the backend {name!r}: its driver has no side door for it yet"


def refusal_as_target(name: str) -> str:
    """Why jobs can't come to it."""
    return f"jobs can't be moved to the backend {name!r}: its driver has no side door for it yet"

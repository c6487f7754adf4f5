"""The two ends of a relay, from the configuration: which backends have an outbox, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from jobcontract.config import Settings, StoreSettings
from jobcontract.contract import Driver
from jobcontract.errors import ConfigError
from jobcontract.registry import load_opener
from jobcontract.side_doors import HostsTables
from jobcontract_outbox.driver import OutboxDriver, open_outbox


@dataclass(frozen=True, slots=True)
class Ends:
    """One backend with an outbox. Opening contacts nothing."""

    target: StoreSettings
    host: StoreSettings

    @property
    def name(self) -> str:
        """The target's."""
        return self.target.name

    def open(self) -> Opened:
        """Drivers of their own for both ends. Raises `ConfigError`."""
        host = load_opener(self.host.url.scheme)(self.host)
        target = load_opener(self.target.url.scheme)(self.target)
        return Opened(open_outbox(target, host, self.name, self.host.name), host, cast(HostsTables, host))


@dataclass(frozen=True, slots=True)
class Opened:
    """Both ends, open."""

    driver: OutboxDriver
    host: Driver
    tables: HostsTables

    @property
    def target(self) -> Driver:
        """The store to publish to, without the outbox."""
        return self.driver.target


def find_ends(settings: Settings, names: Sequence[str] = ()) -> list[Ends]:
    """Every configured backend that has an outbox, or those called `names`. Raises `ConfigError`."""
    found: list[Ends] = []
    for name in names or sorted(settings.backends):
        store = settings.store(name)
        host = settings.outbox_of(store)
        if host is not None:
            found.append(Ends(store, host))
        elif names:
            raise ConfigError(f'the backend {name!r} has no outbox; set outbox = "..." in [backends.{name}]')
    if not found:
        raise ConfigError('no configured backend has an outbox; set outbox = "..." in its table')
    return found

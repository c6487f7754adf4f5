"""Which jobs of brokers run in this process: a move from a broker waits for their end."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from jobcontract.contract import Lease
from jobcontract.errors import StoreError
from jobcontract_migrate.broker import BrokerDriver


class Holding:
    """Safe in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, dict[str, Lease]] = {}

    def add(self, name: str, leases: Iterable[Lease]) -> None:
        """Jobs of the broker `name` were claimed."""
        with self._lock:
            self._held.setdefault(name, {}).update((lease.token, lease) for lease in leases)

    def remove(self, name: str, leases: Iterable[Lease]) -> None:
        """They were settled, or are lost."""
        with self._lock:
            held = self._held.get(name, {})
            for lease in leases:
                held.pop(lease.token, None)

    def stores(self, drivers: Mapping[str, BrokerDriver]) -> list[str]:
        """The brokers of which a job runs here. What was lost without a word is forgotten."""
        with self._lock:
            held = {name: list(leases.values()) for name, leases in self._held.items() if leases}
        return [name for name, leases in held.items() if self._still_holds(name, drivers[name], leases)]

    def _still_holds(self, name: str, driver: BrokerDriver, leases: list[Lease]) -> bool:
        try:
            copies = driver.copies_of(leases)
        except StoreError:
            return True
        lost = [lease for lease, copy in zip(leases, copies, strict=True) if copy is None]
        self.remove(name, lost)
        return len(lost) < len(leases)

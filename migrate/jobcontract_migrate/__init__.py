"""``jobctl migrate``: a live, resumable, reversible and verified move of jobs from one store to another.

Where jobs live is a row in a SQL store (``control = "postgres"`` in the configuration). Clients that asked
for no store by name follow it; stores refuse those that don't. See docs/migrating.md.
"""

from __future__ import annotations

from jobcontract_migrate.coordinator import Coordinator, Options
from jobcontract_migrate.dual import RoutedDriver, open_routed
from jobcontract_migrate.states import Phase

__all__ = ["Coordinator", "Options", "Phase", "RoutedDriver", "open_routed"]

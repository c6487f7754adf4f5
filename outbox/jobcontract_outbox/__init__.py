"""The transactional outbox: jobs for a store that can't join the application's transaction.

``[backends.NAME] outbox = "postgres"`` puts it in front of a store. `register` then writes into a table of
the named SQL store, in the caller's transaction or in one of its own, and ``jobctl relay`` publishes what
was committed. See docs/outbox.md.
"""

from __future__ import annotations

from jobcontract_outbox.driver import OutboxDriver, open_outbox
from jobcontract_outbox.registering import ORDERING_KEY
from jobcontract_outbox.relay import Relay, RelayOptions

__all__ = ["ORDERING_KEY", "OutboxDriver", "Relay", "RelayOptions", "open_outbox"]

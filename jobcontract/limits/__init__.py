"""Limits that hold across processes: how many jobs run at once, of a kind or under a key, and how often one
starts.

Handlers say them (``total_concurrency``, ``key_concurrency``, ``rate``), and the worker keeps them: it claims
a job as ever, and starts it once it has its slots. See `jobcontract.limits.store` for what is promised.
"""

from jobcontract.limits.rate import Rate
from jobcontract.limits.store import SharedLimits, Slot, SlotRequest, shared_limits_of

__all__ = ["Rate", "SharedLimits", "Slot", "SlotRequest", "shared_limits_of"]

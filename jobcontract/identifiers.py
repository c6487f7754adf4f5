"""Job ids: UUID version 7 (RFC 9562, section 5.7), made by the producer.

Time-ordered, so that an index on ids grows at its right edge; random enough that producers need no
coordination. Python's own `uuid.uuid7` exists from 3.14 on; this is the same layout for 3.11.
"""

from __future__ import annotations

import os
import time
from uuid import UUID

_NANOSECONDS_PER_MILLISECOND = 1_000_000


def new_job_id() -> UUID:
    """A new UUIDv7. Never blocks; safe in threads and after `fork` (each id draws from `os.urandom`).

    The 12 bits of `rand_a` hold the fraction of the millisecond (RFC 9562, section 6.2, method 3), so that
    ids made one after the other by one process sort in that order down to a quarter of a microsecond.
    """
    milliseconds, rest = divmod(time.time_ns(), _NANOSECONDS_PER_MILLISECOND)
    fraction = (rest << 12) // _NANOSECONDS_PER_MILLISECOND
    random_bits = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return UUID(
        int=(milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random_bits
    )

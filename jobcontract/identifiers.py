"""Job ids: UUID version 7 (RFC 9562, section 5.7), made by the producer.

Time-ordered, so that an index on ids grows at its right edge; random enough that producers need no
coordination. Python's own `uuid.uuid7` exists from 3.14 on; this is the same layout for 3.11.
"""

from __future__ import annotations

import os
import time
from uuid import UUID, SafeUUID

_NANOSECONDS_PER_MILLISECOND = 1_000_000
_new, _put = object.__new__, object.__setattr__
_UNKNOWN = SafeUUID.unknown


def new_job_id() -> UUID:
    """A new UUIDv7. Never blocks; safe in threads and after `fork` (each id draws from `os.urandom`).

    The 12 bits of `rand_a` hold the fraction of the millisecond (RFC 9562, section 6.2, method 3), so that
    ids made one after the other by one process sort in that order down to a quarter of a microsecond.
    """
    return _uuid(_new_bits())


def new_job_id_text() -> str:
    """A new job id as stores have it, in half of the time of an object and its text."""
    digits = f"{_new_bits():032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def read_job_id(text: str) -> UUID:
    """The UUID that `text` spells in 32 hexadecimal digits, with or without hyphens. Raises `ValueError`."""
    digits = text.replace("-", "")
    if len(digits) != 32:
        raise ValueError("a job id has 32 hexadecimal digits")
    return _uuid(int(digits, 16))


def _new_bits() -> int:
    milliseconds, rest = divmod(time.time_ns(), _NANOSECONDS_PER_MILLISECOND)
    fraction = (rest << 12) // _NANOSECONDS_PER_MILLISECOND
    random_bits = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return (milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random_bits


def _uuid(value: int) -> UUID:
    """``UUID(int=value)`` in half of its time, which is spent on telling its six ways of being called apart:
    workers and producers make one for each job. As psycopg does it, by the two slots that a UUID has.
    """
    job_id = _new(UUID)
    _put(job_id, "int", value)
    _put(job_id, "is_safe", _UNKNOWN)
    return job_id

"""A client whose clock is wrong."""

from __future__ import annotations

import datetime as datetime_module
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime as real_datetime
from datetime import timedelta, tzinfo
from typing import Self

import pytest


@contextmanager
def shifted_clock(by: timedelta, packages: tuple[str, ...]) -> Generator[None]:
    """As if this machine's clock were off by `by`, for whoever asks `time`, and for `datetime` in `packages`.

    The monotonic clock stays, as it does when a real clock is set.
    """
    seconds, nanoseconds = time.time, time.time_ns
    shift = by.total_seconds()

    class Shifted(real_datetime, metaclass=_LooksLikeDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + by

        @classmethod
        def utcnow(cls) -> Self:
            return super().now(datetime_module.UTC).replace(tzinfo=None) + by

        @classmethod
        def today(cls) -> Self:
            return super().today() + by

    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in packages and vars(module).get("datetime") is real_datetime:
                patch.setattr(module, "datetime", Shifted)
        patch.setattr(datetime_module, "datetime", Shifted)
        patch.setattr(time, "time", lambda: seconds() + shift)
        patch.setattr(time, "time_ns", lambda: nanoseconds() + int(shift * 1_000_000_000))
        yield


class _LooksLikeDatetime(type):
    """So that isinstance(value, datetime) stays true of values that were made before."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, real_datetime)

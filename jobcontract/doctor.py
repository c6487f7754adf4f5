"""What is wrong with a store: what the store says itself, and what shows only from outside.

A composition of the contract: which store it is, it does not know.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobcontract.backend import Backend
from jobcontract.durations import format_duration
from jobcontract.errors import JobContractError, StoreUnavailable
from jobcontract.side_doors import Ailment, Expectations

LARGEST_SKEW = timedelta(seconds=5)
"""By how much clocks may be apart. The contract compares no two of them, but people, logs and a `run_at`
that is reckoned by a producer do."""
_LOOKS = 3


def examine(backend: Backend, expected: Expectations = Expectations()) -> list[Ailment]:  # noqa: B008  # immutable
    """Everything that is found wrong with `backend`; nothing for a healthy one. Raises nothing that the store
    raises: that is an ailment, too. Blocks for a few of its deadlines at most.
    """
    try:
        return [*backend.diagnose(expected), *_about_clocks(backend)]
    except StoreUnavailable as error:
        return [Ailment("unreachable", str(error), "start it, or mend the way to it and the URL")]
    except JobContractError as error:
        meaning, _, remedy = str(error).rpartition("; ")
        return [
            Ailment("unusable", meaning or remedy, remedy if meaning else "mend what this sentence names")
        ]


def _about_clocks(backend: Backend) -> list[Ailment]:
    """The first look may have to connect, so the one that took the least time counts."""
    best: tuple[timedelta, timedelta] | None = None
    for _ in range(_LOOKS):
        before = datetime.now(UTC)
        theirs = backend.clock()
        if theirs is None:
            return []
        took = datetime.now(UTC) - before
        skew = theirs - (before + took / 2)
        if best is None or took < best[0]:
            best = took, skew
    if best is None or abs(best[1]) - best[0] / 2 <= LARGEST_SKEW:
        return []
    apart = format_duration(timedelta(seconds=round(abs(best[1]).total_seconds())))
    return [
        Ailment(
            "clock",
            f"the store's clock is {apart} {'ahead of' if best[1] > timedelta() else 'behind'} that of this "
            f"machine: "
            "a run_at that was reckoned here is as much off there",
            "let both keep time by NTP (timedatectl, chronyc tracking)",
        )
    ]

"""The conformance suite: what every driver has to show, for drivers that don't exist yet too.

Needs the extra ``conformance`` (pytest and Hypothesis). A driver's author writes one class and one fixture::

    import pytest
    from jobcontract.conformance import ConformanceSuite, Harness

    class AcmeHarness(Harness):
        def create(self) -> str:
            return f"acme://localhost/{uuid4()}"

    class TestAcme(ConformanceSuite):
        @pytest.fixture
        def harness(self) -> Harness:
            return AcmeHarness()

What the driver declares (`Capabilities`) selects the tests: a declared capability has to be shown, one that
is absent has to be refused with `Unsupported`, leaving nothing behind. See docs/writing-a-driver.md.
"""

from __future__ import annotations

try:
    import hypothesis as _hypothesis
    import pytest
except ImportError as error:
    raise ImportError(
        f"the conformance suite needs pytest and Hypothesis ({error}); "
        "run: pip install 'jobcontract[conformance]'"
    ) from None

del _hypothesis

# Before the chapters are imported: their bare asserts are what tells an author what is wrong.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{chapter}"
        for chapter in (
            "batches", "cancel", "capabilities", "claim", "concurrency", "decode", "diagnosis", "hosting",
            "keys", "lease", "lookup", "move", "notes", "outage", "pause", "priority", "prune", "register",
            "requeue",
            "rescue", "schedule", "settle", "stateful", "stats", "store", "suite", "transactions", "wait",
        )
    )
)  # fmt: skip

from jobcontract.conformance.harness import AsyncTransactions, Harness, Transactions  # noqa: E402
from jobcontract.conformance.suite import CHAPTERS, ConformanceSuite  # noqa: E402

__all__ = ["CHAPTERS", "AsyncTransactions", "ConformanceSuite", "Harness", "Transactions"]

"""The pytest plugin: the fixture ``jobs``. Loaded by pytest itself, through the entry point ``pytest11``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jobcontract.testing.jobs import Jobs


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """The jobs of an empty store in memory (`jobcontract.testing.Jobs`): give `jobs.backend` to the
    application, run what is due with `jobs.drain(handlers)`, and ask with `jobs.assert_registered(kind=...,
    input_ref=...)`.
    """
    from jobcontract.testing.jobs import Jobs

    with Jobs.in_memory() as found:
        yield found

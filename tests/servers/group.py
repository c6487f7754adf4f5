"""Several servers that belong together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

from tests.servers.process import Server, ServerFailed

Member = TypeVar("Member", bound=Server)


class Group(Generic[Member]):
    """Several servers that belong together."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)

    def stop(self) -> None:
        """End all of them and remove their data."""
        for member in self.members:
            member.close()

    close = stop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def await_group(
    condition: Callable[[], bool],
    deadline: float,
    failure: str,
    servers: Sequence[Server],
    *,
    not_yet: tuple[type[Exception], ...],
) -> None:
    """Block until the condition holds.

    Args:
        deadline: in seconds.
        failure: the beginning of the message when it passes.
        servers: whose logs end that message.
        not_yet: what the condition may raise meanwhile.

    Raises:
        ServerFailed: the condition did not hold in time.
    """
    end = time.monotonic() + deadline
    while True:
        with contextlib.suppress(*not_yet):
            if condition():
                return
        if time.monotonic() > end:
            logs = "\n".join(f"--- {server!r}\n{server.log_tail(10)}" for server in servers)
            raise ServerFailed(f"{failure} within {deadline:g} s; the logs end:\n{logs}")
        time.sleep(0.05)

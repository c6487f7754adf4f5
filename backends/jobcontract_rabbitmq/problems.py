"""What went wrong, in sentences: what the server refused or did not answer, as errors of jobcontract."""

from __future__ import annotations

from collections.abc import Iterable

from jobcontract.errors import StoreError, StoreUnavailable
from jobcontract_rabbitmq.amqp import INEQUIVALENT, NOT_FOUND, REFUSED, ChannelClosed, ConnectionLost
from jobcontract_rabbitmq.publisher import Outcome, Published


class Problems:
    """Those of one backend, and of the servers `where`."""

    def __init__(self, backend: str, where: str) -> None:
        self._backend = backend
        self._server = f"RabbitMQ at {where}"

    def while_doing(self, what: str) -> str:
        """For what did not end in time."""
        return f"{self._server}: {what}"

    def lost(self, error: ConnectionLost) -> StoreError:
        """A connection that broke."""
        return StoreUnavailable(f"the connection to {self._server} was lost: {error}")

    def closed(self, error: ChannelClosed) -> StoreError:
        """Why the server closed a channel on which nothing is published."""
        if error.code == NOT_FOUND:
            return StoreError(f"{self._server} is not prepared ({error}); run jobctl init")
        if error.code == REFUSED:
            return StoreError(f"{self._server} does not let the user do that: {error}")
        return StoreUnavailable(f"{self._server} closed the channel: {error}")

    def no_queue(self, queues: Iterable[str], stored: int, count: int) -> StoreError:
        """Jobs that no queue takes."""
        return StoreError(
            f"{self._server} has no queue for jobs of {', '.join(map(repr, queues))}: "
            f"add the name to `queues` of backend {self._backend!r} and run jobctl init "
            f"({stored} of {count} jobs were stored)"
        )

    def check(self, published: Published, what: str) -> None:
        """Raise for whatever was not confirmed."""
        count = len(published.outcomes)
        missing = sum(outcome is not Outcome.CONFIRMED for outcome in published.outcomes)
        if missing:
            raise self._unpublished(published, f"{missing} of {count} {what}")

    def _unpublished(self, published: Published, what: str) -> StoreError:
        if published.code == INEQUIVALENT:  # a message that is larger than the server takes
            return StoreError(f"{self._server} does not accept {what}: {published.reason}")
        if published.code:
            return self.closed(ChannelClosed(published.code, published.reason))
        if Outcome.UNROUTABLE in published.outcomes:
            return StoreError(f"{self._server} has no queue for {what}; run jobctl init")
        if Outcome.UNKNOWN in published.outcomes:
            return StoreUnavailable(f"{self._server} did not confirm {what}: {published.reason}")
        return StoreUnavailable(
            f"{self._server} refused {what}: a queue is full or has no majority of its nodes"
        )

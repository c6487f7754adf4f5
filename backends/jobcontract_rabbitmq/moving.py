"""Jobs that come from another store: copies with their past, published to where each belongs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from jobcontract.contract import State
from jobcontract.errors import StoreError
from jobcontract.side_doors import MovedJob
from jobcontract_rabbitmq.message import Message, carried_message
from jobcontract_rabbitmq.problems import Problems
from jobcontract_rabbitmq.publisher import Publisher
from jobcontract_rabbitmq.registering import Create
from jobcontract_rabbitmq.topology import DELAY_BITS, Address, Route, Topology, whole_seconds


class Moving:
    """`CarriesCopies`. Belongs to the driver's loop."""

    def __init__(self, publisher: Publisher, topology: Topology, problems: Problems, create: Create) -> None:
        self._publisher = publisher
        self._topology = topology
        self._problems = problems
        self._create = create
        self._made: set[str] = set()
        """Queues that were there."""

    async def carry(self, jobs: Sequence[MovedJob], name: str, until: float) -> None:
        """As `CarriesCopies.carry`. What has ended otherwise than dead leaves nothing here."""
        carried = [job for job in jobs if job.state in (State.READY, State.DEAD)]
        if not carried:
            return
        new = {job.record.queue for job in carried} - self._made
        if new:  # before: what is delayed finds out years later that its queue is missing
            await self._create(sorted(new))
            self._made |= new
        now = datetime.now(UTC)
        messages = [self._message(job, name, now) for job in carried]
        self._problems.check(await self._publisher.publish(messages, until), "moved jobs")

    def _message(self, job: MovedJob, name: str, now: datetime) -> Message:
        return carried_message(job, self._route(job, now), name)

    def _route(self, job: MovedJob, now: datetime) -> Route:
        record = job.record
        # The priority stays in the envelope; here it is as urgent as this installation can tell apart.
        address = Address(record.queue, min(record.priority, self._topology.levels - 1))
        if job.state is State.DEAD:
            return self._topology.to_dead(address)
        if record.run_at is None or record.run_at <= now:
            return self._topology.to_ready(address)
        if whole_seconds(record.run_at - now) >> DELAY_BITS:
            raise StoreError(
                f"the job {record.id} is due on {record.run_at:%Y-%m-%d}, and RabbitMQ keeps no job waiting "
                f"for longer than {(1 << DELAY_BITS) // 31_557_600} years; cancel it where it is"
            )
        return self._topology.to_ready_in(record.run_at - now, address)

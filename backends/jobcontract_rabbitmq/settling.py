"""How a claim ends: the copy first, confirmed, and the original after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from jobcontract.contract import LOST, Failure, Lease, State, Verdict
from jobcontract_rabbitmq.amqp import ChannelClosed, ConnectionLost
from jobcontract_rabbitmq.intake import Intake
from jobcontract_rabbitmq.iothread import all_of
from jobcontract_rabbitmq.message import History, Message, Reading
from jobcontract_rabbitmq.publisher import Outcome, Published, Publisher
from jobcontract_rabbitmq.tap import Delivery, Hand, Tap
from jobcontract_rabbitmq.topology import Topology, whole_seconds

SPENT = "the worker or its connection was lost, and with it the last of {most} attempts"


class _Move(NamedTuple):
    """A claimed job on its way to another queue."""

    position: int
    delivery: Delivery
    message: Message
    verdict: Verdict


class Settling:
    """The fenced verbs. Belongs to the driver's loop."""

    def __init__(self, publisher: Publisher, topology: Topology) -> None:
        self._publisher = publisher
        self._topology = topology

    async def complete(self, intake: Intake, leases: Sequence[Lease]) -> list[Verdict]:
        """Acknowledge. Raises `ChannelClosed` or `ConnectionLost` when nobody knows whether it arrived."""
        found = [intake.claimed(lease.token, lease.job_id) for lease in leases]
        held = [delivery for delivery in found if delivery is not None]
        for delivery in held:
            delivery.hand = Hand.GONE  # so that nobody else settles it meanwhile
        settled = {delivery.token for delivery in await _ack(intake, held)}
        return [Verdict(True, State.DONE) if lease.token in settled else LOST for lease in leases]

    async def copies_of(self, intake: Intake, leases: Sequence[Lease]) -> list[str | None]:
        """As the headers of their messages say; None for what is lost already."""
        found = [_claimed(intake, lease)[1] for lease in leases]
        return [None if reading is None else reading.history.copy for reading in found]

    async def extend(self, intake: Intake, leases: Sequence[Lease]) -> list[Verdict]:
        """Whether they are held, and until when. The server is asked, for it may have given a job to somebody
        else on a connection that we don't know yet to be broken.
        """
        asked = {
            delivery.tap
            for lease in leases
            if (delivery := intake.claimed(lease.token, lease.job_id)) is not None
        }
        with suppress(ChannelClosed, ConnectionLost):
            await all_of(tap.barrier() for tap in asked)
        found = [intake.claimed(lease.token, lease.job_id) for lease in leases]
        return [
            Verdict(True, State.RUNNING, delivery.expires_at) if delivery is not None else LOST
            for delivery in found
        ]

    async def fail(
        self, intake: Intake, failures: Sequence[Failure], until: float
    ) -> tuple[list[Verdict], Published]:
        """Publish the failed jobs anew, to wait or to be dead, and acknowledge those that were confirmed."""
        now = datetime.now(UTC)
        moves: list[_Move] = []
        for position, failure in enumerate(failures):
            delivery, reading = _claimed(intake, failure.lease)
            if delivery is None or reading is None:
                continue
            address = delivery.tap.address
            error = f"{failure.error} ({reading.problem})" if reading.problem else failure.error
            history = reading.history._replace(error=error)
            if failure.permanent or reading.spent >= reading.max_attempts:
                message = reading.again(
                    self._topology.to_dead(address), history._replace(died_at=now), delivery.body
                )
                verdict = Verdict(True, State.DEAD)
            else:
                message, verdict = self._back(delivery, reading, history, failure.retry_in, now)
            moves.append(_Move(position, delivery, message, verdict))
        return await self._move(intake, len(failures), moves, until)

    async def release(
        self, intake: Intake, leases: Sequence[Lease], delay: timedelta, until: float
    ) -> tuple[list[Verdict], Published]:
        """Publish the jobs anew, with the attempt given back. (A returned message would be counted as a
        delivery, before RabbitMQ 4.3.)
        """
        now = datetime.now(UTC)
        moves: list[_Move] = []
        for position, lease in enumerate(leases):
            delivery, reading = _claimed(intake, lease)
            if delivery is None or reading is None:
                continue
            history = reading.history._replace(refunded=reading.history.refunded + 1)
            moves.append(_Move(position, delivery, *self._back(delivery, reading, history, delay, now)))
        # Whoever gives jobs back wants no others for them: it is the last thing that a worker does.
        await all_of(tap.stop_listening() for tap in {move.delivery.tap for move in moves})
        return await self._move(intake, len(leases), moves, until)

    def _back(
        self, delivery: Delivery, reading: Reading, history: History, delay: timedelta, now: datetime
    ) -> tuple[Message, Verdict]:
        due = now + timedelta(seconds=whole_seconds(delay))
        route = self._topology.to_ready_in(delay, delivery.tap.address)
        message = reading.again(route, history._replace(run_at=due), delivery.body)
        return message, Verdict(True, State.READY, due)

    async def bury(self, intake: Intake, spent: Sequence[Delivery], until: float) -> Published:
        """Jobs whose attempts are spent already, because their workers were lost with them, are dead."""
        now = datetime.now(UTC)
        moves: list[_Move] = []
        for position, delivery in enumerate(spent):
            reading = delivery.reading
            if reading is None or delivery.hand is not Hand.CLAIM:
                continue
            text = SPENT.format(most=reading.max_attempts)
            if reading.history.error:
                text = f"{text}; before that: {reading.history.error}"
            # As it was delivered: the claim that found it out is no attempt.
            history = delivery.read().history._replace(error=text, died_at=now)
            message = reading.again(self._topology.to_dead(delivery.tap.address), history, delivery.body)
            moves.append(_Move(position, delivery, message, Verdict(True, State.DEAD)))
        return (await self._move(intake, len(spent), moves, until))[1]

    async def give_back(self, spare: Sequence[Delivery], until: float) -> None:
        """What nobody here claimed becomes anybody's again, behind the others, and no attempt is spent. Where
        it can't be published it is returned, which counts as one.
        """
        messages: list[Message] = []
        for delivery in spare:
            reading = delivery.read()
            route = self._topology.to_ready(delivery.tap.address)
            messages.append(reading.again(route, reading.history, delivery.body))
        published = await self._publisher.publish(messages, until)
        by_tap: defaultdict[Tap, list[Delivery]] = defaultdict(list)
        for delivery, outcome in zip(spare, published.outcomes, strict=True):
            if outcome is Outcome.CONFIRMED:
                by_tap[delivery.tap].append(delivery)
            else:
                delivery.tap.nack([delivery])
        for tap, share in by_tap.items():
            tap.ack(share)

    async def _move(
        self, intake: Intake, count: int, moves: Sequence[_Move], until: float
    ) -> tuple[list[Verdict], Published]:
        verdicts = [LOST] * count
        if not moves:
            return verdicts, Published([])
        for move in moves:
            move.delivery.hand = Hand.GONE  # so that nobody else settles it meanwhile
        published = Published([Outcome.UNKNOWN] * len(moves))
        try:
            published = await self._publisher.publish([move.message for move in moves], until)
        finally:
            moved: list[Delivery] = []
            for move, outcome in zip(moves, published.outcomes, strict=True):
                if outcome is Outcome.CONFIRMED:
                    verdicts[move.position] = move.verdict
                    moved.append(move.delivery)
                else:
                    move.delivery.tap.hold(move.delivery)
        # Where it can't be acknowledged any more, what became of the job is recorded all the same. The
        # original came back, and runs once more.
        with suppress(ChannelClosed, ConnectionLost):
            await _ack(intake, moved)
        return verdicts, published


def _claimed(intake: Intake, lease: Lease) -> tuple[Delivery | None, Reading | None]:
    delivery = intake.claimed(lease.token, lease.job_id)
    return delivery, None if delivery is None else delivery.reading


async def _ack(intake: Intake, deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Returns those that were acknowledged: others were lost before it came to that."""
    by_tap: defaultdict[Tap, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        by_tap[delivery.tap].append(delivery)
    settled: list[Delivery] = []

    async def settle(tap: Tap, share: Sequence[Delivery]) -> None:
        try:
            await intake.before_ack(tap, share)
        finally:
            # At once: what is acknowledged later may open the credit of a consumer that is being cancelled.
            settled.extend(tap.ack(share))
            intake.settled(len(share))

    # All of them: a channel that is closed keeps nobody from settling what is on the others.
    await all_of(settle(tap, share) for tap, share in by_tap.items())
    await all_of(tap.barrier() for tap in by_tap)
    return settled

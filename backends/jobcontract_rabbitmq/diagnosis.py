"""What hurts a RabbitMQ store, as far as AMQP tells: the side door `Diagnosis`.

The server says nothing of an alarm until somebody publishes, and nothing of a queue's type at all. So a
message is published that no queue takes, and each queue is declared as it should be, which changes nothing
where it is so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jobcontract.side_doors import Ailment
from jobcontract_rabbitmq import installation
from jobcontract_rabbitmq.amqp import INEQUIVALENT, REFUSED, Channel, ChannelClosed, Connection
from jobcontract_rabbitmq.frames import Properties
from jobcontract_rabbitmq.topology import Object, Queue

_REMEDY = "drain it, delete it and run `jobctl init`; or use another namespace"
_PROBE = "doctor"
"""A routing key of no job: those have a colon."""


async def diagnose(
    connection: Connection, exchange: str, objects: Sequence[Object], patience: float
) -> list[Ailment]:
    """On a connection of its own. `patience`: how long the answer to one message may take, in seconds."""
    missing = await installation.missing(connection, objects)
    found = [
        Ailment("missing", f"{step.title.removeprefix('declare ')} is not there", "run `jobctl init`")
        for step in missing
    ]
    absent = {step.title.rpartition(" ")[2] for step in missing}
    found += await _about_queues(
        connection, [each for each in objects if isinstance(each, Queue) and each.name not in absent]
    )
    if exchange not in absent:
        found += await _about_alarms(connection, exchange, patience)
    return found


async def _about_queues(connection: Connection, queues: Sequence[Queue]) -> list[Ailment]:
    found: list[Ailment] = []
    channel = await connection.channel()
    for queue in queues:
        try:
            await channel.declare_queue(queue.name, queue.arguments)
        except ChannelClosed as error:
            if error.code == REFUSED:
                found.append(
                    Ailment(
                        "unseen",
                        f"this user may not configure {queue.name}, so that the types of the queues stay "
                        f"unchecked",
                        "run jobctl doctor as the user that runs jobctl init, too",
                    )
                )
                return found
            if error.code != INEQUIVALENT:
                raise
            channel = await connection.channel()
            if await _is_plain_classic(channel, queue.name):
                what = f"{queue.name} is a classic queue, no quorum queue: it loses jobs with its node"
                found.append(Ailment("queue_type", what, _REMEDY))
            else:
                what = f"{queue.name} was declared with other arguments: {error}"
                found.append(Ailment("queue_arguments", what, _REMEDY))
                channel = await connection.channel()
    await channel.close()
    return found


async def _is_plain_classic(channel: Channel, name: str) -> bool:
    try:
        await channel.declare_queue(name, {"x-queue-type": "classic"})
    except ChannelClosed:
        return False
    return True


async def _about_alarms(connection: Connection, exchange: str, patience: float) -> list[Ailment]:
    answered = asyncio.Event()

    def on_confirm(number: int, multiple: bool, taken: bool) -> None:
        del number, multiple, taken
        answered.set()

    def on_return(exchange: str, key: str, message_id: str | None) -> None:
        del exchange, key, message_id  # no queue is bound there, as it should be

    channel = await connection.channel()
    channel.on_closed = lambda _: answered.set()
    await channel.confirm(on_confirm, on_return)
    channel.send(channel.encoder().encode(exchange, _PROBE, b"", Properties(_PROBE, _PROBE)))
    try:
        async with asyncio.timeout(patience):
            while not answered.is_set() and connection.blocked is None:
                await asyncio.sleep(0.05)  # two things to wait for, of which one has no event
    except TimeoutError:
        return [Ailment("silent", "the server does not answer to a published message", "look at its log")]
    if connection.blocked is not None:
        return [
            Ailment(
                "alarm",
                f"the server takes no messages: an alarm is on ({connection.blocked})",
                "give it memory or disk space (rabbitmq-diagnostics alarms); claimed jobs can be completed "
                "meanwhile",
            )
        ]
    if isinstance(channel.closed, ChannelClosed) and channel.closed.code == REFUSED:
        return [
            Ailment(
                "unseen",
                f"this user may not publish to {exchange}, so that an alarm stays unnoticed",
                "permit writing to it (docs/security.md)",
            )
        ]
    return []

"""Declaring the topology: the only part that needs the right to configure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from jobcontract.errors import StoreError
from jobcontract.side_doors import Step
from jobcontract_rabbitmq.amqp import INEQUIVALENT, NOT_FOUND, REFUSED, Channel, ChannelClosed, Connection
from jobcontract_rabbitmq.iothread import all_of
from jobcontract_rabbitmq.topology import Binding, Exchange, Object, Queue

Item = TypeVar("Item")

_CHANNELS = 8
"""A channel waits for each answer, and a quorum queue takes its time."""


async def missing(connection: Connection, objects: Sequence[Object]) -> list[Step]:
    """What of `objects` is not there, as steps. Bindings can't be looked at, and are not named."""
    steps: dict[int, Step] = {}

    async def look(share: Iterable[tuple[int, Object]]) -> None:
        channel = await connection.channel()
        for number, thing in share:
            if isinstance(thing, Binding):
                continue
            try:
                if isinstance(thing, Exchange):
                    await channel.declare_exchange(thing.name, thing.type, passive=True)
                else:
                    await channel.count_ready(thing.name)
            except ChannelClosed as error:
                if error.code != NOT_FOUND:
                    raise
                steps[number] = Step(f"declare {_title(thing)}")
                channel = await connection.channel()
        await channel.close()

    await all_of(look(share) for share in _shares(list(enumerate(objects))))
    return [steps[number] for number in sorted(steps)]


async def declare(connection: Connection, objects: Sequence[Object]) -> None:
    """Make all of `objects` be there. Raises `StoreError` when one is there with other properties, or may not
    be made.
    """

    async def make(share: Iterable[Object]) -> None:
        channel = await connection.channel()
        for thing in share:
            try:
                await _declare(channel, thing)
            except ChannelClosed as error:
                raise StoreError(_refusal(thing, error)) from None
        await channel.close()

    bindings = [each for each in objects if isinstance(each, Binding)]
    await all_of(
        make(share) for share in _shares([each for each in objects if not isinstance(each, Binding)])
    )
    await all_of(make(share) for share in _shares(bindings))


async def _declare(channel: Channel, thing: Object) -> None:
    match thing:
        case Exchange(name, kind):
            await channel.declare_exchange(name, kind)
        case Queue(name, arguments):
            await channel.declare_queue(name, arguments)
        case Binding(source, destination, pattern, to_exchange):
            await channel.bind(source, destination, pattern, to_exchange=to_exchange)


def _shares(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [items[start::_CHANNELS] for start in range(min(_CHANNELS, len(items)))]


def _title(thing: Exchange | Queue) -> str:
    if isinstance(thing, Exchange):
        return f"{thing.type} exchange {thing.name}"
    return f"quorum queue {thing.name}"


def _refusal(thing: Object, error: ChannelClosed) -> str:
    name = thing.source if isinstance(thing, Binding) else thing.name
    if error.code == REFUSED:
        return f"the user may not configure {name}: {error}"
    if error.code == INEQUIVALENT:
        return (
            f"{name} is there with other properties ({error}); delete it once it is empty, or set another "
            "namespace, and run jobctl init again"
        )
    return f"{name} can't be declared: {error}"

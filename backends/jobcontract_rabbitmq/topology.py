"""The exchanges, queues and bindings of an installation, as data.

::

                 ready (direct)                       jobs of queue `mail`, priority 1
    producer ---- "mail:1" -----------------------> [ready.mail.1] ---> worker
                                                        ^      | failed for good: published
                 delay.28 ... delay.0 (topic)           |      v
    worker ----- "0.0.1.0.1.mail:1" --> ... --> due (topic)   dead (direct) -- "mail:1" --> [dead.mail]

A delay of n seconds is n in binary: one queue per bit, whose messages expire after 2^bit seconds, all of the
same age, so that a short delay never waits behind a long one. The routing key spells the bits, highest first,
and then the address; each exchange sends a message through its queue or past it, by its bit, to the next
lower one.

Every name carries the version of this layout: redeclaring a queue with other arguments is refused by the
server (406), so that a change of an argument is a new version, never an edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

LAYOUT = "v1"

DELAY_BITS = 29
"""2^29 seconds are 17 years; the contract's longest delay is 10. One bit more is refused by RabbitMQ 3.10,
which allows an expiry of 2^28 seconds and not of 2^29.
"""

_MANY = 1_000_000_000
Argument: TypeAlias = str | int


class Address(NamedTuple):
    """Where jobs of one queue and one priority go."""

    queue: str
    level: int

    @property
    def word(self) -> str:
        """The address in a routing key, where a dot would separate words."""
        return f"{self.queue.replace('.', ':')}:{self.level}"


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange, durable."""

    name: str
    type: Literal["direct", "topic"]


@dataclass(frozen=True, slots=True)
class Queue:
    """A quorum queue, and so durable."""

    name: str
    arguments: Mapping[str, Argument] = field(default_factory=dict[str, Argument])


@dataclass(frozen=True, slots=True)
class Binding:
    """From an exchange to a queue or to another exchange."""

    source: str
    destination: str
    pattern: str
    to_exchange: bool = False


Object: TypeAlias = Exchange | Queue | Binding


class Route(NamedTuple):
    """Where a message is published."""

    exchange: str
    key: str


class Topology:
    """The names of one installation, and what they stand for. Pure; contacts nothing."""

    def __init__(self, namespace: str, levels: int) -> None:
        self._prefix = f"{namespace}.{LAYOUT}"
        self.levels = levels
        self.ready_exchange = f"{self._prefix}.ready"
        self.due_exchange = f"{self._prefix}.due"
        self.dead_exchange = f"{self._prefix}.dead"

    # -- Names ---------------------------------------------------------------------------------------

    def addresses(self, queue: str) -> list[Address]:
        """Those of `queue`, the best priority first."""
        return [Address(queue, level) for level in reversed(range(self.levels))]

    def ready_queue(self, address: Address) -> str:
        """The RabbitMQ queue of jobs that are due."""
        return f"{self._prefix}.ready.{address.queue}.{address.level}"

    def dead_queue(self, queue: str) -> str:
        """The RabbitMQ queue of jobs that failed for good."""
        return f"{self._prefix}.dead.{queue}"

    def delay(self, bit: int) -> str:
        """The name of a delay's queue, and of the exchange before it."""
        return f"{self._prefix}.delay.{bit}"

    # -- Routes --------------------------------------------------------------------------------------

    def to_ready(self, address: Address) -> Route:
        """Due now."""
        return Route(self.ready_exchange, address.word)

    def to_dead(self, address: Address) -> Route:
        """Never again, unless somebody sends it back."""
        return Route(self.dead_exchange, address.word)

    def to_ready_in(self, delay: timedelta, address: Address) -> Route:
        """Due after `delay`, which is rounded up to whole seconds; nothing is due now."""
        seconds = whole_seconds(delay)
        if seconds == 0:
            return self.to_ready(address)
        bits = f"{seconds:0{DELAY_BITS}b}"
        return Route(self.delay(seconds.bit_length() - 1), f"{'.'.join(bits)}.{address.word}")

    # -- Objects -------------------------------------------------------------------------------------

    def objects(self, queues: Iterable[str]) -> Iterator[Object]:
        """All that an installation with `queues` consists of; what is bound comes before its binding."""
        yield Exchange(self.ready_exchange, "direct")
        yield Exchange(self.due_exchange, "topic")
        yield Exchange(self.dead_exchange, "direct")
        yield from self._delay_objects()
        for queue in queues:
            yield from self.queue_objects(queue)

    def queue_objects(self, queue: str) -> Iterator[Object]:
        """What belongs to one queue of jobs."""
        yield Queue(self.dead_queue(queue), _kept())
        for address in self.addresses(queue):
            ready = self.ready_queue(address)
            yield Queue(ready, _kept() | _dead_lettered(self.dead_exchange, address.word))
            yield Binding(self.ready_exchange, ready, address.word)
            yield Binding(self.due_exchange, ready, f"#.{address.word}")
            yield Binding(self.dead_exchange, self.dead_queue(queue), address.word)

    def _delay_objects(self) -> Iterator[Object]:
        below = self.due_exchange
        for bit in range(DELAY_BITS):
            name = self.delay(bit)
            skipped = "*." * (DELAY_BITS - 1 - bit)
            yield Exchange(name, "topic")
            yield Queue(name, {"x-message-ttl": 1000 << bit} | _kept() | _dead_lettered(below))
            yield Binding(name, name, f"{skipped}1.#")
            yield Binding(name, below, f"{skipped}0.#", to_exchange=True)
            below = name


def whole_seconds(delay: timedelta) -> int:
    """`delay` rounded up: never early."""
    return -(-delay // timedelta(seconds=1))


def _kept() -> dict[str, Argument]:
    # From 4.0 a quorum queue drops what was delivered 20 times, unless it is told otherwise. How often a job
    # may be tried is the job's own affair, so the limit is out of reach. It can't be -1, "unlimited": 3.10
    # takes that for "at the first redelivery".
    return {"x-queue-type": "quorum", "x-delivery-limit": _MANY}


def _dead_lettered(exchange: str, key: str | None = None) -> dict[str, Argument]:
    """At least once: the copy is confirmed before the original goes. Needs reject-publish."""
    return {
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        **({} if key is None else {"x-dead-letter-routing-key": key}),
    }

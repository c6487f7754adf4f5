"""What can be set for a RabbitMQ store, in its table or in its URL."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from jobcontract.config import StoreOptions
from jobcontract.contract import QueueName
from jobcontract.durations import PositiveDuration

Namespace = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_\-]{1,32}\z")]


def _split(value: object) -> object:
    """A URL's parameter is text: ``queues=default,mail``."""
    return value.split(",") if isinstance(value, str) else value


def _heartbeat(length: timedelta) -> timedelta:
    if length != timedelta(seconds=length.seconds) or not length:
        raise PydanticCustomError("heartbeat", "must be a whole number of seconds, one at least")
    return length


class RabbitOptions(StoreOptions):
    """The keys of ``[backends.NAME]`` beside `url`, and equally the parameters of the URL."""

    queues: Annotated[tuple[QueueName, ...], BeforeValidator(_split), Field(min_length=1)] = ("default",)
    """The queues that `jobctl init` creates. A job for any other queue is refused, unless `create_queues`."""
    create_queues: bool = False
    """Create the queue of a job on its first registration. Needs the right to configure, and turns a queue
    that was deleted, or a name with a typo in it, into a new queue instead of an error."""
    priority_levels: Annotated[int, Field(ge=1, le=3)] = 3
    """How many priorities are kept apart. Each is a RabbitMQ queue of its own, per queue of jobs."""
    namespace: Namespace = "jobcontract"
    """What the name of every object begins with. Several installations share a vhost by it."""
    timeout: PositiveDuration = timedelta(seconds=10)
    """The deadline of each call, connecting included."""
    connect_timeout: PositiveDuration = timedelta(seconds=3)
    """How long one host has to take a connection before the next one is tried."""
    heartbeat: Annotated[PositiveDuration, AfterValidator(_heartbeat)] = timedelta(seconds=5)
    """A connection on which nothing came for about twice as long is given up. Whole seconds."""
    window: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """How many published messages may be unconfirmed at a time."""
    consumer_timeout: PositiveDuration = timedelta(minutes=30)
    """What the server is configured with (``consumer_timeout``): how long a job can be held. The protocol
    does not tell.
    """
    cacertfile: str | None = None
    """The certificates to trust instead of the system's. amqps only, as the three below."""
    certfile: str | None = None
    """Our certificate, for a server that asks for one."""
    keyfile: str | None = None
    """The key of `certfile`."""
    server_name_indication: str | None = None
    """The name in the server's certificate, where it is not that of the URL's host."""
    verify: Literal["verify_peer", "verify_none"] = "verify_peer"
    """Whether the server must prove its name. ``verify_none`` is for tests."""

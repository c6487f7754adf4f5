"""What the server says of itself, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobcontract.contract import (
    Capabilities,
    ConnectionLease,
    Deduplication,
    Durability,
    Feature,
    Transactional,
)
from jobcontract.durations import format_duration
from jobcontract.errors import StoreError
from jobcontract_rabbitmq.options import RabbitOptions

OLDEST = (3, 10)
"""The first one whose quorum queues let messages expire and dead-letter at least once."""

LARGEST_BATCH = 10_000
LARGEST_INPUT = 8 * 1024 * 1024
"""RabbitMQ 4 takes messages of 16 MiB by default, 3.x of 128 MiB."""


@dataclass(frozen=True, slots=True)
class Server:
    """Product and version, from the properties that a connection begins with."""

    product: str
    version: str

    @classmethod
    def of(cls, properties: Mapping[str, object], where: str) -> Server:
        """Raises `StoreError` for a server that is too old, or no RabbitMQ."""
        server = cls(str(properties.get("product", "")), str(properties.get("version", "")))
        if server.product != "RabbitMQ":
            raise StoreError(f"the server at {where} is {server.product or 'unknown'}, not RabbitMQ")
        if server.number < OLDEST:
            raise StoreError(
                f"RabbitMQ {server.version} at {where} is too old: 3.10 is the first whose quorum queues "
                "keep jobs that wait for a retry"
            )
        return server

    @property
    def number(self) -> tuple[int, ...]:
        """(4, 0, 5); what is not a number ends it."""
        parts: list[int] = []
        for part in self.version.split("."):
            digits = part[: len(part) - len(part.lstrip("0123456789"))]
            if not digits:
                break
            parts.append(int(digits))
        return tuple(parts)


def capabilities_of(
    server: Server, options: RabbitOptions, side_doors: frozenset[Feature], *, plaintext_abroad: bool
) -> Capabilities:
    """What this server gives, as it is used."""
    hold = format_duration(options.consumer_timeout)
    notes = [
        "A lease is a connection: when it breaks, its jobs run elsewhere at once, and that counts as an "
        "attempt, also for what was only fetched ahead.",
        f"A job can be held for {hold} (consumer_timeout), however often its lease is extended; a longer one "
        "needs a longer consumer_timeout, in the server and in the backend's settings.",
        "Durability is that of quorum queues: an acknowledged job is on the disks of a majority of the nodes "
        "that hold its queue, which is one where the cluster is one node.",
        "The delay of a retry is rounded up to whole seconds.",
        "Dead jobs can be listed, exported and sent back (jobctl dead), by reading the whole dead queue; no "
        "other job can be looked up.",
    ]
    if plaintext_abroad:
        notes.append("Credentials and jobs cross the network unencrypted; amqps:// would change that.")
    if options.verify == "verify_none":
        notes.append("The server's certificate is not verified; verify=verify_peer would change that.")
    return Capabilities(
        store=f"{server.product} {server.version}",
        deduplication=Deduplication.NONE,
        lease=ConnectionLease(options.consumer_timeout),
        scheduling=None,
        priority_levels=options.priority_levels,
        durability=Durability.QUORUM,
        transactional=Transactional.NONE,
        max_register_batch=LARGEST_BATCH,
        max_input_ref_bytes=LARGEST_INPUT,
        side_doors=side_doors,
        notes=tuple(notes),
    )

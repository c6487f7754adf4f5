"""The verbs of the contract, as AMQP does them.

Two connections share one thread: one publishes, the other consumes. An alarm of the server (memory, disk)
stops whoever publishes, and what is claimed can still be acknowledged then.

==========  ==============================================================================================
register    publish with confirms, mandatory
claim       take from the taps; what spent its attempts, because its workers died of it, is buried here
complete    acknowledge
fail        publish the copy (through the delays, or to the dead) with confirms, then acknowledge
release     the same, with the attempt given back
rescue      nothing: when a connection breaks, the server hands its jobs to others at once
==========  ==============================================================================================

A process that dies between confirm and acknowledgement leaves the copy and the original: at least once.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from jobcontract.config import StoreSettings
from jobcontract.contract import (
    Capabilities,
    ClaimedRecord,
    Failure,
    JobRecord,
    Lease,
    Registration,
    Rescued,
    Verdict,
)
from jobcontract.errors import StoreError, StoreUnavailable
from jobcontract.side_doors import (
    Ailment,
    Expectations,
    MovedJob,
    Page,
    Step,
    StoredJob,
    TakenCopy,
    side_doors_of,
)
from jobcontract_rabbitmq import diagnosis, installation
from jobcontract_rabbitmq.amqp import ChannelClosed, ConnectionLost
from jobcontract_rabbitmq.dead import DeadJobs
from jobcontract_rabbitmq.intake import Intake
from jobcontract_rabbitmq.iothread import IOThread
from jobcontract_rabbitmq.link import Link, Target
from jobcontract_rabbitmq.message import filler
from jobcontract_rabbitmq.moving import Moving
from jobcontract_rabbitmq.options import RabbitOptions
from jobcontract_rabbitmq.problems import Problems
from jobcontract_rabbitmq.publisher import Outcome, Publisher
from jobcontract_rabbitmq.registering import Registering
from jobcontract_rabbitmq.server import Server, capabilities_of
from jobcontract_rabbitmq.settling import Settling
from jobcontract_rabbitmq.taking import Taking
from jobcontract_rabbitmq.tap import LONGEST_FILLING, Delivery, QueueMissing
from jobcontract_rabbitmq.topology import Address, Topology

Result = TypeVar("Result")

_NET = 0.5
"""Seconds after its deadline that a call has to end by itself, with what it knows."""
_READING = 60.0
"""Seconds that reading whole queues may take, where the deadline of the other calls is shorter."""
_DEAF = 0.5
"""Seconds between attempts to listen to a server that can't be reached."""


class RabbitDriver:
    """`jobcontract.contract.Driver` for RabbitMQ."""

    def __init__(self, settings: StoreSettings) -> None:
        """Contacts nothing. Raises `ConfigError`."""
        self._options = settings.read_options(RabbitOptions)
        self._target = Target(settings, self._options)
        self._topology = Topology(self._options.namespace, self._options.priority_levels)
        self._timeout = self._options.timeout.total_seconds()
        self._io = IOThread(f"jobcontract-rabbitmq-{settings.name}", self.close)
        self._consuming = Link(self._target, f"consumer {os.getpid()}")
        self._publishing = Link(self._target, f"publisher {os.getpid()}")
        self._publisher = Publisher(self._publishing, self._options.window)
        self._problems = Problems(settings.name, self._target.where)
        self._registering = Registering(
            self._publisher,
            self._topology,
            self._problems,
            self._create if self._options.create_queues else None,
        )
        self._settling = Settling(self._publisher, self._topology)
        self._taking = Taking(self._consuming, self._topology, self._options.queues, self._fill)
        self._moving = Moving(self._publisher, self._topology, self._problems, self._create)
        self._intake = Intake(self._consuming, self._topology, self._give_back, self._fill)
        self._dead = DeadJobs(self._consuming, self._publisher, self._topology, self._options.queues)
        self._reading_time = max(self._timeout, _READING)
        self._capabilities: Capabilities | None = None
        self._closed = threading.Event()

    # -- The door ------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Contacts the server once."""
        if self._capabilities is None:
            self._capabilities = self._run("asking what the server can do", self._ask_capabilities)
        return self._capabilities

    def register(self, records: Sequence[JobRecord]) -> list[Registration]:
        """Publish."""
        known = self._run("registering jobs", lambda: self._registering.register(records, self._until()))
        return [Registration(UUID(record.id), created=record.id not in known) for record in records]

    def claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> list[ClaimedRecord]:
        """Take deliveries; bury those whose attempts are spent, and take others for them."""
        del lease  # it is as long as the connection
        claimed: list[ClaimedRecord] = []
        while len(claimed) < limit:
            deliveries = self._run("claiming jobs", partial(self._claim, queues, limit - len(claimed)))
            now, by_our_clock = datetime.now(UTC), time.monotonic()
            spent: list[Delivery] = []
            for delivery in deliveries:
                reading = delivery.reading = delivery.read().claimed()
                if reading.spent > reading.max_attempts:
                    spent.append(delivery)
                    continue
                history = reading.history
                waited = timedelta(seconds=by_our_clock - delivery.arrived)  # which the server counts, too
                expires_at = now + self._options.consumer_timeout - waited
                held = Lease(
                    reading.record.id,
                    delivery.tap.address.queue,
                    delivery.token,
                    history.attempts,
                    expires_at,
                    history.refunded,
                )
                delivery.expires_at = expires_at
                claimed.append(ClaimedRecord(held, reading.record))
            if not spent:
                break
            self._run("burying jobs", partial(self._bury, spent))
        return claimed

    def complete(self, leases: Sequence[Lease]) -> list[Verdict]:
        """Acknowledge."""
        return self._run("completing jobs", lambda: self._settling.complete(self._intake, leases))

    def fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        """Publish the copy, acknowledge the original."""
        return self._run("failing jobs", lambda: self._fail(failures))

    def extend(self, leases: Sequence[Lease], lease: timedelta) -> list[Verdict]:
        """Nothing is longer than the server's consumer_timeout, so the expiry stays."""
        del lease
        return self._run("extending leases", lambda: self._settling.extend(self._intake, leases))

    def release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        """Publish the copy, acknowledge the original."""
        return self._run("releasing jobs", lambda: self._release(leases, delay))

    def rescue(self, limit: int) -> Rescued:
        """The server gives the jobs of a broken connection to others by itself."""
        del limit
        return Rescued(0, 0)

    def wait(self, queues: Sequence[str], timeout: timedelta) -> bool:
        """Have the server deliver, and return when it did."""
        end = time.monotonic() + timeout.total_seconds()
        while not self._closed.is_set():
            try:
                left = max(0.0, end - time.monotonic())
                return self._run("waiting for jobs", lambda: self._wait(queues, end), longest=left)
            except StoreUnavailable:
                # The caller's next claim will say so. Here it means that nothing is heard for a while.
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._closed.wait(min(left, _DEAF))
        return False

    def close(self) -> None:
        """Give back what was fetched and not claimed, and close both connections."""
        self._closed.set()
        if self._io.started:
            with suppress(StoreError):  # a connection that can't be closed breaks
                self._run("closing", self._close)
        self._io.close()

    def disconnect(self) -> None:
        """Drop both connections, as a network would: every lease is lost. The next call makes new ones. For
        tests.
        """
        self._run("disconnecting", self._disconnect)

    def install(self, *, dry_run: bool = False) -> list[Step]:
        """Declare the topology."""
        return self._run("declaring the topology", lambda: self._install(dry_run))

    def diagnose(self, expected: Expectations) -> list[Ailment]:
        """As `Diagnosis.diagnose`, over a connection of its own: an alarm stops the one that publishes."""
        del expected
        return self._run("looking for what is wrong", self._diagnose, longest=2 * self._timeout)

    def clock(self) -> None:
        """As `Diagnosis.clock`: AMQP can't ask for it."""

    def dead(self, page: Page) -> list[StoredJob]:
        """Read the dead queues of the settings."""
        return self._run("reading dead jobs", lambda: self._dead.page(page), longest=self._reading_time)

    def revive(self, job_ids: Sequence[str]) -> list[bool]:
        """Publish the copies, acknowledge the originals."""
        revived = self._run(
            "sending back dead jobs", lambda: self._revive(job_ids), longest=self._reading_time
        )
        return [job_id in revived for job_id in job_ids]

    def carry(self, jobs: Sequence[MovedJob], name: str) -> list[str | None]:
        """Publish each to where it belongs. There are no keys here."""
        self._run("storing moved jobs", lambda: self._moving.carry(jobs, name, self._until()))
        return [None] * len(jobs)

    def copies_of(self, leases: Sequence[Lease]) -> list[str | None]:
        """As the headers of their messages say."""
        return self._run("reading copies", lambda: self._settling.copies_of(self._intake, leases))

    def take(self, queues: Sequence[str], limit: int) -> list[TakenCopy]:
        """Consume, and acknowledge nothing yet."""
        taking = self._taking
        return self._run("taking jobs", lambda: taking.take(queues, limit), longest=self._reading_time)

    def drop(self, tokens: Sequence[str]) -> int:
        """Acknowledge."""
        return self._run("dropping jobs", lambda: self._taking.drop(tokens))

    # -- On the loop ---------------------------------------------------------------------------------

    async def _ask_capabilities(self) -> Capabilities:
        connection = await self._consuming.connect()
        return capabilities_of(
            Server.of(connection.server, self._target.where),
            self._options,
            side_doors_of(self),
            plaintext_abroad=self._target.plaintext_abroad,
        )

    async def _claim(self, queues: Sequence[str], limit: int) -> list[Delivery]:
        try:
            return await self._intake.claim(queues, limit)
        except QueueMissing:
            # A queue without jobs need not exist, but the installation must.
            channel = await (await self._consuming.connect()).channel()
            await channel.declare_exchange(self._topology.ready_exchange, "direct", passive=True)
            await channel.close()
            return []

    async def _fail(self, failures: Sequence[Failure]) -> list[Verdict]:
        verdicts, published = await self._settling.fail(self._intake, failures, self._until())
        self._problems.check(published, "failed jobs")
        return verdicts

    async def _release(self, leases: Sequence[Lease], delay: timedelta) -> list[Verdict]:
        verdicts, published = await self._settling.release(self._intake, leases, delay, self._until())
        self._problems.check(published, "released jobs")
        return verdicts

    async def _bury(self, spent: Sequence[Delivery]) -> None:
        published = await self._settling.bury(self._intake, spent, self._until())
        self._problems.check(published, "dead jobs")

    async def _give_back(self, spare: Sequence[Delivery]) -> None:
        with suppress(StoreError):  # they go back when the connection breaks
            await self._settling.give_back(spare, self._until())

    async def _fill(self, address: Address, count: int) -> bool:
        connection = self._publishing.connection
        if connection is not None and connection.blocked is not None:
            return False
        route = self._topology.to_ready(address)
        fillers = [filler(route) for _ in range(count)]
        publishing = asyncio.ensure_future(self._publisher.publish(fillers, self._until()))
        # Not cut short: that would cost everybody who publishes on this connection the answers.
        done, _ = await asyncio.wait({publishing}, timeout=LONGEST_FILLING)
        try:
            outcomes = [outcome for each in done for outcome in each.result().outcomes]
        except StoreError:
            return False
        return bool(outcomes) and all(outcome is Outcome.CONFIRMED for outcome in outcomes)

    async def _wait(self, queues: Sequence[str], end: float) -> bool:
        loop = asyncio.get_running_loop()
        return await self._intake.wait(queues, loop.time() + end - time.monotonic())

    async def _install(self, dry_run: bool) -> list[Step]:
        connection = await self._consuming.connect()
        Server.of(connection.server, self._target.where)
        objects = list(self._topology.objects(self._options.queues))
        steps = await installation.missing(connection, objects)
        if not dry_run:
            await installation.declare(connection, objects)
        return steps

    async def _diagnose(self) -> list[Ailment]:
        link = Link(self._target, f"doctor {os.getpid()}")
        connection = await link.connect()
        try:
            Server.of(connection.server, self._target.where)
            objects = list(self._topology.objects(self._options.queues))
            return await diagnosis.diagnose(connection, self._topology.ready_exchange, objects, self._timeout)
        finally:
            link.abort()  # the server reads no goodbye from whoever published under an alarm

    async def _create(self, queues: Iterable[str]) -> None:
        connection = await self._consuming.connect()
        objects = [each for queue in queues for each in self._topology.queue_objects(queue)]
        await installation.declare(connection, objects)

    async def _close(self) -> None:
        await self._intake.close()
        await self._consuming.close()
        await self._publishing.close()

    async def _revive(self, job_ids: Sequence[str]) -> set[str]:
        until = asyncio.get_running_loop().time() + self._reading_time
        revived, published = await self._dead.revive(job_ids, until)
        self._problems.check(published, "dead jobs")
        return revived

    async def _disconnect(self) -> None:
        self._consuming.abort()
        self._publishing.abort()

    # -- The mechanism -------------------------------------------------------------------------------

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout

    def _run(
        self, what: str, operation: Callable[[], Coroutine[Any, Any, Result]], *, longest: float | None = None
    ) -> Result:
        """Run `operation` on the loop, for `longest` seconds instead of the usual deadline; what it raises
        becomes an error of jobcontract.
        """
        deadline = (self._timeout if longest is None else longest) + _NET
        try:
            return self._io.run(operation, deadline, self._problems.while_doing(what))
        except ConnectionLost as error:
            raise self._problems.lost(error) from None
        except ChannelClosed as error:
            raise self._problems.closed(error) from None

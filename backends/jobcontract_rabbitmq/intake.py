"""Claims and waits over the taps of a driver: how much may come, and what of it goes back.

A consumer is given what it did not ask for just now, and what it was given is nobody else's. So the credit of
our consumers follows the claims: it is given for what is there and was asked for, and, while somebody waits,
within the *allowance*: how many jobs he said he can take and did not get yet (it grows by one with each job
that is settled). A job that is settled makes room for the next one only in a backlog, while claims follow
each other closely and get all that they ask for: what is fetched for a claim that comes late is late, too.

Who waits has a credit of one for each queue and priority, for one job is enough to be woken. Credit that is
left open is dear: it has to be used up before its consumer can be cancelled (see `jobcontract_rabbitmq.tap`).

What came and nobody claimed for `SPARE` goes back to its queue, and that is behind all others. It stays for
as long as others are there, up to `LONGEST_KEPT`: an idle worker would have taken those, so that nobody
misses it, and the order is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

from jobcontract_rabbitmq.amqp import ChannelClosed, ConnectionLost
from jobcontract_rabbitmq.iothread import all_of
from jobcontract_rabbitmq.link import Link
from jobcontract_rabbitmq.tap import Delivery, Fill, QueueMissing, Tap
from jobcontract_rabbitmq.topology import Address, Topology

SPARE = 0.25
"""Seconds that a delivery is kept, and credit left open, for a caller who does not come back."""

LONGEST_SPARE = 1.0
"""Seconds that a delivery is kept for one who comes back and takes others, of a better priority."""

LONGEST_KEPT = 10.0
"""Seconds that a delivery is kept while there are others that nobody took."""

PROMPT = 0.1
"""Seconds between claims that follow each other closely."""

LONGEST_TRUST = 10.0
"""Seconds without a word after which somebody who waits looks whether the queues still know his consumers."""

_FIRST_LOOK, _LONGEST_LOOK = 0.05, 0.5
"""Seconds between looks at queues that one waits for and can't listen to, because they are missing or there
is no hand for them; each pause is twice as long.
"""

GiveBack = Callable[[Sequence[Delivery]], Awaitable[None]]


class Intake:
    """The consuming half of a driver. Belongs to the driver's loop."""

    def __init__(self, link: Link, topology: Topology, give_back: GiveBack, fill: Fill) -> None:
        self._link = link
        self._topology = topology
        self._give_back = give_back
        self._fill_up = fill
        self._taps: dict[Address, Tap] = {}
        self._by_epoch: dict[str, Tap] = {}
        self._filling = asyncio.Lock()
        self._allowance = 0
        self._took_at = float("-inf")
        self._eager = False
        self._waited_for: Counter[str] = Counter()
        self._waiters: set[asyncio.Future[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    # -- Claims --------------------------------------------------------------------------------------

    async def claim(self, queues: Sequence[str], limit: int) -> list[Delivery]:
        """At most `limit` deliveries, by priority. Raises `QueueMissing` when none of the queues exists."""
        levels = self._levels(queues)
        prompt = time.monotonic() - self._took_at < PROMPT
        async with self._filling:
            if self._closed:
                raise ConnectionLost("the driver is closed")
            self._allowance = limit
            await self._fill(levels, limit)
            taken: list[Delivery] = []
            for taps in levels:
                shares = _shares([len(tap.buffer) for tap in taps], limit - len(taken))
                for tap, share in zip(taps, shares, strict=True):
                    taken += tap.take(share)
            self._allowance -= len(taken)
        self._eager = prompt and len(taken) == limit
        if taken:
            self._took_at = time.monotonic()
        self._note_asked(levels)
        return taken

    async def _fill(self, levels: Sequence[Sequence[Tap]], limit: int) -> None:
        """Bring into the buffers what a claim of `limit` should take."""
        looked_at: list[Tap] = []
        covered = 0
        for taps in levels:
            covered += sum(len(tap.buffer) for tap in taps)
            if covered >= limit:
                # What is below is not taken. Here, a full buffer must not hide the queue beside it.
                looked_at += [tap for tap in taps if not tap.buffer]
                break
            looked_at += taps
        ready = await _count_ready(looked_at)
        if looked_at and not ready and not covered:
            raise QueueMissing(looked_at[0].name)
        wanted: list[tuple[Tap, int]] = []
        left = limit
        for taps in levels:
            there = [len(tap.buffer) + ready.get(tap, 0) for tap in taps]
            for tap, share in zip(taps, _shares(there, left), strict=True):
                left -= share
                more = share - len(tap.buffer) - tap.free
                if more > 0:
                    wanted.append((tap, more))
        if wanted:
            await all_of(tap.listen(more) for tap, more in wanted)
            self._sweep_soon()

    def _spare_allowance(self) -> int:
        return self._allowance - sum(tap.free + len(tap.buffer) for tap in self._taps.values())

    def settled(self, count: int) -> None:
        """So many claimed jobs are settled: as many hands are free, and their credit is too."""
        self._allowance += count
        self._sweep_soon()

    async def before_ack(self, tap: Tap, deliveries: Iterable[Delivery]) -> None:
        """To be awaited before the `deliveries` of `tap` are acknowledged: decides whether as many others may
        come. Raises `ChannelClosed` or `ConnectionLost`.
        """
        waited_for = self._waited_for[tap.address.queue] > 0
        await tap.before_ack(deliveries, refill=self._eager, stay=waited_for)

    def claimed(self, token: str, job_id: str) -> Delivery | None:
        """The delivery that `token` is current for."""
        tap = self._by_epoch.get(token.partition(".")[0])
        return None if tap is None else tap.claimed(token, job_id)

    # -- Waits ---------------------------------------------------------------------------------------

    async def wait(self, queues: Sequence[str], until: float) -> bool:
        """True as soon as something is there for a claim, False at the loop's time `until`."""
        levels = self._levels(queues)
        taps = [tap for level in levels for tap in level]
        loop = asyncio.get_running_loop()
        self._waited_for.update(queues)
        look = _FIRST_LOOK
        doubtful = False
        try:
            while not self._closed:
                if await self._listen(taps, doubtful):
                    return True
                change = loop.create_future()
                self._waiters.add(change)
                pause = min(until - loop.time(), LONGEST_TRUST)
                if not all(tap.listening for tap in taps):
                    pause, look = min(pause, look), min(look * 2, _LONGEST_LOOK)
                doubtful = False
                try:
                    async with asyncio.timeout(max(pause, 0)):
                        await change
                except TimeoutError:
                    doubtful = pause == LONGEST_TRUST
                finally:
                    self._waiters.discard(change)
                if any(tap.buffer for tap in taps):
                    return True
                if loop.time() >= until:
                    return False
            return False
        finally:
            self._waited_for.subtract(queues)
            self._note_asked(levels)
            self._sweep_soon()

    async def _listen(self, taps: Sequence[Tap], doubtful: bool) -> bool:
        """Let each of `taps` bring something, if there are hands for it; whether something is there. Those
        that listen are asked only when it is `doubtful` that they hear.
        """
        async with self._filling:
            if self._closed:
                return False
            if self._spare_allowance() < sum(not tap.listening for tap in taps):
                await self._take_back_credit(taps)
            ready = await _count_ready([tap for tap in taps if doubtful or not tap.listening])
            if any(ready.values()) or any(tap.buffer for tap in taps):
                return True
            silent = [tap for tap in ready if not tap.listening]
            if silent and self._spare_allowance() >= len(silent):
                await all_of(tap.listen(1) for tap in silent)
                self._sweep_soon()
            return any(tap.buffer for tap in taps)

    async def _take_back_credit(self, taps: Iterable[Tap]) -> None:
        """A drain leaves credit behind: more than there are hands for, or all of it at one priority."""
        for tap in taps:
            if tap.free > 1:
                await tap.stop_listening()

    def _on_change(self) -> None:
        self._sweep_soon()
        if not self._waiters:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- What goes back ------------------------------------------------------------------------------

    def _note_asked(self, levels: Iterable[Iterable[Tap]]) -> None:
        now = time.monotonic()
        for taps in levels:
            for tap in taps:
                tap.asked_at = now

    def _sweep_soon(self) -> None:
        if self._sweeper is None and not self._closed:
            self._sweeper = asyncio.ensure_future(self._sweep())

    async def _sweep(self) -> None:
        try:
            while any(tap.buffer or tap.listening for tap in self._taps.values()):
                await asyncio.sleep(SPARE / 2)
                now = time.monotonic()
                for tap in list(self._taps.values()):
                    if self._is_idle(tap, now) or (
                        tap.buffer and now - tap.buffer[0].arrived > LONGEST_SPARE
                    ):
                        async with self._filling:
                            await self._stand_down(tap)
        except (ChannelClosed, ConnectionLost):
            pass  # what we held is the server's again
        finally:
            self._sweeper = None

    def _is_idle(self, tap: Tap, now: float) -> bool:
        if self._waited_for[tap.address.queue] > 0 or not (tap.buffer or tap.listening):
            return False
        return now - tap.asked_at > SPARE

    async def _stand_down(self, tap: Tap) -> None:
        await tap.stop_listening()
        if not await _is_missed(tap):
            return
        await self._empty(tap)

    async def _empty(self, tap: Tap) -> None:
        spare = tap.give_up_buffer()
        if spare:
            await self._give_back(spare)

    async def close(self) -> None:
        """Listen to nothing, and give back what nobody claimed. Ends the waits."""
        self._closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._link.connection is None:
            return
        async with self._filling:
            try:
                await all_of(tap.stop_listening() for tap in self._taps.values())
                for tap in self._taps.values():
                    await self._empty(tap)
            except (ChannelClosed, ConnectionLost):
                return

    def _levels(self, queues: Sequence[str]) -> list[list[Tap]]:
        """The taps of `queues`, the best priority first."""
        by_queue = [[self._tap(address) for address in self._topology.addresses(queue)] for queue in queues]
        return [list(taps) for taps in zip(*by_queue, strict=True)]

    def _tap(self, address: Address) -> Tap:
        tap = self._taps.get(address)
        if tap is None:
            name = self._topology.ready_queue(address)
            tap = self._taps[address] = Tap(
                self._link, address, name, self._by_epoch, self._on_change, self._fill_up
            )
        return tap


async def _is_missed(tap: Tap) -> bool:
    """Whether somebody else may be waiting for what is in the buffer of `tap`."""
    if not tap.buffer or time.monotonic() - tap.buffer[0].arrived > LONGEST_KEPT:
        return True
    return not (await _count_ready([tap])).get(tap)


async def _count_ready(taps: Sequence[Tap]) -> dict[Tap, int]:
    """Those of `taps` that exist, with what is ready there."""

    async def count(tap: Tap) -> int | None:
        try:
            return await tap.count_ready()
        except QueueMissing:
            return None

    counts = await all_of(count(tap) for tap in taps)
    return {tap: ready for tap, ready in zip(taps, counts, strict=True) if ready is not None}


def _shares(there: Sequence[int], limit: int) -> list[int]:
    """`limit` split over queues that have so many each: evenly, as far as each has."""
    shares = [0] * len(there)
    while limit > 0:
        hungry = [index for index, count in enumerate(there) if count > shares[index]]
        if not hungry:
            break
        each = max(1, limit // len(hungry))
        for index in hungry:
            share = min(each, there[index] - shares[index], limit)
            shares[index] += share
            limit -= share
    return shares

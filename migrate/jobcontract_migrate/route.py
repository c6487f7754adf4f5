"""What a client knows of where jobs live: asked for now and then, and believed in between.

Being late does no harm. A client that goes by an old route is refused by the store, in the statement that
would have stored or claimed, asks again, and goes where the jobs are. So nobody needs to be stopped, and a
control store that is away for a while stops nobody.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from jobcontract.errors import StoreError, StoreUnavailable
from jobcontract.side_doors import Gate, Gated
from jobcontract_migrate.control import ROUTE_HOLDS, Control, Move
from jobcontract_migrate.states import Phase, source_gate

_IDLE = 3.0
"""Seconds between looks while nothing moves."""
_WATCHFUL = 0.5
"""Seconds between looks during a migration. A step waits until each live client that claims has looked."""
_LONGEST_LOOK = 0.1
"""Seconds for which anybody waits for a look. It goes on by itself."""
_PAUSE = 0.05
PATIENCE = 30.0
"""Seconds for which a registration waits while the source is fenced. A fence holds for less: see
`Options.cutover_timeout`."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where jobs live."""

    epoch: int
    home: str
    """Where they are registered."""
    claimed: tuple[str, ...]
    """Where they are claimed."""
    consulted: str | None = None
    """Whose jobs and keys count too."""
    keys_copied: bool = True
    """`home` knows all keys of `consulted` by itself."""
    under_way: bool = False
    """A migration has begun and is not completed."""
    fenced: bool = False
    """Nothing is registered for a moment. Most stores know it themselves; a broker does not."""

    @property
    def stores(self) -> tuple[str, ...]:
        """All that have a part in it, `home` first."""
        return tuple(
            dict.fromkeys((self.home, *self.claimed, *((self.consulted,) if self.consulted else ())))
        )


class Routes:
    """The route as one client knows it, and its name among the clients. Safe in threads."""

    def __init__(self, control: Control, default: str, holds: Callable[[], Sequence[str]] = tuple) -> None:
        """`default` is where jobs live until somebody moves them; `holds` tells of which brokers jobs run
        here. Contacts nothing.
        """
        self._control = control
        self._holds = holds
        self._nobody_moved = Route(0, default, (default,))
        self._client = str(uuid4())
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._claims = False
        self._looking = threading.Lock()
        self._route: Route | None = None
        self._move: Move | None = None
        self._due = 0.0
        self._seen = 0.0

    def current(self, *, claims: bool = False, guess: bool = False) -> Route:
        """The route, no older than some seconds if the control store can be asked; `claims` when jobs are
        about to be claimed. With `guess`, what was never known is where jobs live until somebody moves them:
        for those whom that store will refuse.

        Raises `StoreError` when it was never known and can't be asked for.
        """
        known = self._route or (self._nobody_moved if guess else None)
        if claims and not self._claims:
            self._claims, self._due = True, 0.0  # at once: a step waits for those who claim
        if known is not None and _clock() < self._due:
            return known
        if not self._looking.acquire(blocking=known is None):
            return known or self._nobody_moved  # another thread is looking
        if known is not None:
            return self._look_aside(known)
        try:
            if self._route is None:
                self._look()
            return self._route or self._nobody_moved
        finally:
            self._looking.release()

    def _look_aside(self, known: Route) -> Route:
        """Look on another thread, and go by what is `known` when that takes long: the caller may be in a
        transaction of his own which holds the very file that the look is to be written down in.
        """
        failed: list[StoreError] = []

        def look() -> None:
            try:
                self._look()
            except StoreUnavailable:
                self._due = _clock() + _WATCHFUL
            except StoreError as error:
                failed.append(error)
            finally:
                self._looking.release()

        looking = threading.Thread(target=look, name="route", daemon=True)
        try:
            looking.start()
        except RuntimeError:  # the process ends
            self._looking.release()
            return known
        looking.join(_LONGEST_LOOK)
        if failed:
            raise failed[0]
        return self._route or known

    def trusted(self) -> Route:
        """The route, where the store that it leads to can't refuse whoever comes by an old one: no older than
        a client may be during a migration. Raises `StoreError` when it can't be asked for.
        """
        route = self.current()
        if _clock() - self._seen > ROUTE_HOLDS:
            with self._looking:  # who looks just now has looked then, or could not
                found = self._route
            if found is None or (found.under_way and _clock() - self._seen > ROUTE_HOLDS):
                return self.refresh()
            return found
        return route

    def refresh(self) -> Route:
        """The route as it is now. Raises `StoreError`."""
        with self._looking:
            self._look()
            return self._route or self._nobody_moved

    def mend(self, name: str, store: object) -> None:
        """The store called `name` has refused. Where the control store knows it open, open it; and lift a
        fence whose owner left it standing.
        """
        move = self._move
        if move is not None and move.fence_is_stale:
            self._control.lift_fence(move, "the fence ran out, and a client lifted it")
            self.refresh()
            move = self._move
        if move is None or not isinstance(store, Gated) or name != move.source:
            return
        wanted = source_gate(move.state, move.epoch)
        if wanted.intake and store.gate().epoch < move.epoch:
            # Its owner, or whoever lifted the fence, did not live to open it. A producer without the
            # privilege leaves it to those who have it.
            with suppress(StoreError):
                store.set_gate(Gate(move.epoch, wanted.intake, wanted.claims))

    def close(self) -> None:
        """Say goodbye."""
        with self._looking, suppress(StoreError):
            if self._route is not None and self._control.is_installed():
                self._control.leave(self._client)
        self._control.close()

    def _look(self) -> None:
        move, began = None, _clock()
        if self._control.is_installed():
            epoch = self._route.epoch if self._route else -1
            holds = self._holds()
            move = self._control.beat(self._client, self._name, epoch, self._claims, holds)
            if move is not None and move.epoch != epoch:
                # What it has seen now, it goes by from now on; and says so at once.
                self._route = _route(move)
                move = self._control.beat(self._client, self._name, move.epoch, self._claims, holds)
        self._move, self._seen = move, began
        self._route = self._nobody_moved if move is None else _route(move)
        self._due = _clock() + (_IDLE if move is None or move.is_over else _WATCHFUL)


class Patience:
    """The wait of one registration for a store to open."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._until: float | None = None

    def wait(self, name: str, store: object, refused: StoreUnavailable, *, sleep: bool = True) -> None:
        """Until it is worth another try. Raises `refused` when it took too long."""
        now = _clock()
        if self._until is None:
            self._until = now + PATIENCE
        elif now >= self._until:
            raise refused
        elif sleep:
            time.sleep(_PAUSE)
        self._routes.refresh()
        self._routes.mend(name, store)


def _route(move: Move) -> Route:
    return Route(
        move.epoch,
        move.home,
        move.claimed,
        move.consulted,
        move.keys_copied,
        under_way=not move.is_over,
        fenced=move.state is Phase.FENCING,
    )


def _clock() -> float:
    """Seconds that go on while the machine, or this process, is suspended: what was known before is old."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()

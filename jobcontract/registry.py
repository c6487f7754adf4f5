"""`get_backend`: from a name or a URL to a `Backend`, by configuration alone.

Drivers are found by the scheme of the URL among the entry points of group ``jobcontract.drivers``, so that a
stranger's driver needs nothing but to be installed. An entry point names a function ``open_driver(settings:
StoreSettings) -> Driver``, which contacts nothing yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from jobcontract.backend import Backend
from jobcontract.config import Settings, StoreSettings, load_settings
from jobcontract.contract import FEATURES, Driver, Feature
from jobcontract.errors import ConfigError, DriverNotInstalled

ENTRY_POINT_GROUP = "jobcontract.drivers"
_OWN_DRIVERS = "jobcontract_"

OUTBOX_ENTRY_POINT_GROUP = "jobcontract.outbox"
ROUTER_ENTRY_POINT_GROUP = "jobcontract.router"

DriverOpener = Callable[[StoreSettings], Driver]
OutboxComposer = Callable[[Driver, Driver, str, str], Driver]
"""``open_outbox(target, host, target_name, host_name)``: a driver that registers in a table of `host` and
does
all else on `target`; both are its to close. Raises `ConfigError` when `host` can't hold one."""

RoutedOpener = Callable[[Settings, StoreSettings, Callable[[StoreSettings], Driver]], Driver]
"""``open_routed(settings, default, open_store)``: a driver that finds out in the control store where jobs
live now, and uses that store; until somebody has moved them, `default`. Contacts nothing yet."""


def get_backend(
    name_or_url: str | None = None, *, require: Collection[Feature] = (), settings: Settings | None = None
) -> Backend:
    """The backend called `name_or_url` in the configuration, or at that URL, or the default one.

    Without a name, and with ``control`` configured, it is wherever jobs live: `jobctl migrate` moves them
    without a restart of those who hold it.

    Reads the configuration (unless `settings` are given) and loads the driver; contacts the store only when
    `require` names features that it must have. Raises `ConfigError` for anything wrong with the settings,
    `DriverNotInstalled` naming the extra to install, `Unsupported` when a required feature is missing,
    `StoreUnavailable` when it had to ask and got no answer.
    """
    unknown = set(require) - set(FEATURES)
    if unknown:
        raise ConfigError(f"require: {min(unknown)!r} is not a feature; known are: {', '.join(FEATURES)}")
    found = settings or load_settings()
    store = found.store(name_or_url)
    open_driver = _opener_of(store, found) if name_or_url else _default_opener(store, found)
    open_driver().close()  # nothing is contacted; a bad option fails here and not at first use
    backend = Backend(store.name, open_driver, max_input_ref_bytes=found.max_input_ref_bytes)
    if require:
        backend.require(require)
    return backend


def open_store(store: StoreSettings, settings: Settings) -> Driver:
    """The driver of `store`, behind the outbox that it is configured with, if it is. Contacts nothing."""
    return _opener_of(store, settings)()


def _default_opener(store: StoreSettings, settings: Settings) -> Callable[[], Driver]:
    """What opens the store in which jobs live, as the control store knows it."""
    if settings.control_store() is None:
        return _opener_of(store, settings)
    points = list(entry_points(group=ROUTER_ENTRY_POINT_GROUP))
    if not points:
        raise ConfigError(
            "control is set, and no installed package can follow it; install the whole of jobcontract"
        )
    open_routed = cast(RoutedOpener, points[0].load())
    return lambda: open_routed(settings, store, lambda each: open_store(each, settings))


def _opener_of(store: StoreSettings, settings: Settings) -> Callable[[], Driver]:
    """What opens the driver of `store`, behind the outbox that it is configured with, if it is."""
    opener = load_opener(store.url.scheme)
    host = settings.outbox_of(store)
    if host is None:
        return lambda: opener(store)
    open_host, compose = load_opener(host.url.scheme), load_outbox()
    return lambda: compose(opener(store), open_host(host), store.name, host.name)


def load_outbox() -> OutboxComposer:
    """What puts an outbox in front of a driver. Raises `ConfigError` when no package brings it."""
    points = list(entry_points(group=OUTBOX_ENTRY_POINT_GROUP))
    if not points:
        raise ConfigError(
            "a backend has the setting 'outbox', and no installed package brings one; "
            "install the whole of jobcontract"
        )
    try:
        return cast(OutboxComposer, points[0].load())
    except ImportError as error:
        raise DriverNotInstalled(_missing(points[0], error)) from None


def load_opener(scheme: str) -> DriverOpener:
    """The ``open_driver`` for URLs of `scheme`. Raises `ConfigError` for an unknown one, `DriverNotInstalled`
    when its client is missing.
    """
    known = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    point = known.get(scheme)
    if point is None:
        near = get_close_matches(scheme, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(known))}"
        raise ConfigError(f"no driver for {scheme!r} URLs is installed; {hint}")
    try:
        return cast(DriverOpener, point.load())
    except ImportError as error:
        raise DriverNotInstalled(_missing(point, error)) from None


def _missing(point: EntryPoint, error: ImportError) -> str:
    what = f"the driver for {point.name!r} URLs can't be loaded ({error})"
    if point.module.startswith(_OWN_DRIVERS):
        return f"{what}; run: pip install 'jobcontract[{point.module.removeprefix(_OWN_DRIVERS)}]'"
    return f"{what}; install what its package {point.dist.name if point.dist else point.module!r} needs"

"""The numbers of the stores for Prometheus, and a health probe: what ``jobctl metrics`` serves.

Read from the stores themselves, when somebody asks, so that one endpoint speaks for all processes, and for
jobs that no process works on. Which metrics there are stands in `FAMILIES`; docs/monitoring has a dashboard
and alerts made of them.

prometheus-client is an extra: it writes the format, with all of its escapes and versions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jobcontract.backend import Backend
from jobcontract.errors import JobContractError
from jobcontract.observation import Observation, Rates, observe

FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "jobcontract_up": ("Whether the backend could be read: 1 or 0", ("backend",)),
    "jobcontract_look_seconds": ("How long reading the backend took", ("backend",)),
    "jobcontract_jobs": (
        "Jobs by state; a store that counts by reading stops at 100001",
        ("backend", "queue", "state"),
    ),
    "jobcontract_leases_expired": (
        "Running jobs whose lease ran out, and that no worker has taken back yet",
        ("backend", "queue"),
    ),
    "jobcontract_oldest_ready_seconds": (
        "How long the job that has been due the longest has been waiting; 0 when none is",
        ("backend", "queue"),
    ),
    "jobcontract_jobs_done_per_second": (
        "Jobs completed per second, over about ten seconds or since the last look",
        ("backend", "queue"),
    ),
    "jobcontract_queue_paused": ("Whether claims skip the queue: 1 or 0", ("backend", "queue")),
    "jobcontract_outbox_jobs": (
        "Jobs in the outbox in front of the backend, by state; counting stops at 10001",
        ("backend", "state"),
    ),
    "jobcontract_outbox_oldest_seconds": (
        "How long the job that has been due the longest waits to be published; 0 when none does",
        ("backend",),
    ),
}
"""Name, meaning and labels of each metric. All are gauges."""

_FRESH = 1.0
"""Seconds for which what was seen is not asked for again: two scrapers shall not cost twice."""
_AT_ONCE = 8


@dataclass
class _Watched:
    backend: Backend
    rates: Rates = field(default_factory=Rates)
    seen: Observation | None = None
    error: str = ""
    seconds: float = 0.0
    done: dict[str, float] = field(default_factory=dict[str, float])

    def look(self) -> None:
        started = time.monotonic()
        try:
            self.seen, self.error = observe(self.backend), ""
            self.done = self.rates.of(self.seen)
        except JobContractError as error:
            self.seen, self.error = None, str(error)
            self.rates.forget()
        self.seconds = time.monotonic() - started


class Exporter(Collector):
    """Looks at `backends` when it is asked, all at the same time. Safe in threads."""

    def __init__(self, backends: Iterable[Backend]) -> None:
        """Contacts nothing."""
        self._watched = [_Watched(backend) for backend in backends]
        self._looking = threading.Lock()
        self._looked_at = -_FRESH
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format. Blocks for the stores; raises nothing of theirs."""
        return generate_latest(self._registry)

    def ailing(self) -> dict[str, str]:
        """The backends that can't be read, and why. Empty when all is well. Blocks for the stores."""
        return {each.backend.name: each.error for each in self._look() if each.error}

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """As prometheus-client wants it, without contacting anything."""
        return _families().values()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """As prometheus-client wants it."""
        families = _families()
        for each in self._look():
            name = each.backend.name
            families["jobcontract_up"].add_metric([name], 0.0 if each.error else 1.0)
            families["jobcontract_look_seconds"].add_metric([name], each.seconds)
            if each.seen is not None:
                _add_queues(families, name, each.seen, each.done)
                _add_outbox(families, name, each.seen)
        return families.values()

    def _look(self) -> Sequence[_Watched]:
        with self._looking:
            if time.monotonic() - self._looked_at >= _FRESH:
                with ThreadPoolExecutor(_AT_ONCE) as pool:
                    for _ in pool.map(_Watched.look, self._watched):
                        pass
                self._looked_at = time.monotonic()
            return self._watched


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(name, meaning, labels=list(labels))
        for name, (meaning, labels) in FAMILIES.items()
    }


def _add_queues(
    families: dict[str, GaugeMetricFamily], name: str, seen: Observation, done: dict[str, float]
) -> None:
    for each in seen.queues or []:
        counts = {
            "ready": each.ready,
            "scheduled": each.scheduled,
            "running": each.running,
            "dead": each.dead,
            "done": each.done,
            "cancelled": each.cancelled,
        }
        for state, count in counts.items():
            if count is not None:
                families["jobcontract_jobs"].add_metric([name, each.queue, state], count)
        labels = [name, each.queue]
        oldest = 0.0 if each.oldest_ready is None else each.oldest_ready.total_seconds()
        families["jobcontract_leases_expired"].add_metric(labels, each.expired)
        families["jobcontract_oldest_ready_seconds"].add_metric(labels, oldest)
        families["jobcontract_queue_paused"].add_metric(labels, float(each.paused))
        if each.queue in done:
            families["jobcontract_jobs_done_per_second"].add_metric(labels, done[each.queue])


def _add_outbox(families: dict[str, GaugeMetricFamily], name: str, seen: Observation) -> None:
    outbox = seen.outbox
    if outbox is None:
        return
    for state in ("due", "held_up", "scheduled", "parked"):
        families["jobcontract_outbox_jobs"].add_metric([name, state], getattr(outbox, state))
    oldest = 0.0 if outbox.oldest is None else outbox.oldest.total_seconds()
    families["jobcontract_outbox_oldest_seconds"].add_metric([name], oldest)

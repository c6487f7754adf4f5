"""jobcontract on any store: the worker of `jobctl worker` with its defaults, a handler with a typed input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from benchmarks.side_by_side.programs import stage
from jobcontract import Handlers, JobInput, get_backend
from jobcontract.worker import Worker


class Noop(JobInput, kind="noop"):
    """What every contestant's jobs carry."""

    number: int
    sent: int


def prepare(url: str) -> None:
    """Create the schema, or the topology."""
    with get_backend(url) as backend:
        backend.install()


def register(url: str, registering: stage.Registering) -> None:
    """One by one, or through `register_many`."""
    with get_backend(url) as backend:

        def many(jobs: Sequence[stage.Input]) -> None:
            backend.register_many([Noop(**job) for job in jobs])

        def future(jobs: Sequence[stage.Input]) -> None:
            due = datetime.now(UTC) + timedelta(days=1)
            backend.register_many([Noop(**job).to_job(priority=9, run_at=due) for job in jobs])

        registering.run(one=lambda job: backend.register(Noop(**job)), many=many, future=future)


def work(url: str, mark: Callable[[int], None]) -> None:
    """A worker with the default options."""
    handlers = Handlers()

    @handlers.handler(Noop)
    def noop(input: Noop) -> None:
        mark(input.sent)

    with get_backend(url) as backend:
        Worker(backend, handlers).run()


if __name__ == "__main__":
    stage.main(prepare, register, work)

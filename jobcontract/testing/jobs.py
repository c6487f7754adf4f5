"""The jobs of a backend, as a test asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from jobcontract.backend import Backend
from jobcontract.contract import Job, State
from jobcontract.handlers import Handlers
from jobcontract.testing.drain import Drained, drain
from jobcontract.testing.memory import MemoryBackend

_PAGE = 500


class Jobs:
    """The jobs of `backend`, which has to be able to look them up."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        """What the application under test registers with."""

    @classmethod
    def in_memory(cls) -> Self:
        """Those of an empty `MemoryBackend`."""
        return cls(MemoryBackend())

    def registered(
        self,
        *,
        kind: str | None = None,
        input_ref: Mapping[str, object] | None = None,
        queue: str | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        state: State | None = None,
    ) -> list[Job]:
        """The jobs that were registered, whatever became of them, oldest first; those that fit.

        `input_ref` and `headers` fit a job that has all of their entries, and perhaps more.
        """
        found: list[Job] = []
        cursor: str | None = None
        while page := self.backend.jobs(
            kind=kind, queue=queue, idempotency_key=idempotency_key, state=state, limit=_PAGE, cursor=cursor
        ):
            found += [each.job for each in page if each.job is not None]
            cursor = page[-1].cursor
        return [
            job
            for job in reversed(found)
            if _has_all(job.input_ref, input_ref) and _has_all(job.headers, headers)
        ]

    def assert_registered(
        self,
        *,
        kind: str | None = None,
        input_ref: Mapping[str, object] | None = None,
        queue: str | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        state: State | None = None,
        times: int | None = None,
    ) -> Job:
        """The first job that fits as in `registered`. Raises `AssertionError`, which lists what there is,
        when there is none, or when there are not exactly `times`.
        """
        __tracebackhide__ = True
        found = self.registered(
            kind=kind,
            input_ref=input_ref,
            queue=queue,
            idempotency_key=idempotency_key,
            headers=headers,
            state=state,
        )
        if not found or times not in (None, len(found)):
            wanted = "a job" if times is None else f"{times} jobs"
            raise AssertionError(
                f"{wanted} should fit, and {len(found)} do; registered are:\n{self._listed()}"
            )
        return found[0]

    def assert_not_registered(
        self,
        *,
        kind: str | None = None,
        input_ref: Mapping[str, object] | None = None,
        queue: str | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        state: State | None = None,
    ) -> None:
        """Raises `AssertionError` when a job fits as in `registered`."""
        __tracebackhide__ = True
        found = self.registered(
            kind=kind,
            input_ref=input_ref,
            queue=queue,
            idempotency_key=idempotency_key,
            headers=headers,
            state=state,
        )
        if found:
            raise AssertionError(
                f"no job should fit, and {len(found)} do, the first of them {_line(found[0])}"
            )

    def drain(
        self, handlers: Handlers, *, queues: Sequence[str] | None = None, scheduled: bool = False
    ) -> Drained:
        """`jobcontract.testing.drain`."""
        return drain(self.backend, handlers, queues=queues, scheduled=scheduled)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.backend.close()

    def _listed(self) -> str:
        return "\n".join(f"  {_line(job)}" for job in self.registered()) or "  nothing"


def _has_all(whole: Mapping[str, object], part: Mapping[str, object] | None) -> bool:
    return part is None or all(name in whole and whole[name] == value for name, value in part.items())


def _line(job: Job) -> str:
    key = "" if job.idempotency_key is None else f", idempotency_key={job.idempotency_key!r}"
    return f"kind={job.kind!r}, input_ref={job.input_ref!r}, queue={job.queue!r}{key}"

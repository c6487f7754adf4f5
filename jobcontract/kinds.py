"""Typed inputs: a kind of job as a pydantic model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from jobcontract.contract import Job
from jobcontract.errors import ConfigError, InvalidJob


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """What every job of a typed input starts from: the keywords of its class statement."""

    kind: str
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 5


class JobInput(BaseModel):
    """Base of typed inputs::

        class EmbedDocument(JobInput, kind="embed_document", queue="embeddings"):
            document_id: int
            model_version: str

            def idempotency_key(self) -> str:
                return f"{self.document_id}:{self.model_version}"

    `kind` is required; `queue`, `priority` and `max_attempts` are the defaults of its jobs. A wrong
    one raises `ConfigError` when the class is made. Fields shared by several kinds belong into a plain
    `BaseModel` that each of them inherits too.

    Unknown fields are refused: a worker that is older than its producers would otherwise run a job
    without an option that it does not know. Deploy workers before producers, or say otherwise in the
    class's own `model_config`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    job_defaults: ClassVar[JobDefaults]

    def __init_subclass__(
        cls,
        *,
        kind: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = 5,
        **keywords: Any,  # Any: pydantic's own class keywords (frozen=..., strict=...) pass through
    ) -> None:
        super().__init_subclass__(**keywords)
        if kind is None:
            raise ConfigError(
                f'{cls.__name__}: a kind is required; write class {cls.__name__}(JobInput, kind="...")'
            )
        try:
            Job(kind=kind, queue=queue, priority=priority, max_attempts=max_attempts)
        except InvalidJob as error:
            raise ConfigError(f"{cls.__name__}: {error}") from None
        cls.job_defaults = JobDefaults(kind, queue, priority, max_attempts)

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:  # Any: the signature is pydantic's
        super().__pydantic_init_subclass__()
        for name in ("idempotency_key", "to_job", "job_defaults"):
            if name in cls.model_fields:
                raise ConfigError(
                    f"{cls.__name__}: {name} can't be a field, every JobInput has such a member"
                )

    def idempotency_key(self) -> str | None:
        """The name under which the job is unique in its queue. None, unless a subclass says otherwise."""
        return None

    def to_job(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Job:
        """A new job with this input. What is None comes from the class. Raises `InvalidJob`; never blocks."""
        defaults = self.job_defaults
        return Job(
            kind=defaults.kind,
            input_ref=self.model_dump(mode="json", by_alias=True),
            idempotency_key=self.idempotency_key(),
            queue=defaults.queue if queue is None else queue,
            priority=defaults.priority if priority is None else priority,
            run_at=run_at,
            max_attempts=defaults.max_attempts if max_attempts is None else max_attempts,
            headers=dict(headers or {}),
        )

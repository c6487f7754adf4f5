"""Requests to stop jobs that run: one note, which the workers of the store read now and then.

A request names a job and the attempt that was seen running, so that it never meets a later run of the job. It
is forgotten after an hour, by when its worker has seen it, or is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

NOTE = "stop"
_KEPT_FOR = timedelta(hours=1)
_MOST = 400


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True)

    attempt: int
    at: AwareDatetime


class StopRequests(BaseModel):
    """What the note says."""

    model_config = ConfigDict(frozen=True)

    jobs: dict[str, _Request] = {}

    @classmethod
    def read(cls, text: str | None) -> StopRequests:
        """Of a note; none where it can't be read, for it holds nothing that lasts."""
        try:
            return cls() if text is None else cls.model_validate_json(text)
        except ValidationError:
            return cls()

    def with_these(self, attempts: Mapping[str, int], now: datetime) -> StopRequests:
        """With requests for these jobs, in the attempts that run; without those that are old, or too many."""
        young = {job: each for job, each in self.jobs.items() if now - each.at < _KEPT_FOR}
        all_of_them = {**young, **{job: _Request(attempt=n, at=now) for job, n in attempts.items()}}
        return StopRequests(jobs=dict(list(all_of_them.items())[-_MOST:]))

    def asks_for(self, job_id: str, attempt: int) -> bool:
        """Whether this run of the job shall stop."""
        request = self.jobs.get(job_id)
        return request is not None and request.attempt == attempt

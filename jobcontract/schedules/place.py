"""How far a schedule has come: what the schedulers of all processes, past and present, tell each other.

It is a note in the store that holds the schedule's jobs and their keys (`Notes`; the outbox's database where
there is an outbox). Each tick up to `last` was inserted, or lies in a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from jobcontract.errors import StoreError

MOST_GAPS = 500
_VERSION = 1


class Gap(NamedTuple):
    """No tick in (after, until] was inserted."""

    after: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one schedule. Instants are those of the store's clock."""

    last: datetime
    gaps: tuple[Gap, ...] = ()
    """In order, apart from each other; at most `MOST_GAPS`, the latest of them."""

    def come_to(self, now: datetime, gap: Gap | None = None) -> Self:
        """The place once all ticks up to `now` are inserted, but those in `gap`."""
        gaps = self.gaps
        if gap is not None:
            if gaps and gaps[-1].until == gap.after:
                gaps, gap = gaps[:-1], Gap(gaps[-1].after, gap.until)
            gaps = (*gaps, gap)[-MOST_GAPS:]
        return replace(self, last=now, gaps=gaps)

    def without(self, after: datetime, until: datetime) -> Self:
        """The place once the gaps in (after, until] are closed."""
        return replace(self, gaps=tuple(self._left(after, until)))

    def _left(self, after: datetime, until: datetime) -> Iterator[Gap]:
        for gap in self.gaps:
            before, behind = Gap(gap.after, min(gap.until, after)), Gap(max(gap.after, until), gap.until)
            yield from (part for part in (before, behind) if part.after < part.until)

    def text(self) -> str:
        """As the note says it."""
        return _Note(v=_VERSION, last=self.last, gaps=list(self.gaps)).model_dump_json()

    @classmethod
    def read(cls, name: str, text: str) -> Self:
        """What a note says. Raises `StoreError` for one that is none of ours, or of a later version."""
        try:
            note = _Note.model_validate_json(text)
        except ValidationError:
            note = None
        if note is None or note.v != _VERSION:
            raise StoreError(
                f"the note {name!r} can't be read by this jobcontract; upgrade it, or delete the note to let "
                "the schedule begin anew"
            )
        return cls(
            note.last.astimezone(UTC),
            tuple(Gap(*(each.astimezone(UTC) for each in gap)) for gap in note.gaps),
        )


class _Note(BaseModel):
    model_config = ConfigDict(frozen=True)

    v: int
    last: AwareDatetime
    gaps: list[tuple[AwareDatetime, AwareDatetime]]

"""A promise that was broken."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.history import Operation

ACKNOWLEDGED = "was acknowledged and "


@dataclass(frozen=True, slots=True)
class Violation:
    """Which promise, of whom, why, and where in the history."""

    promise: int
    subject: str
    """The id of a job, a key, or the name of a process."""
    says: str
    where: tuple[Operation, ...] = ()

    @property
    def is_loss(self) -> bool:
        """An acknowledged job is gone, or waits for ever."""
        return self.promise == 1 and self.says.startswith(ACKNOWLEDGED)

    def __str__(self) -> str:
        where = f" [{', '.join(map(str, self.where))}]" if self.where else ""
        return f"promise {self.promise}, {self.subject}: {self.says}{where}"

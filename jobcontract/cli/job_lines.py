"""Files of jobs, one JSON object per line, read twice so that all is checked before any is sent.

The first pass checks every line; the second reads the same bytes again and hands the jobs over in batches.
Memory stays flat. What can't be read twice, a pipe, is copied to a temporary file first.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, BinaryIO, NamedTuple, cast

from jobcontract.cli.exits import CommandFailed
from jobcontract.cli.strict_json import NotJson, read_object
from jobcontract.contract import Job
from jobcontract.errors import InvalidJob, JobContractError, StoreError

EXPORTED = "exported"
"""A key of a line that is not read: what `jobctl dead export` says about the job's past."""

_MOST_BAD_LINES = 10
_MOST_BATCH_BYTES = 4 * 1024 * 1024
_CHUNK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class BadLine(NamedTuple):
    """A line that is not a job, and why."""

    number: int
    reason: str


class NumberedJob(NamedTuple):
    """A job and the line it stands on, counted from 1."""

    number: int
    job: Job


@dataclass
class Checked:
    """What the first pass found."""

    jobs: int = 0
    nameless: int = 0
    """Jobs whose line has neither an id nor an idempotency key: registered anew each time they are sent."""
    bad: int = 0
    first_bad: list[BadLine] = field(default_factory=list[BadLine])
    """The first few of the bad lines."""


class JobLines:
    """The lines of a seekable stream, from where it stands now; each has at most `longest` bytes."""

    def __init__(self, stream: BinaryIO, longest: int) -> None:
        self._stream = stream
        self._start = stream.tell()
        self._end = self._start
        self._longest = longest

    @property
    def size(self) -> int:
        """How many bytes there are to read now."""
        return max(0, self._stream.seek(0, os.SEEK_END) - self._start)

    def check(self, accept: Callable[[Job], None], advance: Callable[[int], None]) -> Checked:
        """The first pass. `accept` raises a `JobContractError` for a job that the store would refuse.

        Finds all bad lines; remembers the first few. `advance` is told the bytes that were read. Raises
        `StoreError` when `accept` does.
        """
        found = Checked()
        for number, line in self._lines(None):
            advance(len(line))
            if not line.strip():
                continue
            try:
                fields = self._fields(line)
                job = Job(**fields)
                accept(job)
            except StoreError:
                raise
            except (JobContractError, NotJson) as error:
                found.bad += 1
                if len(found.first_bad) < _MOST_BAD_LINES:
                    found.first_bad.append(BadLine(number, str(error)))
                continue
            found.jobs += 1
            found.nameless += not ("id" in fields or job.idempotency_key is not None)
        self._end = self._stream.tell()
        return found

    def batches(self, most: int) -> Iterator[list[NumberedJob]]:
        """The second pass: what `check` saw, at most `most` jobs and a few megabytes at a time."""
        batch: list[NumberedJob] = []
        size = 0
        for number, line in self._lines(self._end):
            if not line.strip():
                continue
            try:
                batch.append(NumberedJob(number, Job(**self._fields(line))))
            except (InvalidJob, NotJson) as error:
                raise CommandFailed(f"line {number} was changed since it was checked: {error}") from None
            size += len(line)
            if len(batch) >= most or size >= _MOST_BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _lines(self, end: int | None) -> Iterator[tuple[int, bytes]]:
        self._stream.seek(self._start)
        number = 0
        left = sys.maxsize if end is None else end - self._start
        while left > 0:
            line = self._stream.readline(min(left, self._longest + 1))
            if not line:
                return
            left -= len(line)
            number += 1
            if len(line) > self._longest and not line.endswith(b"\n"):
                left -= self._skip_line(left)
            yield number, line.removeprefix(_BOM) if number == 1 else line

    def _skip_line(self, most: int) -> int:
        """Read to the end of the line, at most `most` bytes; how many it were."""
        skipped = 0
        while skipped < most:
            rest = self._stream.readline(min(most - skipped, _CHUNK))
            skipped += len(rest)
            if not rest or rest.endswith(b"\n"):
                break
        return skipped

    def _fields(self, line: bytes) -> dict[str, Any]:  # Any: `Job` checks what they are
        if len(line) > self._longest:
            raise NotJson(f"has more than {self._longest:,} bytes, more than any job needs")
        try:
            text = line.rstrip(b"\r\n").decode()  # a column is told within the line
        except UnicodeDecodeError as error:
            raise NotJson(f"is not UTF-8 (at byte {error.start + 1})") from None
        fields = cast("dict[str, Any]", read_object(text))
        fields.pop(EXPORTED, None)
        return fields


@contextmanager
def open_lines(name: str, longest: int) -> Generator[JobLines]:
    """The lines of the file called `name`, "-" for standard input. Blocks until a pipe was copied to its end.

    Raises `OSError` when the file can't be read, `CommandFailed` when the copy can't be written.
    """
    with _open(name) as stream:
        if _is_file(stream):
            yield JobLines(stream, longest)
            return
        # Readable by nobody else, and gone with the process: it has no name.
        with tempfile.TemporaryFile(prefix="jobctl-") as copy:
            _copy(stream, copy)
            yield JobLines(cast(BinaryIO, copy), longest)


@contextmanager
def _open(name: str) -> Generator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    with open(name, "rb") as stream:
        yield stream


def _is_file(stream: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # not backed by a file descriptor
        return False


def _copy(stream: BinaryIO, copy: IO[bytes]) -> None:
    while chunk := stream.read(_CHUNK):
        try:
            copy.write(chunk)
        except OSError as error:
            raise CommandFailed(
                f"the pipe can't be copied to a file in {tempfile.gettempdir()} ({error.strerror}); "
                "set TMPDIR to a folder with more room"
            ) from None
    copy.seek(0)

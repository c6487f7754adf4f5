"""Job ids: UUIDv7, unique, in the order in which they were made."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from uuid import RFC_4122, UUID

import pytest

from jobcontract.identifiers import new_job_id, read_job_id


def milliseconds(identifier: UUID) -> int:
    return identifier.int >> 80


def test_an_id_is_a_uuid_version_7_of_now() -> None:
    before = time.time_ns() // 1_000_000
    identifier = new_job_id()
    after = time.time_ns() // 1_000_000
    assert (identifier.version, identifier.variant) == (7, RFC_4122)
    assert before <= milliseconds(identifier) <= after


def test_ids_of_one_thread_sort_by_the_quarter_microsecond_in_which_they_were_made() -> None:
    identifiers = [new_job_id() for _ in range(20_000)]
    instants = [identifier.int >> 64 for identifier in identifiers]
    assert instants == sorted(instants)


def test_ids_of_many_threads_differ() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(new_job_id) for _ in range(20_000)]
    identifiers = {each.result() for each in made}
    assert len(identifiers) == 20_000


def test_a_fork_does_not_repeat_its_parents_ids() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        os.write(write, b"".join(new_job_id().bytes for _ in range(100)))
        os._exit(0)
    os.close(write)
    ours = {new_job_id().bytes for _ in range(100)}
    received = b""
    while block := os.read(read, 4096):
        received += block
    os.close(read)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    theirs = {received[start : start + 16] for start in range(0, len(received), 16)}
    assert len(theirs) == 100
    assert not ours & theirs


def _upper(job_id: UUID) -> str:
    return str(job_id).upper()


@pytest.mark.parametrize("write", [str, attrgetter("hex"), _upper])
def test_an_id_is_read_as_the_uuid_that_python_reads(write: Callable[[UUID], str]) -> None:
    job_id = new_job_id()
    read = read_job_id(write(job_id))
    assert read == job_id
    assert (type(read), hash(read), read.is_safe, str(read)) == (
        UUID,
        hash(job_id),
        job_id.is_safe,
        str(job_id),
    )
    assert pickle.loads(pickle.dumps(read)) == job_id  # noqa: S301  # our own bytes


@pytest.mark.parametrize("text", ["", "1234", "z" * 32, "0" * 33, f"urn:uuid:{UUID(int=1)}"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"32 hexadecimal digits|invalid literal"):
        read_job_id(text)

"""The physical limit on Redis: the driver's own scripts through a plain client, arguments ready.

It claims 100 and completes 100, and registers by the script too. Nothing is decoded, validated, renewed,
rescued or waited for.
"""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import redis
from jobcontract_redis import open_driver
from jobcontract_redis.bodies import registration_words
from jobcontract_redis.scripts import CLAIM, COMPLETE, REGISTER, Script

from benchmarks.side_by_side.programs import stage
from jobcontract.config import StoreSettings
from jobcontract.contract import JobRecord
from jobcontract.identifiers import new_job_id
from jobcontract.url import StoreURL

BATCH = 100
PREFIX = "{jobcontract:default}:"
LEASE_MS = timedelta(minutes=2) // timedelta(milliseconds=1)
RETENTION_MS = timedelta(days=1) // timedelta(milliseconds=1)


class Scripts:
    """The scripts on one connection."""

    def __init__(self, url: str) -> None:
        self._client = cast(Any, redis.Redis).from_url(url, protocol=2)
        for script in (REGISTER, CLAIM, COMPLETE):
            self._client.script_load(script.source)

    def run(self, script: Script, *arguments: object) -> Any:
        keys = [PREFIX + name for name in script.keys]
        return self._client.execute_command("EVALSHA", script.digest, len(keys), *keys, *arguments)


def prepare(url: str) -> None:
    """The driver's own keys."""
    with closing(open_driver(StoreSettings("bare", StoreURL.parse(url)))) as driver:
        driver.install()


def register(url: str, registering: stage.Registering) -> None:
    """The script of `register`, a call for 100 jobs."""
    scripts = Scripts(url)

    def many(jobs: Sequence[stage.Input]) -> None:
        for start in range(0, len(jobs), BATCH):
            send([_record(job) for job in jobs[start : start + BATCH]])

    def future(jobs: Sequence[stage.Input]) -> None:
        due = datetime.now(UTC) + timedelta(days=1)
        for start in range(0, len(jobs), BATCH):
            batch = jobs[start : start + BATCH]
            send([_record(job)._replace(priority=9, run_at=due) for job in batch])

    def send(records: Sequence[JobRecord]) -> None:
        scripts.run(REGISTER, PREFIX, *(word for record in records for word in registration_words(record)))

    registering.run(one=lambda job: many([job]), many=many, future=future)


def _record(job: stage.Input) -> JobRecord:
    return JobRecord(str(new_job_id()), "noop", "default", 0, None, 5, None, None, json.dumps(job), None)


def work(url: str, mark: Callable[[int], None]) -> None:
    """Claim, mark, complete."""
    stopped = False

    def stop(*_: Any) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    scripts = Scripts(url)
    while not stopped:
        nonce = secrets.token_hex(16)
        claimed = scripts.run(CLAIM, PREFIX, BATCH, LEASE_MS, nonce)[1:]
        if not claimed:
            time.sleep(0.001)
            continue
        for text in claimed:
            mark(int(text[text.index(b'"sent": ') + 8 :].split(b"}")[0]))
        words = [word for at, text in enumerate(claimed, start=1) for word in (text[:36], f"{nonce}:{at}")]
        scripts.run(COMPLETE, PREFIX, RETENTION_MS, *words)


if __name__ == "__main__":
    stage.main(prepare, register, work)

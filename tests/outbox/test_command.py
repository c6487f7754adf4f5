"""``jobctl relay``: the daemon, on a terminal and in a pipe; one pass; the health probe; parked jobs."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from jobcontract import Job
from tests.outbox.stage import Stage, drain_until, ids, jobs, until


def run(stage: Stage, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `jobctl`."""
    with stage.process(*arguments) as process:
        out, error = process.communicate()
        return process.returncode, out, error


def spoil(stage: Stage) -> None:
    """Make what waits unreadable, so that it is refused."""
    stage.sql("UPDATE {outbox} SET envelope = 'no job'")


def test_once_publishes_what_is_due_and_ends(stage: Stage) -> None:
    stage.backend().register_many([*jobs(3), Job(kind="work", run_at=datetime.now(UTC) + timedelta(hours=1))])
    code, out, _ = run(stage, "relay", "--once", "--batch", "2")
    assert (code, out) == (0, "redis: 3 jobs published\n")
    assert len(drain_until(stage.backend(), 3)) == 3


def test_a_daemon_publishes_what_comes_and_ends_in_order(stage: Stage) -> None:
    with stage.process("relay") as relay:
        for _ in range(3):
            job = Job(kind="work")
            stage.backend().register(job)
            assert ids(drain_until(stage.backend(), 1)) == [job.id]
        relay.send_signal(signal.SIGTERM)
        out, error = relay.communicate(timeout=30)
    assert (relay.returncode, out) == (0, "")
    assert "relaying to redis" in error
    assert "stopped; published 3" in error


def test_on_a_terminal_there_is_a_line_for_each_target(stage: Stage) -> None:
    stage.backend().register(Job(kind="work", run_at=datetime.now(UTC) + timedelta(hours=1)))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "jobcontract", "relay"],
        cwd=stage.folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as relay:
        os.close(theirs)
        shown = ""

        def shows(text: str) -> bool:
            nonlocal shown
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 65536).decode()
            return text in shown

        try:
            for text in ("TARGET", "PUBLISHED/S", "OLDEST", "PENDING", "PARKED", "redis", "idle"):
                until(lambda text=text: shows(text))  # type: ignore[misc]
            relay.send_signal(signal.SIGINT)
            until(lambda: shows("stopped; published 0"))
            relay.wait(30)
        finally:
            relay.kill()
    os.close(ours)
    assert relay.returncode == 0


def test_the_check_fails_while_a_due_job_waits_for_too_long(stage: Stage) -> None:
    code, _, _ = run(stage, "relay", "--check")
    assert code == 0
    stage.backend().register(Job(kind="work"))
    assert run(stage, "relay", "--check", "--max-age", "1h")[0] == 0
    code, out, error = run(stage, "relay", "--check", "--max-age", "1ms", "--json")
    assert code == 1
    assert error.startswith("Error: a job for 'redis' has been due for ")
    (found,) = json.loads(out)
    assert (found["target"], found["pending"], found["parked"], found["ok"]) == ("redis", 1, 0, False)
    assert found["oldest_seconds"] > 0
    stage.publish()
    assert run(stage, "relay", "--check", "--max-age", "1ms")[0] == 0


def test_the_check_sees_a_refused_job_that_waits_for_its_next_try(stage: Stage) -> None:
    stage.backend().register(Job(kind="work"))
    spoil(stage)
    stage.publish()
    assert stage.sql("SELECT attempts FROM {outbox}") == [(1,)]
    assert run(stage, "relay", "--check", "--max-age", "1ms")[0] == 1


def test_the_check_sees_jobs_for_a_backend_that_is_configured_no_more(stage: Stage) -> None:
    stage.backend().register(Job(kind="work"))
    renamed = stage.file.read_text().replace("[backends.redis]", "[backends.valkey]")
    stage.file.write_text(renamed)
    code, _, error = run(stage, "relay", "--check", "--max-age", "1ms")
    assert code == 1
    assert "no relay publishes it" in error
    assert run(stage, "relay", "--check", "--max-age", "1ms", "--target", "valkey")[0] == 0


def test_parked_jobs_are_listed_and_shown_with_the_reason(stage: Stage) -> None:
    job = Job(kind="work", headers={"ordering-key": "a"})
    stage.backend().register(job)
    spoil(stage)
    stage.publish(attempts=1)
    code, out, _ = run(stage, "relay", "parked", "list")
    assert code == 0
    assert str(job.id) in out
    assert "the envelope is not JSON" in out
    code, out, _ = run(stage, "relay", "parked", "show", str(job.id), "--json")
    assert code == 0
    (found,) = json.loads(out)
    assert (found["id"], found["target"], found["attempts"], found["ordering_key"]) == (
        str(job.id),
        "redis",
        1,
        "a",
    )
    unknown = Job(kind="work").id
    assert run(stage, "relay", "parked", "show", str(unknown)) == (3, "", f"{unknown} is not parked\n")


def test_published_jobs_are_forgotten_after_the_retention(stage: Stage) -> None:
    backend = stage.backend()
    old = [Job(kind="work", idempotency_key=str(number)) for number in range(3)]
    backend.register_many(old)
    stage.publish()
    waiting = Job(kind="work", idempotency_key="w", run_at=datetime.now(UTC) + timedelta(hours=1))
    backend.register(waiting)
    relay = stage.relay(retention=timedelta(milliseconds=1))
    (loop,) = relay.loops
    until(lambda: not loop.prune() and stage.sql("SELECT count(*) FROM {outbox_jobs}") == [(1,)])
    again = [Job(kind="work", idempotency_key=key) for key in ("0", "w")]
    assert [answer.created for answer in backend.register_many(again)] == [True, False]


@pytest.mark.parametrize("arguments", [["--once", "--check"], ["--json"], ["--backend", "redis"]])
def test_options_that_contradict_each_other_are_refused(stage: Stage, arguments: list[str]) -> None:
    assert run(stage, "relay", *arguments)[0] == 2


def test_the_configuration_is_shown_with_the_outbox(stage: Stage) -> None:
    code, out, _ = run(stage, "config", "show", "--json")
    shown = json.loads(out)
    assert (code, shown["backends"]["redis"]["outbox"]) == (0, "host")
    assert (shown["relay"]["attempts"], shown["relay"]["batch"]) == (10, 500)

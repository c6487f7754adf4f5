"""`jobctl register --from-file`: a file of jobs, wholly or not at all."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from jobcontract import Backend, State
from tests.cli.conftest import Ran, Run, put
from tests.cli.process import Process, until


def lines(*jobs: object) -> str:
    return "".join((job if isinstance(job, str) else json.dumps(job)) + "\n" for job in jobs)


def numbered(count: int) -> str:
    return lines(*({"kind": "k", "input_ref": {"n": n}, "idempotency_key": str(n)} for n in range(count)))


def test_each_line_becomes_a_job(run: Run, backend: Backend, folder: Path) -> None:
    job_id = "0197b3a2-0000-7000-8000-000000000001"
    (folder / "jobs.jsonl").write_text(
        lines(
            {"kind": "a", "id": job_id, "input_ref": {"n": 1}, "headers": {"t": "x"}},
            {"kind": "b", "queue": "mail", "priority": 3, "max_attempts": 9, "idempotency_key": "k"},
            {"kind": "c", "run_at": "2030-01-31T06:00:00Z"},
        )
    )
    assert run("register", "--from-file", "jobs.jsonl") == Ran(0, "registered 3 jobs\n", "")
    found = {job.kind: job for job in backend.jobs()}
    assert found["a"].id == UUID(job_id)
    jobs = {kind: status.job for kind, status in found.items() if status.job is not None}
    assert jobs["a"].headers == {"t": "x"}
    assert (jobs["b"].queue, jobs["b"].priority, jobs["b"].max_attempts) == ("mail", 3, 9)
    assert jobs["b"].idempotency_key == "k"
    assert jobs["c"].run_at == datetime(2030, 1, 31, 6, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "\n", " \r\n\n"], ids=repr)
def test_a_file_without_jobs_is_no_mistake(run: Run, backend: Backend, text: str) -> None:
    assert run("register", "--from-file", "-", stdin=text) == Ran(0, "registered 0 jobs\n", "")


def test_a_byte_order_mark_carriage_returns_and_a_missing_last_newline_are_read(
    run: Run, backend: Backend
) -> None:
    text = b'\xef\xbb\xbf{"kind": "a"}\r\n\r\n{"kind": "b"}'
    assert run("register", "--from-file", "-", stdin=text).out == "registered 2 jobs\n"


BAD_LINES: dict[str, tuple[str | bytes, str]] = {
    "not JSON": ("{", "is not JSON: expecting property name enclosed in double quotes at column 2"),
    "not an object": ("[]", "is not a JSON object such as"),
    "no kind": ("{}", "kind: is required"),
    "unknown field": (
        '{"kind": "k", "imput_ref": {}}',
        "imput_ref: is not a field of a job; did you mean 'input_ref'?",
    ),
    "field twice": ('{"kind": "k", "kind": "l"}', "has 'kind' twice in one object"),
    "NaN": ('{"kind": "k", "input_ref": {"a": NaN}}', "has NaN, which is not JSON"),
    "infinity": ('{"kind": "k", "input_ref": {"a": 1e999}}', "input_ref: a is inf"),
    "huge integer": ('{"kind": "k", "priority": ' + "9" * 5000 + "}", "is not JSON that can be read"),
    "naive time": ('{"kind": "k", "run_at": "2030-01-31T06:00:00"}', "run_at: "),
    "number as time": ('{"kind": "k", "run_at": 5}', "run_at: "),
    "priority as text": ('{"kind": "k", "priority": "1"}', "priority: "),
    "bad id": ('{"kind": "k", "id": 7}', "id: "),
    "too large": ('{"kind": "k", "input_ref": {"a": "' + "x" * 65536 + '"}}', "input_ref: has 65544 bytes"),
    "not UTF-8": (b'{"kind": "\xff"}', "is not UTF-8 (at byte 11)"),
    "nested": ('{"kind": "k", "input_ref": ' + '{"a": ' * 5000 + "1" + "}" * 5001, ""),
    "endless": (
        '{"kind": "k", "input_ref": {"a": "' + "x" * 2_000_000 + '"}}',
        "has more than 655,360 bytes",
    ),
}


@pytest.mark.parametrize("source", ["file", "pipe"])
@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_named_by_its_number_and_nothing_is_registered(
    run: Run, backend: Backend, folder: Path, name: str, source: str
) -> None:
    bad, reason = BAD_LINES[name]
    text = numbered(2001).encode() + (bad if isinstance(bad, bytes) else bad.encode()) + b'\n{"kind": "k"}\n'
    (folder / "jobs.jsonl").write_bytes(text)
    if source == "file":
        ran = run("register", "--from-file", "jobs.jsonl")
    else:
        ran = run("register", "--from-file", "-", stdin=text)
    assert (ran.code, ran.out) == (2, "")
    told, ending = ran.err.splitlines()
    assert told.startswith("line 2002: ")
    assert reason in told
    assert ending == "Error: 1 line can't be registered, and so nothing was registered"
    assert backend.jobs() == []


def test_of_many_bad_lines_the_first_ten_are_named_and_all_are_counted(run: Run, backend: Backend) -> None:
    ran = run("register", "--from-file", "-", stdin="{}\n" * 25)
    assert [line.partition(":")[0] for line in ran.err.splitlines()[:-1]] == [
        f"line {n}" for n in range(1, 11)
    ]
    assert ran.err.splitlines()[-1].startswith("Error: 25 lines ")


def test_what_the_store_can_not_take_is_found_before_anything_is_sent(
    run: Run, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBCONTRACT_MAX_INPUT_REF_BYTES", "10")
    ran = run(
        "register", "--from-file", "-", stdin=lines({"kind": "k"}, {"kind": "k", "input_ref": {"a": "xyz"}})
    )
    assert ran.code == 2
    assert ran.err.startswith("line 2: input_ref: has 11 bytes as JSON; at most 10 are allowed")
    assert backend.jobs() == []


def test_sent_again_everything_is_a_duplicate(run: Run, backend: Backend, folder: Path) -> None:
    (folder / "jobs.jsonl").write_text(numbered(2500))
    assert run("register", "--from-file", "jobs.jsonl").out == "registered 2,500 jobs\n"
    again = run("register", "--from-file", "jobs.jsonl")
    assert again == Ran(0, "registered 0 jobs, 2,500 duplicates already there\n", "")
    assert sum(stats.ready for stats in backend.stats()) == 2500


def test_conflicts_are_counted_and_named_and_are_exit_code_3(run: Run, backend: Backend) -> None:
    held = put(backend, State.READY, idempotency_key="1", input_ref={"n": "other"})
    ran = run("register", "--from-file", "-", stdin=numbered(3))
    assert ran.code == 3
    assert ran.out == "registered 2 jobs, 1 conflict\n"
    assert ran.err.splitlines() == [
        f"line 2: job {held.id} has its key, and another kind or input",
        "Error: 1 job of 3 were not registered: others hold their keys",
    ]
    as_json = run("register", "--from-file", "-", "--json", stdin=numbered(3))
    assert as_json.json() == {
        "jobs": 3,
        "created": 0,
        "duplicates": 2,
        "conflicts": [{"line": 2, "job_id": str(held.id)}],
        "conflict_count": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["k"], "KIND"),
        (["--queue", "q"], "--queue"),
        (["--in", "1s"], "--in"),
        (["--priority", "0"], "--priority"),
        (["--header", "a=b"], "--header"),
        (["--input-ref", "{}"], "--input-ref"),
    ],
)
def test_options_of_one_job_are_refused_and_not_ignored(
    run: Run, backend: Backend, arguments: list[str], named: str
) -> None:
    ran = run("register", "--from-file", "-", *arguments, stdin='{"kind": "k"}\n')
    assert ran.code == 2
    assert ran.err.startswith(f"Error: {named} is about one job; ")
    assert backend.jobs() == []


@pytest.mark.parametrize(("name", "reason"), [("none.jsonl", "No such file"), (".", "Is a directory")])
def test_a_file_that_can_not_be_read_is_a_sentence(
    run: Run, backend: Backend, name: str, reason: str
) -> None:
    ran = run("register", "--from-file", name)
    assert ran.code == 2
    assert ran.err.startswith(f"Error: {name} can't be read: {reason}")


# What a real store does in the middle of a file: a trigger refuses the row, from the 2,001st on.
REFUSING = """
CREATE TRIGGER full BEFORE INSERT ON jobcontract_jobs
WHEN (SELECT count(*) FROM jobcontract_jobs) >= 2000
BEGIN SELECT RAISE(FAIL, 'no more'); END
"""


def test_a_store_that_fails_in_the_middle_is_told_with_how_far_it_came(
    run: Run, backend: Backend, folder: Path
) -> None:
    connection = sqlite3.connect(folder / "jobcontract.db")
    connection.execute(REFUSING)
    (folder / "jobs.jsonl").write_text(numbered(3500))
    ran = run("register", "--from-file", "jobs.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("Error: ")
    assert ran.err.endswith(
        "; 2,000 of 3,500 jobs are stored, and perhaps those of lines 2001 to 3000; "
        "it is safe to run it again, for every line has an id or an idempotency_key\n"
    )
    connection.execute("DROP TRIGGER full")
    connection.close()
    assert run("register", "--from-file", "jobs.jsonl").out == (
        "registered 1,500 jobs, 2,000 duplicates already there\n"
    )


def test_lines_without_a_name_are_not_called_safe_to_send_again(
    run: Run, backend: Backend, folder: Path
) -> None:
    with sqlite3.connect(folder / "jobcontract.db") as connection:
        connection.execute(REFUSING)
    text = numbered(3000) + lines({"kind": "k"}, {"kind": "k"})
    ran = run("register", "--from-file", "-", stdin=text)
    assert ran.code == 1
    assert (
        "2,000 of 3,002 jobs are stored, and perhaps those of lines 2001 to 3000; 2 lines with neither an id "
        "nor an idempotency_key would be registered again" in ran.err
    )


def test_ctrl_c_in_the_middle_is_told_with_how_far_it_came(backend: Backend, folder: Path) -> None:
    with sqlite3.connect(folder / "jobcontract.db") as connection:
        # Each row takes the store a while, so that the end is far.
        connection.execute(
            "CREATE TRIGGER slow BEFORE INSERT ON jobcontract_jobs BEGIN SELECT count(*) FROM "
            "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) SELECT i FROM n);"
            "END"
        )
    (folder / "jobs.jsonl").write_text(numbered(20_000))
    with Process("register", "--from-file", "jobs.jsonl", folder=folder) as jobctl:
        until(lambda: backend.jobs(limit=1))
        jobctl.interrupt()
        ran = jobctl.end()
    assert ran.code == 130
    told = re.fullmatch(
        r"Error: interrupted; ([\d,]+) of 20,000 jobs are stored"
        r"(?:, and perhaps those of lines \d+ to (\d+))?; "
        r"it is safe to run it again, for every line has an id or an idempotency_key\n",
        ran.err,
    )
    assert told is not None, ran.err
    least = int(told[1].replace(",", ""))
    assert least <= sum(stats.ready for stats in backend.stats()) <= int(told[2] or least)


def test_memory_stays_flat_for_a_pipe_of_many_lines() -> None:
    script = """
import itertools, resource, sys, threading, os
from jobcontract.cli.job_lines import open_lines

def write(end, count):
    with os.fdopen(end, "wb") as pipe:
        for number in range(count):
            pipe.write(b'{"kind": "k", "input_ref": {"text": "%s", "n": %d}}\\n' % (b"x" * 3000, number))

def most_memory(count):
    read, end = os.pipe()
    threading.Thread(target=write, args=(end, count)).start()
    with open_lines(f"/dev/fd/{read}", 100_000) as lines:
        assert lines.check(lambda job: None, lambda size: None).jobs == count
        assert sum(len(batch) for batch in lines.batches(1000)) == count
    os.close(read)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

few = most_memory(1_000)
print((most_memory(20_000) - few) // 1024)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 15  # MiB; the lines are 58

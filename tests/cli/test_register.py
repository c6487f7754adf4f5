"""`jobctl register KIND`: one job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from jobcontract import Backend, Job, JobStatus, State
from tests.cli.conftest import Ran, Run


def only(backend: Backend) -> JobStatus:
    (job,) = backend.jobs()
    return job


def test_each_field_of_the_job_arrives(run: Run, backend: Backend) -> None:
    ran = run(
        *("register", "send_mail", "--input-ref", '{"to": "Ŝ", "n": 18446744073709551617}', "--key", "k 1"),
        *("--queue", "mail", "--priority", "7", "--max-attempts", "2", "--at", "2030-01-31T06:00:00+01:00"),
        *("--header", "tenant=a=b", "--header", "trace="),
    )
    job = only(backend)
    assert ran == Ran(0, f"registered {job.id} (ready)\n", "")
    assert job.job is not None
    assert job.job.model_dump(exclude={"id"}) == {
        "kind": "send_mail",
        "input_ref": {"to": "Ŝ", "n": 18446744073709551617},
        "idempotency_key": "k 1",
        "queue": "mail",
        "priority": 7,
        "max_attempts": 2,
        "run_at": datetime(2030, 1, 31, 5, tzinfo=UTC),
        "headers": {"tenant": "a=b", "trace": ""},
    }


def test_what_is_not_given_is_the_default_of_a_job(run: Run, backend: Backend) -> None:
    assert run("register", "k").code == 0
    job = only(backend).job
    assert job is not None
    assert job.model_dump(exclude={"id", "run_at"}) == Job(kind="k").model_dump(exclude={"id", "run_at"})


def test_in_counts_from_now(run: Run, backend: Backend) -> None:
    before = datetime.now(UTC)
    run("register", "k", "--in", "1h30m")
    job = only(backend).job
    assert job is not None
    assert job.run_at is not None
    assert timedelta() <= job.run_at - before - timedelta(minutes=90) < timedelta(minutes=1)


def test_a_taken_key_is_answered_with_the_job_that_holds_it(run: Run, backend: Backend) -> None:
    first = run("register", "k", "--key", "a", "--json").json()
    again = run("register", "k", "--key", "a")
    assert again == Ran(0, f"already there: {first['job_id']} (ready)\n", "")
    assert run("register", "k", "--key", "a", "--json").json() == {
        "job_id": first["job_id"],
        "created": False,
        "state": "ready",
        "conflict": False,
    }


def test_a_key_that_a_job_of_other_input_holds_is_exit_code_3(run: Run, backend: Backend) -> None:
    first = run("register", "k", "--key", "a", "--json").json()
    ran = run("register", "k", "--key", "a", "--input-ref", '{"n": 1}', "--json")
    assert ran.code == 3
    assert ran.json()["conflict"] is True
    assert ran.err == (
        f"Error: key 'a' is held by job {first['job_id']}, which has another kind or input; "
        "nothing was registered\n"
    )
    assert len(backend.jobs()) == 1


def test_the_id_is_that_of_the_job(run: Run, backend: Backend) -> None:
    assert UUID(run("register", "k", "--json").json()["job_id"]) == only(backend).id
    assert only(backend).state is State.READY


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["k", "--input-ref", "[1]"], "Invalid value for '--input-ref': the text is not a JSON object"),
        (["k", "--input-ref", '{"a": 1, "a": 2}'], "the text has 'a' twice in one object"),
        (["k", "--input-ref", '{"a": NaN}'], "the text has NaN, which is not JSON"),
        (["k", "--input-ref", "{a: 1}"], "the text is not JSON: "),
        (["k", "--input-ref", '{"a": ' + "9" * 5000 + "}"], "the text is not JSON that can be read: "),
        (["k", "--input-ref", '{"a": 1e999}'], "input_ref: a is inf, which is not JSON"),
        (["k", "--input-ref", '{"a": "\\u0000"}'], "input_ref: a holds NUL"),
        (["k", "--input-ref", '{"a": "\\ud800"}'], "input_ref: a holds a lone surrogate"),
        (["k", "--input-ref", '{"a": "' + "x" * 65536 + '"}'], "input_ref: has 65544 bytes as JSON"),
        (["a kind"], "kind: "),
        (["k", "--queue", "Mail"], "queue: "),
        (["k", "--priority", "10"], "priority: "),
        (["k", "--max-attempts", "0"], "max_attempts: "),
        (["k", "--key", " a"], "idempotency_key: must not begin or end with white space"),
        (["k", "--in", "soon"], "'soon' is not a length of time; write it as"),
        (["k", "--in", "9000w"], "run_at: must lie in [1970-01-01, 2100-01-01)"),
        (["k", "--in", "99999999w"], "run_at: must lie before the year 2100"),
        (["k", "--at", "2030-01-31T06:00:00"], "has no time zone; append Z or an offset"),
        (["k", "--at", "tomorrow"], "'tomorrow' is not an ISO 8601 time"),
        (["k", "--at", "2030-01-31T06:00:00Z", "--in", "1s"], "--in and --at say the same thing; give one."),
        (["k", "--header", "tenant"], "'tenant' is not written as NAME=VALUE"),
        (["k", "--header", "a=1", "--header", "a=2"], "'a' is given twice"),
        ([], "Give the KIND of the job, or --from-file."),
    ],
)
def test_bad_input_is_one_sentence_that_names_it_and_leaves_nothing(
    run: Run, backend: Backend, arguments: list[str], sentence: str
) -> None:
    ran = run("register", *arguments)
    assert (ran.code, ran.out) == (2, "")
    first, *rest = ran.err.splitlines()
    assert first.startswith("Error: ")
    assert sentence in first
    assert rest in ([], ["Try 'jobctl register --help' for help."])
    assert backend.jobs() == []

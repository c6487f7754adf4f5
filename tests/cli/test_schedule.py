"""`jobctl schedule`, and the schedules of `jobctl worker`."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from jobcontract import Backend
from jobcontract.schedules import Place
from tests.cli.conftest import Ran, Run
from tests.cli.process import Process, until

HANDLERS = """
from jobcontract import Handlers
handlers = Handlers()

@handlers.handler("other")
def other(input): ...
"""


def configure(folder: Path, *schedules: str, extra: str = "") -> None:
    tables = "\n".join(schedules)
    (folder / "jobcontract.toml").write_text(
        f'[backends.jobs]\nurl = "sqlite:///{folder}/jobcontract.db"\n{extra}\n{tables}'
    )


def schedule(name: str, when: str, **terms: str) -> str:
    lines = [
        f"[schedules.{name}]",
        'kind = "report"',
        when,
        *(f"{key} = {value}" for key, value in terms.items()),
    ]
    return "\n".join(lines)


def begin(backend: Backend, name: str, ago: timedelta) -> datetime:
    last = backend.read_notes(["any"]).now - ago
    assert backend.write_note(f"schedule:{name}", Place(last).text(), expected=None)
    return last


def keys(backend: Backend, name: str) -> Counter[str]:
    found = (each.job.idempotency_key for each in backend.jobs(limit=1000) if each.job is not None)
    return Counter(key for key in found if key is not None and key.startswith(f"schedule:{name}:"))


def test_the_list_says_when_and_how_far(run: Run, backend: Backend, folder: Path) -> None:
    configure(
        folder,
        schedule("nightly", 'cron = "0 2 * * *"', timezone='"Europe/Berlin"'),
        schedule("often", 'every = "90s"'),
    )
    begin(backend, "often", timedelta(minutes=5))
    assert run("schedule", "run", "--once").code == 0
    nightly, often = run("schedule", "list", "--json").json()
    assert (nightly["name"], nightly["when"], nightly["timezone"]) == (
        "nightly",
        "0 2 * * *",
        "Europe/Berlin",
    )
    assert (often["when"], often["timezone"], often["kind"]) == ("every 1m 30s", None, "report")
    assert nightly["gaps"] == often["gaps"] == 0
    assert often["last"] < often["next"]
    assert sum(keys(backend, "often").values()) in (3, 4)
    lines = run("schedule", "list").out.splitlines()
    assert lines[0].split() == ["NAME", "WHEN", "ZONE", "KIND", "BACKEND", "LAST", "NEXT", "GAPS"]
    assert lines[1].startswith("nightly  0 2 * * *")


def test_without_schedules_the_list_is_empty(run: Run, backend: Backend) -> None:
    assert run("schedule", "list") == Ran(0, "", "no schedule is configured\n")
    assert run("schedule", "run").code == 2


def test_the_next_ticks_are_shown_on_both_clocks_and_nothing_is_contacted(run: Run, folder: Path) -> None:
    configure(folder, schedule("nightly", 'cron = "30 2 * * *"', timezone='"Europe/Berlin"'))
    ran = run("schedule", "next", "nightly", "--count", 3, "--after", "2027-03-27T00:00:00Z")
    assert [re.split(r"\s{2,}", line) for line in ran.out.splitlines()] == [
        ["NAME", "TICK", "LOCAL"],
        ["nightly", "2027-03-27T01:30Z", "2027-03-27T02:30:00+01:00"],
        ["nightly", "2027-03-28T01:00Z", "2027-03-28T03:00:00+02:00"],  # 02:30 is left out
        ["nightly", "2027-03-29T00:30Z", "2027-03-29T02:30:00+02:00"],
    ]
    assert not (folder / "jobcontract.db").exists()


def test_an_unknown_schedule_is_named(run: Run, folder: Path) -> None:
    configure(folder, schedule("nightly", 'cron = "0 2 * * *"'))
    ran = run("schedule", "next", "nihgtly")
    assert ran == Ran(3, "", "Error: there is no schedule 'nihgtly'; configured are: nightly\n")


def test_gaps_are_listed_checked_and_filled_once(run: Run, backend: Backend, folder: Path) -> None:
    configure(folder, schedule("hourly", 'every = "1h"', catch_up='"1m"'))
    last = begin(backend, "hourly", timedelta(hours=3, minutes=59))
    assert run("schedule", "gaps", "--check").code == 1
    assert run("schedule", "run", "--once").code == 0
    ran = run("schedule", "gaps", "--json")
    ticks = [each["tick"] for each in ran.json()]
    assert len(ticks) in (3, 4)
    assert ticks[0] == (last.replace(minute=0) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%MZ")
    assert run("schedule", "gaps").out.splitlines()[1].split() == ["hourly", ticks[0]]

    declined = run("schedule", "backfill")
    assert declined.code == 1
    assert f"Insert jobs for {len(ticks)} missing ticks of hourly in sqlite:///" in declined.err
    before = sum(keys(backend, "hourly").values())
    assert run("schedule", "backfill", "--until", ticks[0].replace("Z", ":00Z"), "--yes").out == (
        "hourly: 1 created, 0 known\n"
    )
    assert run("schedule", "backfill", "hourly", "--yes", "--json").json() == [
        {"name": "hourly", "created": len(ticks) - 1, "known": 0}
    ]
    assert run("schedule", "backfill", "--yes") == Ran(0, "", "no tick is missing\n")
    assert run("schedule", "gaps", "--check") == Ran(0, "", "no tick is missing\n")
    assert sum(keys(backend, "hourly").values()) == before + len(ticks)
    assert set(keys(backend, "hourly").values()) == {1}


def test_gaps_that_nobody_wants_filled_are_forgotten(run: Run, backend: Backend, folder: Path) -> None:
    configure(folder, schedule("hourly", 'every = "1h"', catch_up='"1m"'))
    begin(backend, "hourly", timedelta(hours=5, minutes=59))
    assert run("schedule", "backfill", "hourly", "--forget", "--yes").out in (
        "hourly: 5 forgotten\n",
        "hourly: 6 forgotten\n",
    )
    assert run("schedule", "gaps", "--check").code == 0
    assert keys(backend, "hourly") == {}


def test_a_store_that_is_not_postgresql_has_no_pg_cron(run: Run, backend: Backend, folder: Path) -> None:
    configure(folder, schedule("hourly", 'every = "1h"'))
    ran = run("schedule", "sql")
    assert (ran.code, ran.out) == (3, "")
    assert "backend 'jobs' is no PostgreSQL" in ran.err


def test_what_pg_cron_shall_do_is_printed_without_contact(run: Run, folder: Path) -> None:
    configure(
        folder,
        schedule("hourly", 'every = "1h"', backend='"other"'),
        extra='default = "jobs"\n[backends.other]\nurl = "postgresql://nobody@nowhere.invalid/none"\n',
    )
    text = (folder / "jobcontract.toml").read_text()
    (folder / "jobcontract.toml").write_text('default = "jobs"\n' + text.replace('default = "jobs"\n', "", 1))
    ran = run("schedule", "sql", "hourly")
    assert ran.code == 0
    assert "SELECT cron.schedule('jobcontract:hourly', '0 */1 * * *', $jobcontract$" in ran.out


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (schedule("a", ""), "schedules.a: needs either cron"),
        (schedule("a", 'cron = "0 2 * * *"\nevery = "1h"'), "schedules.a: needs either cron"),
        (schedule("a", 'cron = "0 2 * *"'), "schedules.a.cron: '0 2 * *' must have five fields"),
        (
            schedule("a", 'cron = "0 25 * * *"'),
            "schedules.a.cron: '0 25 * * *' is no cron expression: bad hour",
        ),
        (
            schedule("a", 'cron = "0 2 * * *"', timezone='"Berlin"'),
            "schedules.a.timezone: 'Berlin' is not a time",
        ),
        (
            schedule("a", 'cron = "0 2 * * *"', timezone='"../etc"'),
            "schedules.a.timezone: '../etc' is not a time",
        ),
        (
            schedule("a", 'every = "1h"', timezone='"UTC"'),
            "schedules.a.timezone: an interval follows real time",
        ),
        (schedule("a", 'every = "1500ms"'), "schedules.a.every: must be whole seconds"),
        (schedule("a", 'every = "1h"', queue='"A b"'), "schedules.a.queue: "),
        (schedule("a", 'every = "1h"', input="{ day = 2026-01-01 }"), "schedules.a.input: "),
        (schedule("a", 'every = "1h"', catch_up='"1s"'), "schedules.a.catch_up must be 10s at least"),
        (
            schedule("a", 'every = "1h"', queu='"x"'),
            "'schedules.a.queu' is not a setting; did you mean 'queue'?",
        ),
        (schedule("a", 'every = "1h"', backend='"nope"'), "there is no backend 'nope'"),
        ("[schedules.a]\nevery = 5", "'schedules.a.kind' is required"),
    ],
)
@pytest.mark.parametrize("command", [("schedule", "list"), ("worker", "app:handlers")])
def test_a_schedule_that_can_t_be_is_one_sentence(
    run: Run, folder: Path, table: str, sentence: str, command: tuple[str, ...]
) -> None:
    configure(folder, table)
    (folder / "app.py").write_text(HANDLERS)
    ran = run(*command)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err


def test_several_schedulers_and_a_worker_insert_each_tick_once_though_one_is_killed(
    backend: Backend, folder: Path
) -> None:
    configure(folder, schedule("often", 'every = "1s"'))
    (folder / "app.py").write_text(HANDLERS)
    last = begin(backend, "often", timedelta(seconds=2))
    with (
        Process("schedule", "run", folder=folder) as killed,
        Process("schedule", "run", folder=folder) as other,
        Process("worker", "app:handlers", folder=folder) as worker,
    ):
        until(lambda: len(keys(backend, "often")) >= 4)
        killed.popen.kill()
        seen = len(keys(backend, "often"))
        until(lambda: len(keys(backend, "often")) >= seen + 2)
        other.terminate()
        worker.terminate()
        ended = (other.end(), worker.end())
    assert [ran.code for ran in ended] == [0, 0], ended
    found = keys(backend, "often")
    assert set(found.values()) == {1}
    ticks = sorted(datetime.fromisoformat(key.removeprefix("schedule:often:")) for key in found)
    first = last.replace(microsecond=0) + timedelta(seconds=1)
    assert ticks == [first + timedelta(seconds=n) for n in range(len(ticks))], "none is left out"


def test_a_worker_leaves_schedules_alone_when_it_is_told_to(run: Run, backend: Backend, folder: Path) -> None:
    configure(folder, schedule("often", 'every = "1s"'))
    (folder / "app.py").write_text(HANDLERS)
    begin(backend, "often", timedelta(seconds=30))
    assert run("worker", "app:handlers", "--no-schedules", "--until-empty").code == 0
    assert keys(backend, "often") == {}


def test_a_worker_of_another_backend_leaves_them_alone(run: Run, backend: Backend, folder: Path) -> None:
    configure(folder, schedule("often", 'every = "1s"'))
    (folder / "app.py").write_text(HANDLERS)
    begin(backend, "often", timedelta(seconds=30))
    assert (
        run("worker", "app:handlers", "--backend", f"sqlite:///{folder}/jobcontract.db", "--until-empty").code
        == 0
    )
    assert keys(backend, "often") == {}
